/* The good calls that the tables of act spoil: x is (2, 3, 8). */
#ifndef COPES_TESTS_REFUSAL_ACT_H
#define COPES_TESTS_REFUSAL_ACT_H

#include "tests/refusal.h"

enum {
    X = COPES_ACT_X,
    GRAD = COPES_ACT_GRAD_O,
    SAVED = COPES_ACT_O,
    MASK = COPES_ACT_MASK,
    LSE_ALL = COPES_ACT_LSE_ALL,
    DELTA_ALL = COPES_ACT_DELTA_ALL,
    OUT_MASK = OUT + COPES_ACT_OUT_MASK,
    SUMS = OUT + COPES_ACT_OUT_LSE /* lse, or delta */
};
#define ACT offsetof(copes_op, act.act)
#define DIM offsetof(copes_op, act.dim)

/* silu. */
void call_act(call_case *call);

/* Its backward, from x. */
void call_act_backward(call_case *call);

/* The backward of softmax along dim -2, from o. */
void call_softmax_backward(call_case *call);

#endif
