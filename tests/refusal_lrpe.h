/* The good calls that the tables of lrpe spoil: x is (2, 12, 3, 8), theta (3, 4). */
#ifndef COPES_TESTS_REFUSAL_LRPE_H
#define COPES_TESTS_REFUSAL_LRPE_H

#include "tests/refusal.h"

/* rotate with silu. */
void call_rotate(call_case *call);

/* On a grid of 2 x 5 after a prefix of 1 and before a suffix of 1, with softmax over the sequence and its lse. */
void call_grid(call_case *call);

#endif
