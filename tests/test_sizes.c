/* Lengths that strides of 0 make possible: the size of the workspace is either at least what a call must need, or refused
 * with SIZE, and a refused call writes nothing. */
#include "common/slots.h"
#include "tests/suite.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const DLDevice cpu = {kDLCPU, 0};

/* Asked for, and had: a build without OpenMP has one. */
enum { THREADS = 3 };
#ifdef _OPENMP
enum { HAS_THREADS = THREADS };
#else
enum { HAS_THREADS = 1 };
#endif

enum { SLOTS = 14, OUT = 12, RANK = 5 };

typedef struct sized_tensor {
    DLTensor view;
    int64_t shape[RANK], stride[RANK];
} sized_tensor;

/* Of in[0 .. 11] and out[0 .. 1]. */
typedef struct sized_call {
    copes_op op;
    copes_args args;
    sized_tensor tensors[SLOTS];
} sized_call;

/* Lengths of 0 end the shape. Inputs have strides of 0, outputs are compact, and none has data. */
static void add(sized_call *call, int slot, int bits, const int64_t (*shape)[RANK])
{
    sized_tensor *to = &call->tensors[slot];
    memcpy(to->shape, *shape, sizeof to->shape);
    to->view = (DLTensor){.device = cpu,
                          .dtype = {kDLFloat, (uint8_t)bits, 1},
                          .shape = to->shape,
                          .strides = slot < OUT ? to->stride : NULL};
    while (to->view.ndim < RANK && to->shape[to->view.ndim] > 0)
        to->view.ndim++;
    *(slot < OUT ? &call->args.in[slot] : &call->args.out[slot - OUT]) = &to->view;
}

#define ADD(call, slot, bits, ...) add(call, slot, bits, &(const int64_t[RANK]){__VA_ARGS__})

/* A thread's memory holds at least one row of so many elements, of 4 bytes or more. What is in the context's scratch
 * memory is no part of the workspace. */
static bool suffices(size_t size, int64_t row)
{
    enum { SCRATCH = 256 * 1024 };
    return row * 4 <= SCRATCH || size / HAS_THREADS / 4 >= (size_t)row;
}

/* Outputs that are small enough, and all inputs, since they are broadcast, get memory: the call then must not run. */
static void expect_refused(copes_context *context, sized_call *call)
{
    static unsigned char element[8], memory[2][1 << 16], before[2][1 << 16];
    static unsigned char workspace[1 << 16];
    for (int i = 0; i < SLOTS; i++)
        call->tensors[i].view.data = i < OUT ? element : memory[i - OUT];
    memset(memory, 0x5a, sizeof memory);
    memcpy(before, memory, sizeof memory);
    ck_assert_int_eq(copes_run(context, &call->op, &call->args, workspace, sizeof workspace), COPES_ERROR_SIZE);
    ck_assert_int_eq(memcmp(before, memory, sizeof memory), 0);
}

/* Is the call refused? `row`: the longest that a thread has in memory. */
static bool check(sized_call *call, int64_t row, const char *what)
{
    enum { POISON = 0x5a5a };
    const copes_context_options options = {.threads = THREADS};
    copes_context *context;
    size_t size = POISON;
    ck_assert_int_eq(copes_context_create(cpu, &options, &context), COPES_OK);
    const copes_status status = copes_workspace_size(context, &call->op, &call->args, &size);
    ck_assert_msg(status == COPES_OK || status == COPES_ERROR_SIZE, "%s: %s", what, copes_last_error());
    if (status == COPES_OK) {
        ck_assert_msg(suffices(size, row), "%s: a workspace of %zu bytes", what, size);
    } else {
        ck_assert_uint_eq(size, POISON);
        expect_refused(context, call);
    }
    copes_context_destroy(context);
    return status != COPES_OK;
}

typedef struct tpa_shape {
    int64_t b, n, m, h, d, e, rq, rk, rv;
} tpa_shape;

static int64_t largest(const tpa_shape *s)
{
    const int64_t rows[] = {s->d, s->e, s->rq, s->rk, s->rv};
    int64_t most = 0;
    for (int i = 0; i < 5; i++)
        most = rows[i] > most ? rows[i] : most;
    return most;
}

static bool check_tpa(const tpa_shape *s, int bits)
{
    char what[256];
    sized_call call = {.op = {.kind = COPES_TPA_DECODE}};
    ADD(&call, COPES_TPA_AQ, bits, s->b, s->n, s->h, s->rq);
    ADD(&call, COPES_TPA_BQ, bits, s->b, s->n, s->rq, s->d);
    ADD(&call, COPES_TPA_AK, bits, s->b, s->m, s->h, s->rk);
    ADD(&call, COPES_TPA_BK, bits, s->b, s->m, s->rk, s->d);
    ADD(&call, COPES_TPA_AV, bits, s->b, s->m, s->h, s->rv);
    ADD(&call, COPES_TPA_BV, bits, s->b, s->m, s->rv, s->e);
    ADD(&call, OUT + COPES_TPA_OUT, bits, s->b, s->n, s->h, s->e);
    snprintf(what, sizeof what, "tpa_decode of b %lld n %lld m %lld h %lld d %lld e %lld ranks %lld %lld %lld",
             (long long)s->b, (long long)s->n, (long long)s->m, (long long)s->h, (long long)s->d, (long long)s->e,
             (long long)s->rq, (long long)s->rk, (long long)s->rv);
    return check(&call, largest(s), what);
}

/* One length, or two, of all powers of 2 that their tensors' sizes allow. */
START_TEST(tpa_of_all_lengths)
{
    static const int bits[] = {16, 32, 64};
    enum { LENGTHS = sizeof(tpa_shape) / sizeof(int64_t), MOST = 62 - 3 };
    int refused = 0;
    for (int first = 0; first < LENGTHS; first++)
        for (int second = first; second < LENGTHS; second++)
            for (int power = 0; power <= MOST; power += 3)
                for (int other = 0; other <= (first == second ? 0 : MOST - power); other += 7) {
                    int64_t lengths[LENGTHS] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
                    lengths[first] <<= power;
                    lengths[second] <<= other;
                    tpa_shape shape;
                    memcpy(&shape, lengths, sizeof shape);
                    refused += check_tpa(&shape, bits[(power + other) % 3]);
                }
    ck_assert_int_gt(refused, 100);
}
END_TEST

START_TEST(tpa_of_a_large_rank)
{
    const tpa_shape ranks[] = {{1, 1, 1, 1, 8, 8, 1, INT64_C(1) << 58, 1},
                               {1, 1, 1, 1, 8, 8, 1, 1, INT64_C(1) << 58},
                               {1, 1, 1, 1, 8, 8, INT64_C(1) << 58, 1, 1}};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(check_tpa(&ranks[i], 16), 1);
        ck_assert_msg(strstr(copes_last_error(), "288230376151711744") != NULL &&
                          strstr(copes_last_error(), "the size of the workspace fits 63 bits") != NULL,
                      "%s", copes_last_error());
    }
}
END_TEST

/* Features, of which a thread has rows. Only outputs bound them, by what has an address. */
START_TEST(lrpe_of_all_lengths)
{
    int refused = 0;
    for (int power = 1; power <= 59; power++)
        for (int backward = 0; backward < 2; backward++)
            for (int softmax = 0; softmax < 3; softmax++) {
                const int64_t d = INT64_C(1) << power;
                sized_call call = {.op = {.kind = backward ? COPES_LRPE_BACKWARD : COPES_LRPE_FORWARD,
                                          .lrpe = {.act = softmax > 0 ? COPES_ACT_SOFTMAX : COPES_ACT_SILU,
                                                   .dim = softmax == 2 ? -3 : -1}}};
                ADD(&call, COPES_LRPE_X, 16, 1, 3, 1, d);
                ADD(&call, COPES_LRPE_THETA, 32, 1, 1);
                if (backward)
                    ADD(&call, COPES_LRPE_GRAD_O, 16, 1, 3, 1, d);
                ADD(&call, OUT + COPES_LRPE_OUT, 16, 1, 3, 1, d);
                refused += check(&call, d, "lrpe");
            }
    ck_assert_int_gt(refused, 0);
}
END_TEST

/* Features, and heads, of which a thread has all where one mean is over them. */
START_TEST(qk_of_all_lengths)
{
    int refused[2] = {0, 0};
    for (int power = 1; power <= 52; power++)
        for (int backward = 0; backward < 2; backward++)
            for (int all_heads = 0; all_heads < 2; all_heads++) {
                const int64_t h = all_heads ? INT64_C(1) << power : 1, d = all_heads ? 8 : INT64_C(1) << power;
                sized_call call = {.op = {.kind = backward ? COPES_QK_NORM_ROPE_BACKWARD : COPES_QK_NORM_ROPE_FORWARD,
                                          .qk = {.norm_over = all_heads ? COPES_QK_NORM_ALL_HEADS : COPES_QK_NORM_HEAD,
                                                 .rotary_dim = 2}}};
                ADD(&call, COPES_QK_Q, 16, 1, 3, h, d);
                ADD(&call, COPES_QK_THETA, 32, 1, 1);
                ADD(&call, COPES_QK_WQ, 32, d);
                ADD(&call, OUT + COPES_QK_Q_OUT, 16, 1, 3, h, d);
                if (backward)
                    ADD(&call, COPES_QK_GRAD_Q_OUT, 16, 1, 3, h, d);
                refused[backward] += check(&call, h * d, "qk_norm_rope");
            }
    ck_assert_int_gt(refused[0], 0);
    ck_assert_int_gt(refused[1], 0);
}
END_TEST

/* It takes no workspace, whatever the lengths that its output can have. */
START_TEST(act_of_all_lengths)
{
    for (int power = 0; power <= 53; power++)
        for (int dim = -2; dim <= 0; dim++) {
            sized_call call = {.op = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = dim}}};
            ADD(&call, COPES_ACT_X, 16, 3, INT64_C(1) << power);
            ADD(&call, OUT + COPES_ACT_OUT, 16, 3, INT64_C(1) << power);
            ck_assert_int_eq(check(&call, 0, "act"), 0);
        }
}
END_TEST

/* Shares, of which a thread has the weights of all. */
START_TEST(merge_of_all_lengths)
{
    int refused = 0;
    for (int power = 1; power <= 58; power++)
        for (int backward = 0; backward < 2; backward++) {
            const int64_t s = INT64_C(1) << power;
            sized_call call = {
                .op = {.kind = backward ? COPES_ATTENTION_MERGE_BACKWARD : COPES_ATTENTION_MERGE_FORWARD}};
            ADD(&call, COPES_MERGE_O_SHARES, 16, s, 1, 1, 1, 1);
            ADD(&call, COPES_MERGE_LSE_SHARES, 32, s, 1, 1, 1);
            if (backward)
                ADD(&call, COPES_MERGE_GRAD_O, 16, 1, 1, 1, 1);
            if (backward)
                ADD(&call, OUT + COPES_MERGE_OUT, 16, s, 1, 1, 1, 1);
            else
                ADD(&call, OUT + COPES_MERGE_OUT, 16, 1, 1, 1, 1);
            refused += check(&call, s, "attention_merge");
        }
    ck_assert_int_gt(refused, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sizes");
    TCase *tests = tcase_create("workspaces");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, tpa_of_all_lengths);
    tcase_add_test(tests, tpa_of_a_large_rank);
    tcase_add_test(tests, lrpe_of_all_lengths);
    tcase_add_test(tests, qk_of_all_lengths);
    tcase_add_test(tests, act_of_all_lengths);
    tcase_add_test(tests, merge_of_all_lengths);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
