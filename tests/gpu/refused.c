/* Launches whose blocks are to wait for each other, which the driver refuses, as it does where MPS gives a process less of
 * the device than the device says it has. The call goes another way then, and is as right; nor does a capture suffer. The
 * linker puts a function of ours before the runtime's (bench/meson.build), which makes such a launch too large, so that
 * the driver itself refuses it, or answers in its place. */
#include "tests/gpu/cases.h"
#include "tests/gpu/lane.h"
#include "tests/gpu/right.h"

#include <stdlib.h>
#include <string.h>

#ifndef COPES_FAMILY_HIP /* whose blocks do not meet */
typedef enum answer { AS_IT_IS, TOO_LARGE, NOT_SUPPORTED } answer;

static answer answered;
static int refused; /* launches */

cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments);

static int is_cooperative(const cudaLaunchConfig_t *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeCooperative && config->attrs[i].val.cooperative)
            return 1;
    return 0;
}

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments)
{
    enum { MORE = 1 << 16 }; /* for a single block more than any device takes at a time */
    cudaLaunchConfig_t larger = *config;
    if (answered == AS_IT_IS || !is_cooperative(config))
        return __real_cudaLaunchKernelExC(config, kernel, arguments);
    refused++;
    if (answered == NOT_SUPPORTED)
        return cudaErrorNotSupported;
    larger.gridDim.x *= MORE;
    return __real_cudaLaunchKernelExC(&larger, kernel, arguments);
}

static void answer_with(answer a)
{
    answered = a;
    refused = 0;
}

/* The output of a captured call. Nothing is asked of the driver here: in a graph it takes launches that are too large. */
static unsigned char *capture(const lane *l)
{
    GPU(Graph_t) graph;
    GPU(GraphExec_t) replay;
    answer_with(NOT_SUPPORTED);
    succeed(GPU(StreamBeginCapture)(l->stream, GPU(StreamCaptureModeGlobal)));
    run(l);
    answer_with(AS_IT_IS);
    succeed(GPU(StreamEndCapture)(l->stream, &graph));
    succeed(GPU(GraphInstantiateWithFlags)(&replay, graph, 0));
    succeed(GPU(GraphLaunch)(replay, l->stream));
    unsigned char *output = take_output(l);
    succeed(GPU(GraphExecDestroy)(replay));
    succeed(GPU(GraphDestroy)(graph));
    return output;
}

/* Every case, as a call and in a graph, with the workspace that it asked for before it was refused. */
START_TEST(refused_calls_go_another_way)
{
    int cases = 0;
    for (int i = 0; i < GPU_CASES; i++) {
        lane l = {.stream = NULL};
        open_lane(&l, &gpu_cases[i]);
        char *const told = strdup(copes_last_error());
        answer_with(TOO_LARGE);
        run(&l);
        const int launches = refused;
        answer_with(AS_IT_IS);
        cases += launches > 0;
        ck_assert_int_le(launches, 1);
        succeed(GPU(GetLastError)());               /* it is not the caller's */
        ck_assert_str_eq(copes_last_error(), told); /* nor has the call failed */
        unsigned char *called = take_output(&l), *replayed = capture(&l);
        ck_assert_int_eq(memcmp(called, replayed, output_of(&l)->bytes), 0);
        if (launches == 0) { /* and one that is not refused is as it was */
            run(&l);
            expect_output(&l, called);
        }
        free(told);
        free(called);
        free(replayed);
        close_lane(&l);
    }
    ck_assert_int_ge(cases, 3);
}
END_TEST

START_TEST(refused_calls_are_right)
{
    copes_context *context;
    ck_assert_msg(copes_context_create(gpu, NULL, &context) == COPES_OK, "%s", copes_last_error());
    answer_with(TOO_LARGE);
    for (size_t i = 0; i < check_family_count; i++)
        for (int turn = 0; turn < 3; turn++)
            expect_right(&check_families[i], context, turn, "refused");
    const int launches = refused;
    answer_with(AS_IT_IS);
    ck_assert_int_gt(launches, 0);
    copes_context_destroy(context);
}
END_TEST

#endif

TCase *refused_tests(void)
{
    TCase *tests = tcase_create("refused");
    tcase_set_timeout(tests, 300);
#ifndef COPES_FAMILY_HIP
    tcase_add_test(tests, refused_calls_go_another_way);
    tcase_add_test(tests, refused_calls_are_right);
#endif
    return tests;
}
