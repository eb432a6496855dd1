/* Tensors of more than 2^31 elements. */
#include "tests/gpu/cases.h"
#include "tests/gpu/lane.h"

#include "memory/memory.h"

#include <stdlib.h>
#include <string.h>

/* Cases whose output has more than 2^31 elements: what comes out at its end must be what the last tokens alone give. */
static const bench_case large[] = {
    {.op = BENCH_ACT, .act = COPES_ACT_SILU, .batch = 1, .head = 3, .dim = 128, .n = 5600000, .type = CHECK_BF16},
    {.op = BENCH_ACT, .act = COPES_ACT_SOFTMAX, .batch = 1, .head = 3, .dim = 128, .n = 5600000, .type = CHECK_BF16},
    {.op = BENCH_ACT, .act = COPES_ACT_RELU, .batch = 1, .head = 3, .dim = 127, .n = 5650000, .type = CHECK_BF16},
    {.op = BENCH_ROTATE, .act = COPES_ACT_NONE, .batch = 1, .head = 2, .dim = 128, .n = 8400000, .type = CHECK_BF16},
    {.op = BENCH_ROTATE, .act = COPES_ACT_SILU, .batch = 2, .head = 2, .dim = 128, .n = 4200000, .type = CHECK_BF16},
    {.op = BENCH_ROTATE, .act = COPES_ACT_NONE, .batch = 1, .head = 2, .dim = 126, .n = 8600000, .type = CHECK_BF16},
    {.op = BENCH_MERGE, .shares = 2, .batch = 1, .head = 2, .dim = 128, .n = 8400000, .type = CHECK_BF16},
    {.op = BENCH_MERGE, .shares = 2, .batch = 1, .head = 2, .dim = 127, .n = 8500000, .type = CHECK_BF16},
    {.op = BENCH_MERGE,
     .backward = true,
     .shares = 2,
     .batch = 1,
     .head = 2,
     .dim = 33,
     .n = 33600000,
     .type = CHECK_BF16},
};
enum { LARGE = sizeof large / sizeof large[0], TAIL = 5 }; /* tokens */

/* Of attention_merge an lse lacks the features. */
static int tokens_axis(bench_operator op, const bench_tensor *tensor)
{
    if (op == BENCH_MERGE)
        return tensor->view.ndim - (tensor->type == CHECK_F32 ? 2 : 3);
    return op == BENCH_ACT ? 2 : 1;
}

/* Lets a tensor of the call begin at its last head or batch entry's last tokens, and be that much alone; of attention_merge in
 * every share. */
static void keep_tail(bench_operator op, bench_tensor *tensor)
{
    const int last = tensor->view.ndim - 1, axis = tokens_axis(op, tensor);
    if (last < 2)
        return;
    int64_t skipped = 0;
    tensor->strides[last] = 1;
    for (int i = last; i > 0; i--)
        tensor->strides[i - 1] = tensor->strides[i] * tensor->shape[i];
    for (int i = 0; i <= axis; i++) {
        const int64_t kept = i == axis ? TAIL : op == BENCH_MERGE ? tensor->shape[i] : 1;
        skipped += (tensor->shape[i] - kept) * tensor->strides[i];
        tensor->shape[i] = kept;
    }
    tensor->view.strides = tensor->strides;
    tensor->view.data = (char *)tensor->view.data + skipped * check_type_of(tensor->type)->size;
}

START_TEST(indices_pass_31_bits)
{
    lane l = {.stream = NULL};
    const bench_operator op = large[_i].op;
    open_lane(&l, &large[_i]);
    run(&l);
    bench_tensor *output = (bench_tensor *)l.call.args.out[0];
    ck_assert_int_gt((int64_t)(output->bytes / 2), INT64_C(1) << 31);
    void *const whole = output->view.data;
    void *inputs[BENCH_TENSORS];
    for (int i = 0; i < l.call.count; i++) {
        inputs[i] = l.call.tensors[i].view.data;
        keep_tail(op, &l.call.tensors[i]);
    }
    int64_t count = 1; /* of the last batch entry, or share */
    for (int i = 1; i < output->view.ndim; i++)
        count *= output->shape[i];
    const size_t bytes = (size_t)count * 2;
    unsigned char *end = malloc(2 * bytes), *tail = output->view.data;
    ck_assert_ptr_nonnull(end);
    tail += (size_t)(output->shape[0] - 1) * (size_t)output->strides[0] * 2;
    succeed(GPU(StreamSynchronize)(l.stream));
    succeed(GPU(Memcpy)(end, tail, bytes, GPU(MemcpyDeviceToHost)));
    succeed(GPU(Memset)(tail, 0x5a, bytes));
    succeed(GPU(DeviceSynchronize)()); /* the lane's stream does not wait for it */
    if (op == BENCH_ROTATE)
        l.call.op.lrpe.offset[0] = large[_i].n - TAIL;
    run(&l);
    succeed(GPU(StreamSynchronize)(l.stream));
    succeed(GPU(Memcpy)(end + bytes, tail, bytes, GPU(MemcpyDeviceToHost)));
    ck_assert_int_eq(memcmp(end, end + bytes, bytes), 0);
    free(end);
    for (int i = 0; i < l.call.count; i++)
        l.call.tensors[i].view.data = inputs[i];
    output->view.data = whole;
    close_lane(&l);
}
END_TEST

TCase *large_tests(void)
{
    TCase *tests = tcase_create("large");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, indices_pass_31_bits, 0, LARGE);
    return tests;
}
