/* The good calls that the tables of lrpe spoil: x is (2, 12, 3, 8), theta (3, 4). */
#ifndef COPES_TESTS_REFUSAL_LRPE_H
#define COPES_TESTS_REFUSAL_LRPE_H

#include "tests/refusal.h"

enum {
    X = COPES_LRPE_X,
    THETA = COPES_LRPE_THETA,
    GRAD = COPES_LRPE_GRAD_O,
    LSE_IN = COPES_LRPE_LSE,
    POSITIONS = COPES_LRPE_POSITIONS,
    OFFSETS = COPES_LRPE_OFFSETS,
    LSE_ALL = COPES_LRPE_LSE_ALL,
    DELTA_ALL = COPES_LRPE_DELTA_ALL,
    LSE = OUT + COPES_LRPE_OUT_LSE,
    GRAD_THETA = OUT + COPES_LRPE_GRAD_THETA,
    DELTA = OUT + COPES_LRPE_DELTA
};
#define AT(field) offsetof(copes_op, lrpe.field)

/* rotate with silu. */
void call_rotate(call_case *call);

/* On a grid of 2 x 5 after a prefix of 1 and before a suffix of 1, with softmax over the sequence and its lse. */
void call_grid(call_case *call);

/* rotate with silu, by int32 positions of two dimensions and a theta for each of them, (2, 3, 4). */
void call_positions(call_case *call);

/* rotate with silu on a line, and an int32 offset for each batch entry. */
void call_offsets(call_case *call);

/* The backward of cosine with softmax over the sequence, from its lse. */
void call_cosine_backward(call_case *call);

/* The backward of rotate with silu, by int32 positions (2, 12), with grad_theta. */
void call_learning(call_case *call);

#endif
