/* Calls on a GPU, each on a stream with a context of its own. */
#include "tests/gpu/lane.h"

#include "memory/memory.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* A call of every family and both directions, small enough to be many at once; and those that all blocks of a device
 * share and whose blocks meet, which have to wait for their turn then. */
const bench_case gpu_cases[] = {
    {.op = BENCH_ACT, .act = COPES_ACT_SILU, .batch = 2, .head = 3, .dim = 64, .n = 333, .type = CHECK_BF16},
    {.op = BENCH_ACT, .act = COPES_ACT_SOFTMAX, .batch = 2, .head = 3, .dim = 128, .n = 333, .type = CHECK_F16},
    {.op = BENCH_ACT,
     .act = COPES_ACT_SOFTMAX,
     .over_tokens = true,
     .batch = 2,
     .head = 3,
     .dim = 64,
     .n = 1000,
     .type = CHECK_BF16},
    {.op = BENCH_ROTATE, .act = COPES_ACT_NONE, .batch = 3, .head = 2, .dim = 128, .n = 257, .type = CHECK_BF16},
    {.op = BENCH_ROTATE, .act = COPES_ACT_NONE, .batch = 1, .head = 12, .dim = 128, .n = 9000, .type = CHECK_F32},
    {.op = BENCH_ROTATE,
     .act = COPES_ACT_SILU,
     .backward = true,
     .batch = 3,
     .head = 2,
     .dim = 128,
     .n = 257,
     .type = CHECK_F32},
    {.op = BENCH_ROTATE,
     .act = COPES_ACT_SOFTMAX,
     .over_tokens = true,
     .batch = 2,
     .head = 2,
     .dim = 128,
     .n = 1024,
     .type = CHECK_BF16},
    {.op = BENCH_ACT,
     .act = COPES_ACT_SOFTMAX,
     .over_tokens = true,
     .pass = BENCH_PASS_FIRST,
     .batch = 2,
     .head = 2,
     .dim = 128,
     .n = 1024,
     .type = CHECK_BF16},
    {.op = BENCH_ROTATE,
     .act = COPES_ACT_SOFTMAX,
     .over_tokens = true,
     .pass = BENCH_PASS_SECOND,
     .backward = true,
     .batch = 2,
     .head = 2,
     .dim = 128,
     .n = 1024,
     .type = CHECK_BF16},
    {.op = BENCH_COSINE, .act = COPES_ACT_SOFTMAX, .batch = 2, .head = 2, .dim = 60, .n = 100, .type = CHECK_BF16},
    {.op = BENCH_COSINE,
     .act = COPES_ACT_SOFTMAX,
     .over_tokens = true,
     .backward = true,
     .batch = 2,
     .head = 2,
     .dim = 64,
     .n = 513,
     .type = CHECK_F16},
    {.op = BENCH_ACT,
     .act = COPES_ACT_SOFTMAX,
     .over_tokens = true,
     .batch = 2,
     .head = 1,
     .dim = 128,
     .n = 24001,
     .type = CHECK_BF16},
    {.op = BENCH_ROTATE,
     .act = COPES_ACT_SOFTMAX,
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
    {.op = BENCH_QK, .batch = 2, .head = 8, .kv_head = 2, .dim = 64, .n = 333, .type = CHECK_F32},
    {.op = BENCH_QK,
     .norm = BENCH_NORM_HEAD,
     .cache = BENCH_CACHE_FLOAT8,
     .positions = true,
     .batch = 16,
     .head = 32,
     .kv_head = 8,
     .dim = 128,
     .n = 1,
     .type = CHECK_BF16},
    {.op = BENCH_QK,
     .norm = BENCH_NORM_ALL_HEADS,
     .cache = BENCH_CACHE_SAME,
     .batch = 2,
     .head = 8,
     .kv_head = 4,
     .dim = 128,
     .n = 333,
     .type = CHECK_F16},
    {.op = BENCH_QK,
     .norm = BENCH_NORM_HEAD,
     .backward = true,
     .batch = 3,
     .head = 4,
     .kv_head = 1,
     .dim = 256,
     .n = 257,
     .type = CHECK_F32},
    {.op = BENCH_QK,
     .norm = BENCH_NORM_HEAD,
     .backward = true,
     .grad_weights = true,
     .batch = 2,
     .head = 8,
     .kv_head = 2,
     .dim = 128,
     .n = 1000,
     .type = CHECK_BF16},
};
_Static_assert(sizeof gpu_cases / sizeof gpu_cases[0] == GPU_CASES, "as many as the header says");

void succeed(GPU(Error_t) error)
{
    ck_assert_msg(error == GPU(Success), "%s", GPU(GetErrorString)(error));
}

copes_status status_of_run(const lane *l)
{
    const bench_call *call = &l->call;
    return copes_run(call->context, &call->op, &call->args, call->workspace, call->workspace_size);
}

void run(const lane *l)
{
    ck_assert_msg(status_of_run(l) == COPES_OK, "%s", copes_last_error());
}

const bench_tensor *output_of(const lane *l)
{
    return &l->call.tensors[l->call.count - 1];
}

/* A call writes no more of a cache than its tokens. */
static void poison_output(const lane *l)
{
    const bench_tensor *output = output_of(l);
    succeed(GPU(Memset)(output->view.data, 0x5a, output->bytes));
    succeed(GPU(DeviceSynchronize)());
}

void open_lane_on(GPU(Stream_t) stream, lane *l, const bench_case *c)
{
    const copes_context_options options = {.stream = stream};
    l->stream = stream;
    ck_assert_msg(copes_context_create(gpu, &options, &l->context) == COPES_OK, "%s", copes_last_error());
    ck_assert_msg(bench_call_plan(&l->call, c, l->context, gpu) == COPES_OK, "%s", copes_last_error());
    ck_assert_int_eq(bench_call_allocate(&l->call, device_memory_of(gpu.device_type)), 0);
    poison_output(l);
}

void open_lane(lane *l, const bench_case *c)
{
    GPU(Stream_t) stream = NULL;
    succeed(GPU(StreamCreateWithFlags)(&stream, GPU(StreamNonBlocking)));
    open_lane_on(stream, l, c);
}

void empty_lane(lane *l)
{
    succeed(GPU(StreamSynchronize)(l->stream));
    bench_call_release(&l->call, device_memory_of(gpu.device_type));
    copes_context_destroy(l->context);
}

void close_lane(lane *l)
{
    empty_lane(l);
    succeed(GPU(StreamDestroy)(l->stream));
}

unsigned char *take_output(const lane *l)
{
    const bench_tensor *output = output_of(l);
    unsigned char *bytes = malloc(output->bytes);
    ck_assert_ptr_nonnull(bytes);
    succeed(GPU(StreamSynchronize)(l->stream));
    succeed(GPU(Memcpy)(bytes, output->view.data, output->bytes, GPU(MemcpyDeviceToHost)));
    poison_output(l);
    return bytes;
}

void expect_output(const lane *l, const unsigned char *wanted)
{
    unsigned char *got = take_output(l);
    const size_t bytes = output_of(l)->bytes;
    size_t same = 0;
    while (same < bytes && got[same] == wanted[same])
        same++;
    ck_assert_msg(same == bytes, "kind %d: of %zu bytes number %zu is %02x, not %02x", (int)l->call.op.kind, bytes,
                  same, got[same], wanted[same]);
    free(got);
}

/* Every call is one launch, but of tpa_decode where the blocks of a launch cannot wait for each other, of the gradients of
 * qk_norm_rope's weights, whose sums a second launch adds up, and of a long sequence, which is read twice. */
static bool takes_two_launches(const lane *l, const bench_case *c)
{
    static const char passes[] = "variant: sequence_passes<";
    char plan[1024];
    ck_assert_int_eq(copes_explain(l->context, &l->call.op, &l->call.args, plan, sizeof plan), COPES_OK);
    return (c->op == BENCH_TPA && gpu.device_type != kDLCUDA) || c->grad_weights ||
           strncmp(plan, passes, sizeof passes - 1) == 0;
}

static void expect_few_launches(GPU(Graph_t) graph, bool two)
{
    size_t nodes = 0;
    succeed(GPU(GraphGetNodes)(graph, NULL, &nodes));
    ck_assert_uint_ge(nodes, 1);
    ck_assert_uint_le(nodes, two ? 2 : 1);
}

void expect_replays(const lane *l, const bench_case *c)
{
    GPU(Graph_t) graph;
    GPU(GraphExec_t) replay;
    succeed(GPU(StreamBeginCapture)(l->stream, GPU(StreamCaptureModeGlobal)));
    ck_assert_int_eq(copes_context_set_stream(l->context, l->stream), COPES_OK); /* as before any call, and no work */
    run(l); /* its first: nothing is left to be loaded or allocated by a call */
    succeed(GPU(StreamEndCapture)(l->stream, &graph));
    expect_few_launches(graph, takes_two_launches(l, c));
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
