/* The good calls that the tables of act spoil. */
#include "tests/refusal_act.h"

static const int64_t shape[3] = {2, 3, 8};

void call_act(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SILU}};
    call_add(call, X, float32, 3, shape);
    call_add(call, OUT, float32, 3, shape);
}

void call_act_backward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SILU}};
    call_add(call, X, float32, 3, shape);
    call_add(call, GRAD, float32, 3, shape);
    call_add(call, OUT, float32, 3, shape);
}

void call_softmax_backward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -2}};
    call_add(call, SAVED, float32, 3, shape);
    call_add(call, GRAD, float32, 3, shape);
    call_add(call, OUT, float32, 3, shape);
}
