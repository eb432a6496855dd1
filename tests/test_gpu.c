/* What only a GPU can show: calls captured in a graph and replayed, on any stream, from several contexts at once, and
 * several threads, with the same bits every time; on a part of the device; where launches are refused; tensors past 2^31
 * elements; a device's own errors; and what calls leave in the thread of their caller. Skipped where there is no device. */
#include "tests/gpu/cases.h"
#include "tests/gpu/lane.h"
#include "tests/suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXTS = 8 };

START_TEST(graphs_replay_to_the_same_bits)
{
    lane l = {.stream = NULL};
    open_lane(&l, &gpu_cases[_i]);
    expect_replays(&l, &gpu_cases[_i]);
    close_lane(&l);
}
END_TEST

START_TEST(contexts_run_side_by_side)
{
    lane lanes[CONTEXTS] = {{.stream = NULL}};
    unsigned char *alone[CONTEXTS];
    for (int i = 0; i < CONTEXTS; i++) {
        open_lane(&lanes[i], &gpu_cases[(_i + i) % GPU_CASES]);
        run(&lanes[i]);
        alone[i] = take_output(&lanes[i]);
    }
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < CONTEXTS; i++)
            run(&lanes[i]);
    for (int i = 0; i < CONTEXTS; i++) {
        expect_output(&lanes[i], alone[i]);
        free(alone[i]);
        close_lane(&lanes[i]);
    }
}
END_TEST

/* Calls that share kernels, but not how much shared memory these take. */
static const bench_case alike[] = {
    {.op = BENCH_ACT,
     .act = COPES_ACT_SOFTMAX,
     .over_tokens = true,
     .batch = 12,
     .head = 12,
     .dim = 128,
     .n = 1024,
     .type = CHECK_F32},
    {.op = BENCH_ACT,
     .act = COPES_ACT_SOFTMAX,
     .over_tokens = true,
     .batch = 2,
     .head = 1,
     .dim = 64,
     .n = 1024,
     .type = CHECK_F32},
    {.op = BENCH_TPA, .batch = 8, .head = 64, .dim = 128, .ranks = {16, 1, 1}, .n = 512, .type = CHECK_BF16},
    {.op = BENCH_TPA, .batch = 8, .head = 32, .dim = 128, .ranks = {16, 1, 1}, .n = 512, .type = CHECK_BF16},
};
enum { ALIKE = sizeof alike / sizeof alike[0] };

typedef struct caller {
    lane lane;
    pthread_t thread;
    char error[200]; /* the last, if one call failed */
} caller;

static void *call_often(void *argument)
{
    enum { TIMES = 300 };
    caller *c = argument;
    for (int i = 0; i < TIMES; i++)
        if (copes_context_set_stream(c->lane.context, c->lane.stream) != COPES_OK ||
            status_of_run(&c->lane) != COPES_OK)
            snprintf(c->error, sizeof c->error, "%s", copes_last_error());
    return NULL;
}

START_TEST(threads_run_side_by_side)
{
    caller callers[ALIKE] = {{.error = ""}};
    unsigned char *alone[ALIKE];
    for (int i = 0; i < ALIKE; i++) {
        open_lane(&callers[i].lane, &alike[i]);
        run(&callers[i].lane);
        alone[i] = take_output(&callers[i].lane);
    }
    for (int i = 0; i < ALIKE; i++)
        ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    for (int i = 0; i < ALIKE; i++)
        ck_assert_int_eq(pthread_join(callers[i].thread, NULL), 0);
    for (int i = 0; i < ALIKE; i++) {
        ck_assert_str_eq(callers[i].error, "");
        expect_output(&callers[i].lane, alone[i]);
        free(alone[i]);
        close_lane(&callers[i].lane);
    }
}
END_TEST

START_TEST(a_context_follows_its_stream)
{
    lane l = {.stream = NULL};
    GPU(Stream_t) other;
    open_lane(&l, &gpu_cases[0]);
    run(&l);
    unsigned char *wanted = take_output(&l);
    succeed(GPU(StreamCreateWithFlags)(&other, GPU(StreamNonBlocking)));
    ck_assert_int_eq(copes_context_set_stream(l.context, other), COPES_OK);
    run(&l);
    succeed(GPU(StreamSynchronize)(other));
    expect_output(&l, wanted);
    free(wanted);
    close_lane(&l);
    succeed(GPU(StreamDestroy)(other));
}
END_TEST

/* Where the next launch begins while one ends: it must still see all of its results. */
START_TEST(a_call_sees_what_the_one_before_it_wrote)
{
    enum { TIMES = 200 };
    const bench_case step = {.op = BENCH_ROTATE,
                             .act = COPES_ACT_NONE,
                             .batch = 256,
                             .head = 32,
                             .dim = 128,
                             .n = 1,
                             .one_theta = true,
                             .positions = true,
                             .in_place = true,
                             .type = CHECK_F32}; /* as theta has to be */
    lane l = {.stream = NULL};
    open_lane(&l, &step);
    const bench_tensor *x = output_of(&l);
    unsigned char *bytes[3];
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_nonnull(bytes[i] = malloc(x->bytes));
    succeed(GPU(Memcpy)(bytes[0], x->view.data, x->bytes, GPU(MemcpyDeviceToHost)));
    for (int each = 1; each < 3; each++) {
        succeed(GPU(Memcpy)(x->view.data, bytes[0], x->bytes, GPU(MemcpyHostToDevice)));
        succeed(GPU(DeviceSynchronize)()); /* a copy of pageable memory may return before its end */
        for (int i = 0; i < TIMES; i++) {
            run(&l);
            if (each == 2)
                succeed(GPU(StreamSynchronize)(l.stream));
        }
        succeed(GPU(StreamSynchronize)(l.stream));
        succeed(GPU(Memcpy)(bytes[each], x->view.data, x->bytes, GPU(MemcpyDeviceToHost)));
    }
    ck_assert_mem_ne(bytes[0], bytes[1], x->bytes);
    ck_assert_mem_eq(bytes[1], bytes[2], x->bytes);
    for (int i = 0; i < 3; i++)
        free(bytes[i]);
    close_lane(&l);
}
END_TEST

START_TEST(errors_of_the_device_come_back)
{
    lane l = {.stream = NULL};
    GPU(Graph_t) graph;
    void *unwanted = NULL;
    open_lane(&l, &gpu_cases[0]);
    succeed(GPU(StreamBeginCapture)(l.stream, GPU(StreamCaptureModeGlobal)));
    (void)GPU(Malloc)(&unwanted, 16); /* not allowed while a stream is captured, and spoils the capture */
    (void)GPU(GetLastError)();
    ck_assert_int_eq(status_of_run(&l), COPES_ERROR_BACKEND);
    ck_assert_ptr_nonnull(strstr(copes_last_error(), "capture"));
    ck_assert_int_eq(GPU(GetLastError)(), GPU(Success)); /* what was told is not left */
    (void)GPU(StreamEndCapture)(l.stream, &graph);
    (void)GPU(GetLastError)();
    run(&l);
    close_lane(&l);
}
END_TEST

START_TEST(float64_and_other_devices_are_refused)
{
    copes_context *context;
    int64_t one = 1;
    double value = 0;
    DLTensor tensor = {.data = &value, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 64, 1}, .shape = &one};
    const copes_op op = {.kind = COPES_ACT_FORWARD};
    const copes_args args = {.in = {&tensor}, .out = {&tensor}};
    ck_assert_int_eq(copes_context_create(gpu, NULL, &context), COPES_OK);
    ck_assert_int_eq(copes_run(context, &op, &args, NULL, 0), COPES_ERROR_DEVICE);
    tensor.device = gpu;
    ck_assert_int_eq(copes_run(context, &op, &args, NULL, 0), COPES_ERROR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(copes_last_error(), "float64"));
    copes_context_destroy(context);
    ck_assert_int_eq(copes_context_create((DLDevice){gpu.device_type, 4096}, NULL, &context), COPES_ERROR_DEVICE);
}
END_TEST

int main(void)
{
    enum { SKIPPED = 77 };
    int devices = 0;
    if (GPU(GetDeviceCount)(&devices) != GPU(Success) || devices == 0) {
        puts("no device: skipped");
        return SKIPPED;
    }
    Suite *suite = suite_create("gpu");
    TCase *tests = tcase_create("gpu");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, graphs_replay_to_the_same_bits, 0, GPU_CASES);
    tcase_add_loop_test(tests, contexts_run_side_by_side, 0, GPU_CASES);
    tcase_add_test(tests, threads_run_side_by_side);
    tcase_add_test(tests, a_context_follows_its_stream);
    tcase_add_test(tests, a_call_sees_what_the_one_before_it_wrote);
    tcase_add_test(tests, errors_of_the_device_come_back);
    tcase_add_test(tests, float64_and_other_devices_are_refused);
    suite_add_tcase(suite, caller_tests());
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, refused_tests());
    suite_add_tcase(suite, large_tests());
    suite_add_tcase(suite, part_tests());
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* a device does not live on in a child */
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
