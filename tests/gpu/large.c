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
    succeed(GPU(DeviceSynchronize)()); /* the lane's stream does not wait for it */
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

TCase *large_tests(void)
{
    TCase *tests = tcase_create("large");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, indices_pass_31_bits, 0, LARGE);
    return tests;
}
