/* Every refusal of attention_merge's attribute and slots, forward and backward. What any tensor may be refused for is in
 * test_refusals_tensor.c. */
#include "tests/refusal.h"
#include "tests/suite.h"

#include <math.h>
#include <string.h>

enum {
    SHARES = COPES_MERGE_O_SHARES,
    LSES = COPES_MERGE_LSE_SHARES,
    GRAD_O = COPES_MERGE_GRAD_O,
    GRAD_LSE = COPES_MERGE_GRAD_LSE,
    LSE = OUT + COPES_MERGE_OUT_LSE
};
#define AT(field) offsetof(copes_op, merge.field)
#define FORWARD "attention_merge_forward: "
#define BACKWARD "attention_merge_backward: "

static const int64_t wide[] = {3, 2, 1, 4, 6}; /* S, B, N, H, E */

static void forward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ATTENTION_MERGE_FORWARD};
    call_add(call, SHARES, float32, 5, wide);
    call_add(call, LSES, float32, 4, wide);
    call_add(call, OUT, float32, 4, wide + 1);
    call_add(call, LSE, float32, 3, wide + 1);
}

static void backward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ATTENTION_MERGE_BACKWARD};
    call_add(call, SHARES, float32, 5, wide);
    call_add(call, LSES, float32, 4, wide);
    call_add(call, GRAD_O, float32, 4, wide + 1);
    call_add(call, GRAD_LSE, float32, 3, wide + 1);
    call_add(call, OUT, float32, 5, wide);
    call_add(call, LSE, float32, 4, wide);
}

static const refusal forward_rows[] = {
    MISSING(BY_ALL, SHARES, FORWARD "o_shares"),
    MISSING(BY_ALL, LSES, FORWARD "lse_shares"),
    MISSING(BY_SIZE_AND_RUN, OUT, FORWARD "o"),
    NO_SLOT(GRAD_O, FORWARD "in[2]"),
    WITHOUT_DATA(LSES, FORWARD "lse_shares has 24 elements"),
    APART_FROM_FIRST(LSES, FORWARD "lse_shares"),
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, SHARES, kDLInt, 32, 0}}, FORWARD "o_shares has type int32" FLOATS},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, LSES, kDLFloat, 64, 0}},
     FORWARD "lse_shares has type float64; it must be float32"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, SHARES, kDLFloat, 64, 0}},
     FORWARD "lse_shares has type float32; it must be float64"},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, OUT, kDLFloat, 16, 0}},
     FORWARD "o has type float16; it must be float32"},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, LSE, kDLFloat, 16, 0}},
     FORWARD "lse has type float16; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, SHARES, 0, 4, 0}},
     FORWARD "o_shares has shape (3, 2, 1, 4); it must be (S, B, N, H, E)"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, LSES, 0, 3, 0}},
     FORWARD "lse_shares has shape (3, 2, 1); it must be (3, 2, 1, 4), (S, B, N, H) to go with o_shares"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, LSES, 0, 2, 0}},
     FORWARD "lse_shares has shape (2, 2, 1, 4); it must be (3, 2, 1, 4), (S, B, N, H) to go with o_shares"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, OUT, 3, 5, 0}},
     FORWARD "o has shape (2, 1, 4, 5); it must be (2, 1, 4, 6), (B, N, H, E)"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, LSE, 2, 3, 0}},
     FORWARD "lse has shape (2, 1, 3); it must be (2, 1, 4), (B, N, H)"},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, OUT, 2, 5, 0}},
     FORWARD "o has shape (2, 1, 4, 6) with strides (24, 0, 5, 1)" SHARED_ELEMENTS},
    OVERLAP(OUT, SHARES, 0, FORWARD "o overlaps o_shares"),
    OVERLAP(LSE, LSES, 0, FORWARD "lse overlaps lse_shares"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(base), 0, 2, 0}},
     FORWARD "base is 2; it must be COPES_LOG_BASE_E (0) or COPES_LOG_BASE_2 (1)"},
    RESERVED(AT(reserved), "attention_merge_forward"),
};

static const refusal backward_rows[] = {
    MISSING(BY_ALL, LSES, BACKWARD "lse_shares"),
    MISSING(BY_ALL, GRAD_O, BACKWARD "grad_o"),
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, SHARES, 0, 0, 0}},
     BACKWARD "o_shares is NULL; grad_lse_shares needs the forward's"},
    MISSING(BY_SIZE_AND_RUN, OUT, BACKWARD "grad_o_shares"),
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, SHARES, kDLFloat, 16, 0}},
     BACKWARD "o_shares has type float16; it must be float32, as grad_o"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, GRAD_LSE, kDLFloat, 16, 0}},
     BACKWARD "grad_lse has type float16; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, GRAD_O, 0, 3, 0}},
     BACKWARD "grad_o has shape (2, 1, 4); it must be (B, N, H, E)"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, LSES, 0, 3, 0}},
     BACKWARD "lse_shares has shape (3, 2, 1); it must be (S, B, N, H)"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, LSES, 3, 5, 0}},
     BACKWARD "lse_shares has shape (3, 2, 1, 5); it must be (3, 2, 1, 4), (S, B, N, H) to go with grad_o"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, SHARES, 0, 2, 0}},
     BACKWARD "o_shares has shape (2, 2, 1, 4, 6); it must be (3, 2, 1, 4, 6), (S, B, N, H, E) to go with grad_o and "
              "lse_shares"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, GRAD_LSE, 0, 3, 0}},
     BACKWARD "grad_lse has shape (3, 1, 4); it must be (2, 1, 4), (B, N, H) to go with grad_o"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, LSE, 0, 2, 0}},
     BACKWARD "grad_lse_shares has shape (2, 2, 1, 4); it must be (3, 2, 1, 4), (S, B, N, H)"},
    OVERLAP(OUT, SHARES, 0, BACKWARD "grad_o_shares overlaps o_shares"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(base), 0, -1, 0}},
     BACKWARD "base is -1; it must be COPES_LOG_BASE_E (0) or COPES_LOG_BASE_2 (1)"},
    RESERVED(AT(reserved), "attention_merge_backward"),
};

REFUSAL_TEST(forward_refuses, forward, forward_rows)
REFUSAL_TEST(backward_refuses, backward, backward_rows)

/* Without shares, o = 0 and lse = -inf. */
START_TEST(no_shares_give_zero)
{
    static call_case call;
    call_make(&call, forward);
    call.shape[SHARES][0] = call.shape[LSES][0] = 0;
    call.tensor[SHARES].data = call.tensor[LSES].data = NULL;
    expect_success(&call);
    float o, lse;
    memcpy(&o, call.memory[OUT], sizeof o);
    memcpy(&lse, call.memory[LSE], sizeof lse);
    ck_assert_float_eq(o, 0);
    ck_assert_float_eq(lse, -INFINITY);
}
END_TEST

/* Inputs of the gradient of lse_shares are not read where that is not asked for. */
START_TEST(gradient_of_o_alone)
{
    static call_case call;
    call_make(&call, backward);
    call.args.in[SHARES] = call.args.in[GRAD_LSE] = NULL;
    call.args.attention_merge_backward.grad_lse_shares = NULL;
    expect_success(&call);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_merge");
    TCase *merge = tcase_create("merge");
    ADD_REFUSALS(merge, forward_refuses);
    ADD_REFUSALS(merge, backward_refuses);
    tcase_add_test(merge, no_shares_give_zero);
    tcase_add_test(merge, gradient_of_o_alone);
    suite_add_tcase(suite, merge);
    return suite_run(suite);
}
