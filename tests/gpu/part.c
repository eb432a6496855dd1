/* Calls on a stream that has some of a device's multiprocessors: one of a green context, which only CUDA has. */
#include "tests/gpu/cases.h"
#include "tests/gpu/lane.h"
#include "tests/harness/run.h"

#include <stdbool.h>
#include <stdlib.h>

#ifndef COPES_FAMILY_HIP
#include <cuda.h>
#endif

#if !defined COPES_FAMILY_HIP && CUDA_VERSION >= 12050
typedef struct part {
    CUgreenCtx context;
    CUstream stream;
} part;

/* Where the driver has it. `function`: a pointer to where the pointer to it goes. */
static bool find_in_driver(const char *name, void *function)
{
    enum cudaDriverEntryPointQueryResult result;
    return cudaGetDriverEntryPointByVersion(name, function, 12050, cudaEnableDefault, &result) == cudaSuccess &&
           result == cudaDriverEntryPointSuccess;
}

/* False where the driver does not know how, or the device has no more than that. */
static bool open_part(part *p, unsigned multiprocessors)
{
    __typeof__(&cuDeviceGetDevResource) get;
    __typeof__(&cuDevSmResourceSplitByCount) split;
    __typeof__(&cuDevResourceGenerateDesc) describe;
    __typeof__(&cuGreenCtxCreate) create;
    __typeof__(&cuGreenCtxStreamCreate) create_stream;
    CUdevResource all, some;
    CUdevResourceDesc description;
    unsigned count = 1;
    succeed(cudaFree(NULL));
    if (!find_in_driver("cuDeviceGetDevResource", &get) || !find_in_driver("cuDevSmResourceSplitByCount", &split) ||
        !find_in_driver("cuDevResourceGenerateDesc", &describe) || !find_in_driver("cuGreenCtxCreate", &create) ||
        !find_in_driver("cuGreenCtxStreamCreate", &create_stream))
        return false;
    ck_assert_int_eq(get(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
    if (multiprocessors >= all.sm.smCount)
        return false;
    ck_assert_int_eq(split(&some, &count, &all, NULL, 0, multiprocessors), CUDA_SUCCESS);
    ck_assert_int_eq(describe(&description, &some, 1), CUDA_SUCCESS);
    ck_assert_int_eq(create(&p->context, description, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_SUCCESS);
    ck_assert_int_eq(create_stream(&p->stream, p->context, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    return true;
}

static void close_part(part *p)
{
    __typeof__(&cuGreenCtxDestroy) destroy;
    (void)cudaStreamDestroy(p->stream);
    if (find_in_driver("cuGreenCtxDestroy", &destroy))
        (void)destroy(p->context);
}
#else
typedef struct part {
    GPU(Stream_t) stream;
} part;

static bool open_part(part *p, unsigned multiprocessors)
{
    (void)p;
    (void)multiprocessors;
    return false;
}

static void close_part(part *p)
{
    (void)p;
}
#endif

/* Multiprocessors, rounded up by the device: fewer than a cluster may have blocks, and nearly all. */
static const unsigned parts[] = {8, 24, 104};
enum { PARTS = sizeof parts / sizeof parts[0] };

START_TEST(graphs_replay_on_a_part_of_the_device)
{
    part p;
    if (!open_part(&p, parts[_i]))
        return;
    for (int i = 0; i < GPU_CASES; i++) {
        lane l = {.stream = NULL};
        open_lane_on(p.stream, &l, &gpu_cases[i]);
        expect_replays(&l, &gpu_cases[i]);
        empty_lane(&l);
    }
    close_part(&p);
}
END_TEST

/* Some cases of a table, others for each part, and one of those that many blocks share, whose reference takes seconds. */
static void expect_right(const check_family *family, copes_context *context, int turn)
{
    enum { OF_ALL = 60, OF_LARGE = 29 };
    case_list list = {.cases = NULL};
    int seen[2] = {0, 0};
    family->table(&list);
    for (size_t i = 0; i < list.count; i++) {
        const check_case *c = &list.cases[i];
        if (c->type == CHECK_F64 || seen[c->large]++ % (c->large ? OF_LARGE : OF_ALL) != turn)
            continue;
        char text[CHECK_CASE_TEXT];
        const check_result result = check_run(c, context, gpu);
        ck_assert_msg(!result.failed, "%u multiprocessors, %s: %s", parts[turn], check_case_text(c, text),
                      result.message);
    }
    case_list_free(&list);
}

START_TEST(a_part_of_the_device_runs_everything)
{
    part p;
    copes_context *context;
    if (!open_part(&p, parts[_i]))
        return;
    const copes_context_options options = {.stream = p.stream};
    ck_assert_msg(copes_context_create(gpu, &options, &context) == COPES_OK, "%s", copes_last_error());
    for (size_t i = 0; i < check_family_count; i++)
        expect_right(&check_families[i], context, _i);
    copes_context_destroy(context);
    close_part(&p);
}
END_TEST

/* To a part of the device and back. The workspace may have to be another's. */
START_TEST(a_context_follows_its_stream_to_a_part)
{
    part p;
    lane l = {.stream = NULL};
    size_t size = 0;
    if (!open_part(&p, parts[0]))
        return;
    open_lane(&l, &gpu_cases[_i]);
    run(&l);
    unsigned char *wanted = take_output(&l);
    ck_assert_int_eq(copes_context_set_stream(l.context, p.stream), COPES_OK);
    ck_assert_int_eq(copes_workspace_size(l.context, &l.call.op, &l.call.args, &size), COPES_OK);
    const copes_status status = status_of_run(&l);
    ck_assert_int_eq(status, size > l.call.workspace_size ? COPES_ERROR_WORKSPACE : COPES_OK);
    free(take_output(&l));
    ck_assert_int_eq(copes_context_set_stream(l.context, l.stream), COPES_OK);
    run(&l);
    expect_output(&l, wanted);
    free(wanted);
    close_lane(&l);
    close_part(&p);
}
END_TEST

TCase *part_tests(void)
{
    TCase *tests = tcase_create("part");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, graphs_replay_on_a_part_of_the_device, 0, PARTS);
    tcase_add_loop_test(tests, a_part_of_the_device_runs_everything, 0, PARTS);
    tcase_add_loop_test(tests, a_context_follows_its_stream_to_a_part, 0, GPU_CASES);
    return tests;
}
