/* Every refusal of act's shares of a softmax along dim -2: the log sum exp of one, and what all shares' makes of it;
 * then the same of the backward's delta. */
#include "tests/refusal_act.h"
#include "tests/suite.h"

static const int64_t shape[3] = {2, 3, 8}, rows[3] = {2, 1, 8};

static void share_lse(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -2}};
    call_add(call, X, float32, 3, shape);
    call_add(call, SUMS, float32, 3, rows);
}

static void share_of_lse(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -2}};
    call_add(call, X, float32, 3, shape);
    call_add(call, LSE_ALL, float32, 3, rows);
    call_add(call, OUT, float32, 3, shape);
}

static void share_delta(call_case *call)
{
    call_softmax_backward(call);
    call_change(call, &(call_edit){ABSENT, OUT, 0, 0, 0});
    call_add(call, SUMS, float32, 3, rows);
}

static void share_of_delta(call_case *call)
{
    call_softmax_backward(call);
    call_add(call, DELTA_ALL, float32, 3, rows);
}

static const refusal share_lse_rows[] = {
    NEITHER(SUMS, "act_forward: o", "lse"),
    BOTH(OUT, "act_forward: o and lse"),
    BOTH(LSE_ALL, "act_forward: lse_all and lse"),
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, SUMS, kDLFloat, 64, 0}},
     "act_forward: lse has type float64; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, SUMS, 1, 3, 0}},
     "act_forward: lse has shape (2, 3, 8); it must be (2, 1, 8), as x, 1 along dim"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{RANK, SUMS, 0, 2, 0}},
     "act_forward: lse has shape (2, 1); it must be (2, 1, 8), as x, 1 along dim"},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, SUMS, 0, 0, 0}},
     "act_forward: lse has shape (2, 1, 8) with strides (0, 0, 1)" SHARED_ELEMENTS},
    OVERLAP(SUMS, X, 0, "act_forward: lse overlaps x"),
    WITHOUT_DATA(SUMS, "act_forward: lse has 16 elements"),
};

static const refusal share_of_lse_rows[] = {
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, LSE_ALL, kDLFloat, 16, 0}},
     "act_forward: lse_all has type float16; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, LSE_ALL, 1, 3, 0}},
     "act_forward: lse_all has shape (2, 3, 8); it must be (2, 1, 8), as x with 1 along dim"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, LSE_ALL, 0, 1, 0}},
     "act_forward: lse_all has shape (2,); it must be (2, 1, 8), as x with 1 along dim"},
    NEITHER(OUT, "act_forward: o", "lse"),
    OVERLAP(OUT, LSE_ALL, 0, "act_forward: o overlaps lse_all"),
    APART_FROM_FIRST(LSE_ALL, "act_forward: lse_all"),
};

static const refusal share_delta_rows[] = {
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_NONE, 0}},
     "act_backward: delta is given; it must be NULL but for softmax"},
    NEITHER(SUMS, "act_backward: grad_x", "delta"),
    BOTH(OUT, "act_backward: grad_x and delta"),
    BOTH(DELTA_ALL, "act_backward: delta_all and delta"),
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, SUMS, 2, 1, 0}},
     "act_backward: delta has shape (2, 1, 1); it must be (2, 1, 8), as grad_o, 1 along dim"},
    OVERLAP(SUMS, GRAD, 0, "act_backward: delta overlaps grad_o"),
};

static const refusal share_of_delta_rows[] = {
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_NONE, 0}},
     "act_backward: delta_all is given; it must be NULL but for softmax"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, DELTA_ALL, kDLFloat, 64, 0}},
     "act_backward: delta_all has type float64; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, DELTA_ALL, 0, 1, 0}},
     "act_backward: delta_all has shape (1, 1, 8); it must be (2, 1, 8), as grad_o with 1 along dim"},
};

REFUSAL_TEST(share_lse_refuses, share_lse, share_lse_rows)
REFUSAL_TEST(share_of_lse_refuses, share_of_lse, share_of_lse_rows)
REFUSAL_TEST(share_delta_refuses, share_delta, share_delta_rows)
REFUSAL_TEST(share_of_delta_refuses, share_of_delta, share_of_delta_rows)

int main(void)
{
    Suite *suite = suite_create("refusals_act_shares");
    TCase *act = tcase_create("act");
    ADD_REFUSALS(act, share_lse_refuses);
    ADD_REFUSALS(act, share_of_lse_refuses);
    ADD_REFUSALS(act, share_delta_refuses);
    ADD_REFUSALS(act, share_of_delta_refuses);
    suite_add_tcase(suite, act);
    return suite_run(suite);
}
