/* Results larger than the last-level cache, which kernels may store past the caches: a batch that repeats one entry
 * must give that entry's bits again and again, at any alignment of the rows. The entry itself is held to the oracle by
 * the case tables. */
#include "tests/harness/buffer.h"
#include "tests/harness/random.h"
#include "tests/suite.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const DLDevice cpu = {kDLCPU, 0};

/* Enough that the output alone does not fit the cache, within reason. */
static size_t wanted_bytes(void)
{
    long cache = -1;
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    size_t bytes = cache > 0 ? (size_t)cache : (size_t)32 << 20;
    return (bytes < (size_t)512 << 20 ? bytes : (size_t)512 << 20) + ((size_t)3 << 20);
}

/* A tensor of `batch` equal entries, (B, N, H, D) and dense, `shift` bytes from an allocation's start. */
typedef struct repeated {
    unsigned char *memory;
    DLTensor tensor;
    int64_t shape[4];
    size_t entry; /* bytes */
} repeated;

static void make(repeated *r, check_type type, const int64_t *shape, size_t shift)
{
    memcpy(r->shape, shape, sizeof r->shape);
    size_t size = (size_t)check_type_of(type)->size;
    r->entry = (size_t)(shape[1] * shape[2] * shape[3]) * size;
    r->memory = malloc(r->entry * (size_t)shape[0] + shift);
    ck_assert_ptr_nonnull(r->memory);
    r->tensor = (DLTensor){.data = r->memory + shift, .device = cpu, .ndim = 4, .dtype = check_type_of(type)->dlpack};
    r->tensor.shape = r->shape;
}

static void fill(repeated *r, check_type type, uint64_t seed)
{
    unsigned char *first = r->tensor.data;
    int size = check_type_of(type)->size;
    for (size_t i = 0; i < r->entry; i += (size_t)size) {
        check_encode(type, check_round(type, 4 * check_uniform(&seed) - 2), first + i);
    }
    for (int64_t i = 1; i < r->shape[0]; i++) {
        memcpy(first + (size_t)i * r->entry, first, r->entry);
    }
}

/* Slots of the two families' forward and backward: x, what comes second, and grad_o. */
static void run(const copes_op *op, check_type type, copes_context *context, const int64_t *shape, size_t shift,
                repeated *out)
{
    bool lrpe = op->kind == COPES_LRPE_FORWARD || op->kind == COPES_LRPE_BACKWARD;
    bool backward = op->kind == COPES_ACT_BACKWARD || op->kind == COPES_LRPE_BACKWARD;
    bool doubled = lrpe && op->lrpe.variant == COPES_LRPE_COSINE;
    int64_t wide[4] = {shape[0], shape[1], shape[2], doubled ? 2 * shape[3] : shape[3]}, rates[4] = {1, 1, shape[2], 2};
    repeated x, grad, theta;
    make(&x, type, shape, shift);
    make(&grad, type, wide, shift);
    make(&theta, CHECK_F32, rates, 0);
    make(out, type, backward ? shape : wide, shift);
    fill(&x, type, 1);
    fill(&grad, type, 2);
    fill(&theta, CHECK_F32, 3);
    theta.tensor.ndim = 2;
    theta.tensor.shape = theta.shape + 2;
    copes_args args = {.in = {backward && op->act.act == COPES_ACT_SOFTMAX && !lrpe ? NULL : &x.tensor},
                       .out = {&out->tensor}};
    args.in[1] = lrpe ? &theta.tensor : backward ? &grad.tensor : NULL;
    if (lrpe && backward) {
        args.lrpe_backward.grad_o = &grad.tensor;
    }
    if (args.in[0] == NULL) {
        args.act_backward.o = &x.tensor; /* any will do */
    }
    size_t size;
    ck_assert_msg(copes_workspace_size(context, op, &args, &size) == COPES_OK, "%s", copes_last_error());
    void *workspace = malloc(size + 1);
    ck_assert_msg(copes_run(context, op, &args, workspace, size) == COPES_OK, "%s", copes_last_error());
    free(workspace);
    free(x.memory);
    free(grad.memory);
    free(theta.memory);
}

static void expect_repeats(copes_op op, check_type type, int64_t features, size_t shift)
{
    copes_context *context;
    ck_assert_int_eq(copes_context_create(cpu, NULL, &context), COPES_OK);
    int64_t shape[4] = {1, 67, 3, features};
    repeated once, often;
    run(&op, type, context, shape, 0, &once);
    shape[0] = (int64_t)(wanted_bytes() / once.entry) + 1;
    run(&op, type, context, shape, shift, &often);
    for (int64_t i = 0; i < shape[0]; i++) {
        const unsigned char *entry = (const unsigned char *)often.tensor.data + (size_t)i * often.entry;
        ck_assert_msg(memcmp(entry, once.tensor.data, once.entry) == 0,
                      "kind %d, %s, %lld features: entry %lld differs", (int)op.kind, check_type_of(type)->name,
                      (long long)features, (long long)i);
    }
    free(once.memory);
    free(often.memory);
    copes_context_destroy(context);
}

/* Rows that end on vectors, and rows that do not at an address that does not start on one. */
START_TEST(act_streams)
{
    expect_repeats((copes_op){.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SILU}}, CHECK_F32, 128, 0);
    expect_repeats((copes_op){.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SOFTMAX}}, CHECK_BF16, 130, 6);
    expect_repeats((copes_op){.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -3}}, CHECK_BF16, 128,
                   2);
}
END_TEST

START_TEST(lrpe_streams)
{
    copes_op op = {.kind = COPES_LRPE_FORWARD, .lrpe = {.offset = {9}, .pad_theta = 1}};
    expect_repeats(op, CHECK_BF16, 128, 0);
    op.lrpe.pairing = COPES_LRPE_INTERLEAVED;
    expect_repeats(op, CHECK_F32, 130, 4);
    op.lrpe.act = COPES_ACT_SOFTMAX;
    op.lrpe.dim = -3;
    expect_repeats(op, CHECK_BF16, 130, 6);
    op.kind = COPES_LRPE_BACKWARD;
    op.lrpe = (copes_lrpe_attributes){.variant = COPES_LRPE_COSINE, .act = COPES_ACT_SILU, .pad_theta = 1};
    expect_repeats(op, CHECK_BF16, 128, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("large results");
    TCase *tests = tcase_create("streamed");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, act_streams);
    tcase_add_test(tests, lrpe_streams);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
