/* What only a GPU can show: calls captured in a graph and replayed, on any stream, from several contexts at once, and
 * several threads, with the same bits every time; on a part of the device; tensors past 2^31 elements; and a device's own
 * errors. Skipped where there is no device. */
#include "bench/call.h"
#include "memory/runtime.h"
#include "tests/harness/run.h"
#include "tests/part.h"
#include "tests/suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const DLDevice gpu = {GPU_DEVICE_TYPE, 0};

/* A call of every family and both directions, small enough to be many at once; and those that all blocks of a device
 * share and whose blocks meet, which have to wait for their turn then. */
static const bench_case cases[] = {
    {.op = BENCH_ACT, .act = COPES_SILU, .batch = 2, .head = 3, .dim = 64, .n = 333, .type = CHECK_BF16},
    {.op = BENCH_ACT, .act = COPES_SOFTMAX, .batch = 2, .head = 3, .dim = 128, .n = 333, .type = CHECK_F16},
    {.op = BENCH_ACT,
     .act = COPES_SOFTMAX,
     .over_tokens = true,
     .batch = 2,
     .head = 3,
     .dim = 64,
     .n = 1000,
     .type = CHECK_BF16},
    {.op = BENCH_ROTATE, .act = COPES_NONE, .batch = 3, .head = 2, .dim = 128, .n = 257, .type = CHECK_BF16},
    {.op = BENCH_ROTATE, .act = COPES_NONE, .batch = 1, .head = 12, .dim = 128, .n = 9000, .type = CHECK_F32},
    {.op = BENCH_ROTATE,
     .act = COPES_SILU,
     .backward = true,
     .batch = 3,
     .head = 2,
     .dim = 128,
     .n = 257,
     .type = CHECK_F32},
    {.op = BENCH_ROTATE,
     .act = COPES_SOFTMAX,
     .over_tokens = true,
     .batch = 2,
     .head = 2,
     .dim = 128,
     .n = 1024,
     .type = CHECK_BF16},
    {.op = BENCH_COSINE, .act = COPES_SOFTMAX, .batch = 2, .head = 2, .dim = 60, .n = 100, .type = CHECK_BF16},
    {.op = BENCH_COSINE,
     .act = COPES_SOFTMAX,
     .over_tokens = true,
     .backward = true,
     .batch = 2,
     .head = 2,
     .dim = 64,
     .n = 513,
     .type = CHECK_F16},
    {.op = BENCH_ACT,
     .act = COPES_SOFTMAX,
     .over_tokens = true,
     .batch = 2,
     .head = 1,
     .dim = 128,
     .n = 24001,
     .type = CHECK_BF16},
    {.op = BENCH_ROTATE,
     .act = COPES_SOFTMAX,
     .over_tokens = true,
     .backward = true,
     .batch = 3,
     .head = 1,
     .dim = 64,
     .n = 24001,
     .type = CHECK_F32},
    {.op = BENCH_TPA, .batch = 3, .head = 32, .dim = 128, .ranks = {16, 1, 1}, .n = 1000, .type = CHECK_BF16},
    {.op = BENCH_TPA, .batch = 2, .head = 5, .dim = 36, .ranks = {16, 1, 1}, .n = 77, .type = CHECK_F32},
    {.op = BENCH_TPA, .batch = 1, .head = 64, .dim = 128, .ranks = {16, 1, 1}, .n = 20000, .type = CHECK_F16},
    {.op = BENCH_TPA, .batch = 2, .head = 32, .dim = 128, .ranks = {16, 1, 1}, .n = 20000, .type = CHECK_F32},
    {.op = BENCH_TPA, .batch = 1, .head = 47, .dim = 64, .ranks = {6, 2, 2}, .n = 20000, .type = CHECK_BF16},
    {.op = BENCH_TPA, .batch = 1, .head = 5, .dim = 36, .ranks = {3, 2, 1}, .n = 20000, .type = CHECK_F32},
};
enum { CASES = sizeof cases / sizeof cases[0], CONTEXTS = 8 };

typedef struct lane {
    GPU(Stream_t) stream;
    copes_context *context;
    bench_call call;
} lane;

static void succeed(GPU(Error_t) error)
{
    ck_assert_msg(error == GPU(Success), "%s", GPU(GetErrorString)(error));
}

static copes_status status_of_run(const lane *l)
{
    const bench_call *call = &l->call;
    return copes_run(call->context, &call->op, &call->args, call->workspace, call->workspace_size);
}

static void run(const lane *l)
{
    ck_assert_msg(status_of_run(l) == COPES_OK, "%s", copes_last_error());
}

static void open_lane_on(GPU(Stream_t) stream, lane *l, const bench_case *c)
{
    const copes_context_options options = {.stream = stream};
    l->stream = stream;
    ck_assert_msg(copes_context_create(gpu, &options, &l->context) == COPES_OK, "%s", copes_last_error());
    ck_assert_msg(bench_call_plan(&l->call, c, l->context, gpu) == COPES_OK, "%s", copes_last_error());
    ck_assert_int_eq(bench_call_allocate(&l->call, device_memory_of(gpu.device_type)), 0);
}

static void open_lane(lane *l, const bench_case *c)
{
    GPU(Stream_t) stream = NULL;
    succeed(GPU(StreamCreateWithFlags)(&stream, GPU(StreamNonBlocking)));
    open_lane_on(stream, l, c);
}

/* Leaves the stream. */
static void empty_lane(lane *l)
{
    succeed(GPU(StreamSynchronize)(l->stream));
    bench_call_release(&l->call, device_memory_of(gpu.device_type));
    copes_context_destroy(l->context);
}

static void close_lane(lane *l)
{
    empty_lane(l);
    succeed(GPU(StreamDestroy)(l->stream));
}

static const bench_tensor *output_of(const lane *l)
{
    return &l->call.tensors[l->call.count - 1];
}

/* The output's bytes, which the caller frees; what is on the device is poisoned for the next run. */
static unsigned char *take_output(const lane *l)
{
    const bench_tensor *output = output_of(l);
    unsigned char *bytes = malloc(output->bytes);
    ck_assert_ptr_nonnull(bytes);
    succeed(GPU(StreamSynchronize)(l->stream));
    succeed(GPU(Memcpy)(bytes, output->view.data, output->bytes, GPU(MemcpyDeviceToHost)));
    succeed(GPU(Memset)(output->view.data, 0x5a, output->bytes));
    succeed(GPU(DeviceSynchronize)());
    return bytes;
}

static void expect_output(const lane *l, const unsigned char *wanted)
{
    unsigned char *got = take_output(l);
    ck_assert_int_eq(memcmp(got, wanted, output_of(l)->bytes), 0);
    free(got);
}

/* Every call is one launch, but of tpa_decode where the blocks of a launch cannot wait for each other. */
static void expect_one_launch(GPU(Graph_t) graph, const bench_case *c)
{
    size_t nodes = 0;
    succeed(GPU(GraphGetNodes)(graph, NULL, &nodes));
    ck_assert_uint_eq(nodes, c->op == BENCH_TPA && gpu.device_type != kDLCUDA && nodes == 2 ? 2 : 1);
}

static void expect_replays(const lane *l, const bench_case *c)
{
    GPU(Graph_t) graph;
    GPU(GraphExec_t) replay;
    succeed(GPU(StreamBeginCapture)(l->stream, GPU(StreamCaptureModeGlobal)));
    ck_assert_int_eq(copes_context_set_stream(l->context, l->stream), COPES_OK); /* as before any call, and no work */
    run(l); /* its first: nothing is left to be loaded or allocated by a call */
    succeed(GPU(StreamEndCapture)(l->stream, &graph));
    expect_one_launch(graph, c);
    succeed(GPU(GraphInstantiateWithFlags)(&replay, graph, 0));
    run(l);
    unsigned char *direct = take_output(l);
    for (int i = 0; i < 3; i++) {
        succeed(GPU(GraphLaunch)(replay, l->stream));
        expect_output(l, direct);
    }
    free(direct);
    succeed(GPU(GraphExecDestroy)(replay));
    succeed(GPU(GraphDestroy)(graph));
}

START_TEST(graphs_replay_to_the_same_bits)
{
    lane l = {.stream = NULL};
    open_lane(&l, &cases[_i]);
    expect_replays(&l, &cases[_i]);
    close_lane(&l);
}
END_TEST

/* Multiprocessors, rounded up by the device: fewer than a cluster may have blocks, and nearly all. */
static const unsigned parts[] = {8, 24, 104};
enum { PARTS = sizeof parts / sizeof parts[0] };

START_TEST(graphs_replay_on_a_part_of_the_device)
{
    part p;
    if (!open_part(&p, parts[_i]))
        return;
    for (int i = 0; i < CASES; i++) {
        lane l = {.stream = NULL};
        open_lane_on(p.stream, &l, &cases[i]);
        expect_replays(&l, &cases[i]);
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

START_TEST(contexts_run_side_by_side)
{
    lane lanes[CONTEXTS] = {{.stream = NULL}};
    unsigned char *alone[CONTEXTS];
    for (int i = 0; i < CONTEXTS; i++) {
        open_lane(&lanes[i], &cases[(_i + i) % CASES]);
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
     .act = COPES_SOFTMAX,
     .over_tokens = true,
     .batch = 12,
     .head = 12,
     .dim = 128,
     .n = 1024,
     .type = CHECK_F32},
    {.op = BENCH_ACT,
     .act = COPES_SOFTMAX,
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
    open_lane(&l, &cases[0]);
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

/* To a part of the device and back. The workspace may have to be another's. */
START_TEST(a_context_follows_its_stream_to_a_part)
{
    part p;
    lane l = {.stream = NULL};
    size_t size = 0;
    if (!open_part(&p, parts[0]))
        return;
    open_lane(&l, &cases[_i]);
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

/* Cases whose output has more than 2^31 elements: what comes out at its end must be what the last tokens alone give. */
static const bench_case large[] = {
    {.op = BENCH_ACT, .act = COPES_SILU, .batch = 1, .head = 3, .dim = 128, .n = 5600000, .type = CHECK_BF16},
    {.op = BENCH_ACT, .act = COPES_SOFTMAX, .batch = 1, .head = 3, .dim = 128, .n = 5600000, .type = CHECK_BF16},
    {.op = BENCH_ACT, .act = COPES_RELU, .batch = 1, .head = 3, .dim = 127, .n = 5650000, .type = CHECK_BF16},
    {.op = BENCH_ROTATE, .act = COPES_NONE, .batch = 1, .head = 2, .dim = 128, .n = 8400000, .type = CHECK_BF16},
    {.op = BENCH_ROTATE, .act = COPES_SILU, .batch = 2, .head = 2, .dim = 128, .n = 4200000, .type = CHECK_BF16},
    {.op = BENCH_ROTATE, .act = COPES_NONE, .batch = 1, .head = 2, .dim = 126, .n = 8600000, .type = CHECK_BF16},
};
enum { LARGE = sizeof large / sizeof large[0], TAIL = 5 }; /* tokens */

/* Lets a tensor of the call begin at its last head or batch entry's last tokens, and be that much alone. */
static void keep_tail(bench_tensor *tensor, int tokens_axis)
{
    if (tensor->view.ndim != 4)
        return;
    int64_t strides[4] = {0, 0, 0, 1}, skipped = 0;
    for (int i = 2; i >= 0; i--)
        strides[i] = strides[i + 1] * tensor->shape[i + 1];
    for (int i = 0; i < 3; i++) {
        const int64_t kept = i == tokens_axis ? TAIL : i == 0 || tokens_axis == 2 ? 1 : tensor->shape[i];
        skipped += (tensor->shape[i] - kept) * strides[i];
        tensor->shape[i] = kept;
    }
    memcpy(tensor->strides, strides, sizeof strides);
    tensor->view.strides = tensor->strides;
    tensor->view.data = (char *)tensor->view.data + skipped * check_type_of(tensor->type)->size;
}

START_TEST(indices_pass_31_bits)
{
    lane l = {.stream = NULL};
    const int axis = large[_i].op == BENCH_ACT ? 2 : 1;
    open_lane(&l, &large[_i]);
    run(&l);
    bench_tensor *output = &l.call.tensors[l.call.count - 1];
    ck_assert_int_gt((int64_t)(output->bytes / 2), INT64_C(1) << 31);
    void *const whole = output->view.data;
    void *inputs[BENCH_TENSORS];
    for (int i = 0; i < l.call.count; i++) {
        inputs[i] = l.call.tensors[i].view.data;
        keep_tail(&l.call.tensors[i], axis);
    }
    int64_t count = 1;
    for (int i = 0; i < 4; i++)
        count *= output->shape[i];
    const size_t bytes = (size_t)count * 2;
    unsigned char *end = malloc(2 * bytes);
    ck_assert_ptr_nonnull(end);
    succeed(GPU(StreamSynchronize)(l.stream));
    succeed(GPU(Memcpy)(end, output->view.data, bytes, GPU(MemcpyDeviceToHost)));
    succeed(GPU(Memset)(output->view.data, 0x5a, bytes));
    if (axis == 1)
        l.call.op.lrpe.offset[0] = large[_i].n - TAIL;
    run(&l);
    succeed(GPU(StreamSynchronize)(l.stream));
    succeed(GPU(Memcpy)(end + bytes, output->view.data, bytes, GPU(MemcpyDeviceToHost)));
    ck_assert_int_eq(memcmp(end, end + bytes, bytes), 0);
    free(end);
    for (int i = 0; i < l.call.count; i++)
        l.call.tensors[i].view.data = inputs[i];
    output->view.data = whole;
    close_lane(&l);
}
END_TEST

START_TEST(errors_of_the_device_come_back)
{
    lane l = {.stream = NULL};
    GPU(Graph_t) graph;
    void *unwanted = NULL;
    open_lane(&l, &cases[0]);
    succeed(GPU(StreamBeginCapture)(l.stream, GPU(StreamCaptureModeGlobal)));
    (void)GPU(Malloc)(&unwanted, 16); /* not allowed while a stream is captured, and spoils the capture */
    ck_assert_int_eq(status_of_run(&l), COPES_ERROR_BACKEND);
    ck_assert_ptr_nonnull(strstr(copes_last_error(), "capture"));
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
    tcase_add_loop_test(tests, graphs_replay_to_the_same_bits, 0, CASES);
    tcase_add_loop_test(tests, contexts_run_side_by_side, 0, CASES);
    tcase_add_test(tests, threads_run_side_by_side);
    tcase_add_test(tests, a_context_follows_its_stream);
    tcase_add_loop_test(tests, indices_pass_31_bits, 0, LARGE);
    tcase_add_test(tests, errors_of_the_device_come_back);
    tcase_add_test(tests, float64_and_other_devices_are_refused);
    suite_add_tcase(suite, tests);
    TCase *on_parts = tcase_create("part");
    tcase_add_loop_test(on_parts, graphs_replay_on_a_part_of_the_device, 0, PARTS);
    tcase_add_loop_test(on_parts, a_part_of_the_device_runs_everything, 0, PARTS);
    tcase_add_loop_test(on_parts, a_context_follows_its_stream_to_a_part, 0, CASES);
    suite_add_tcase(suite, on_parts);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* a device does not live on in a child */
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
