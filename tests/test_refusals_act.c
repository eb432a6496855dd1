/* Every refusal of act's attributes and slots, but for masks and saved outputs (test_refusals_act_saved.c) and shares
 * of a softmax (test_refusals_act_shares.c). What any tensor may be refused for is in test_refusals_tensor.c. */
#include "tests/refusal_act.h"
#include "tests/suite.h"

static const refusal forward_rows[] = {
    MISSING(BY_ALL, X, "act_forward: x"),
    MISSING(BY_SIZE_AND_RUN, OUT, "act_forward: o"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{GIVEN, LSE_ALL, 0, 0, 0}},
     "act_forward: lse_all is given; it must be NULL but for softmax"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{GIVEN, SUMS, 0, 0, 0}},
     "act_forward: lse is given; it must be NULL but for softmax"},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, OUT, kDLFloat, 16, 0}},
     "act_forward: o has type float16; it must be float32"},
    {COPES_ERROR_SHAPE, BY_ALL, {{RANK, X, 0, 0, 0}}, "act_forward: x has rank 0; it must be 1 to 8"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{RANK, OUT, 0, 2, 0}},
     "act_forward: o has shape (2, 3); it must be (2, 3, 8), as x"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, OUT, 2, 7, 0}},
     "act_forward: o has shape (2, 3, 7); it must be (2, 3, 8), as x"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, 5, 0}},
     "act_forward: act is 5; it must be COPES_ACT_NONE (0) to COPES_ACT_SOFTMAX (4)"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, -1, 0}},
     "act_forward: act is -1; it must be COPES_ACT_NONE (0) to COPES_ACT_SOFTMAX (4)"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_SOFTMAX, 0}, {SET32, DIM, 0, 3, 0}},
     "act_forward: dim is 3; with tensors of rank 3 it must be -3 to -1, or 0 for the last axis"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_SOFTMAX, 0}, {SET32, DIM, 0, -4, 0}},
     "act_forward: dim is -4; with tensors of rank 3 it must be -3 to -1, or 0 for the last axis"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, DIM, 0, 99, 0}},
     "act_forward: dim is 99; with tensors of rank 3 it must be -3 to -1, or 0 for the last axis"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, DIM, 0, 1, 0}},
     "act_forward: dim is 1; axes count from the end: of rank 3 it must be -2"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, DIM, 0, 2, 0}},
     "act_forward: dim is 2; axes count from the end: of rank 3 it must be -1"},
    RESERVED(offsetof(copes_op, reserved), "act_forward"),
    RESERVED(offsetof(copes_op, act.reserved), "act_forward"),
    RESERVED(sizeof(copes_op) - 4, "act_forward"),
};

static const refusal backward_rows[] = {
    MISSING(BY_ALL, GRAD, "act_backward: grad_o"),
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, X, 0, 0, 0}},
     "act_backward: x is NULL; the backward of this activation needs the forward's input"},
    MISSING(BY_SIZE_AND_RUN, OUT, "act_backward: grad_x"),
    WITHOUT_DATA(X, "act_backward: x has 48 elements"),
    APART_FROM_FIRST(GRAD, "act_backward: grad_o"),
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, X, kDLBfloat, 16, 0}},
     "act_backward: x has type bfloat16; it must be float32, as grad_o"},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, GRAD, kDLInt, 32, 0}}, "act_backward: grad_o has type int32" FLOATS},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, X, 0, 1, 0}},
     "act_backward: x has shape (1, 3, 8); it must be (2, 3, 8), as grad_o"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, X, 0, 2, 0}},
     "act_backward: x has shape (2, 3); it must be (2, 3, 8), as grad_o"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, OUT, 0, 1, 0}},
     "act_backward: grad_x has shape (1, 3, 8); it must be (2, 3, 8), as grad_o"},
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{AS_VIEW_OF, OUT, X, 0, 0}},
     "act_backward: grad_x overlaps x; it must have memory of its own"},
    OVERLAP_IN_PART(OUT, GRAD, 8, "act_backward: grad_x overlaps grad_o"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, 1000, 0}},
     "act_backward: act is 1000; it must be COPES_ACT_NONE (0) to COPES_ACT_SOFTMAX (4)"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, DIM, 0, -4, 0}},
     "act_backward: dim is -4; with tensors of rank 3 it must be -3 to -1, or 0 for the last axis"},
    RESERVED(offsetof(copes_op, act.reserved), "act_backward"),
};

static const refusal softmax_rows[] = {
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, SAVED, 0, 0, 0}},
     "act_backward: o is NULL; the backward of softmax needs the forward's output"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, SAVED, kDLFloat, 64, 0}},
     "act_backward: o has type float64; it must be float32, as grad_o"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, SAVED, 2, 9, 0}},
     "act_backward: o has shape (2, 3, 9); it must be (2, 3, 8), as grad_o"},
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{AS_VIEW_OF, OUT, SAVED, 0, 0}},
     "act_backward: grad_x overlaps o; it must have memory of its own"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, DIM, 0, 3, 0}},
     "act_backward: dim is 3; with tensors of rank 3 it must be -3 to -1, or 0 for the last axis"},
};

REFUSAL_TEST(forward_refuses, call_act, forward_rows)
REFUSAL_TEST(backward_refuses, call_act_backward, backward_rows)
REFUSAL_TEST(softmax_backward_refuses, call_softmax_backward, softmax_rows)

START_TEST(in_place_is_accepted)
{
    static call_case call;
    call_make(&call, call_act);
    call_change(&call, &(call_edit){AS_VIEW_OF, OUT, X, 0, 0});
    expect_success(&call);
    call_make(&call, call_act_backward);
    call_change(&call, &(call_edit){AS_VIEW_OF, OUT, GRAD, 0, 0});
    expect_success(&call);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_act");
    TCase *act = tcase_create("act");
    ADD_REFUSALS(act, forward_refuses);
    ADD_REFUSALS(act, backward_refuses);
    ADD_REFUSALS(act, softmax_backward_refuses);
    tcase_add_test(act, in_place_is_accepted);
    suite_add_tcase(suite, act);
    return suite_run(suite);
}
