/* The good calls that the tables of qk_norm_rope spoil: 4 heads of queries and 2 of keys, (2, 12, H, 8), and theta (1, 4). */
#ifndef COPES_TESTS_REFUSAL_QK_H
#define COPES_TESTS_REFUSAL_QK_H

#include "tests/refusal.h"

enum {
    Q = COPES_QK_Q,
    K = COPES_QK_K,
    THETA = COPES_QK_THETA,
    WQ = COPES_QK_WQ,
    WK = COPES_QK_WK,
    V = COPES_QK_V,
    SLOTS = COPES_QK_SLOTS,
    K_SCALE = COPES_QK_K_SCALE,
    V_SCALE = COPES_QK_V_SCALE,
    GRAD_Q_OUT = COPES_QK_GRAD_Q_OUT,
    GRAD_K_OUT = COPES_QK_GRAD_K_OUT,
    Q_OUT = OUT + COPES_QK_Q_OUT,
    K_OUT = OUT + COPES_QK_K_OUT,
    K_CACHE = OUT + COPES_QK_K_CACHE,
    V_CACHE = OUT + COPES_QK_V_CACHE,
    GRAD_WQ = OUT + COPES_QK_GRAD_WQ,
    GRAD_WK = OUT + COPES_QK_GRAD_WK
};
enum { FLOAT8 = 10, FLOAT8_E5M2 = 12 }; /* DLPack's codes, which its headers may be too old for */
#define AT(field) offsetof(copes_op, qk.field)

/* Queries with a row of weights, keys with one for each head, values (2, 12, 2, 6), and float32 caches of 4 blocks of 5. */
void call_qk(call_case *call);

/* The same with float8 caches, a scale for each head of keys, and one for all values. */
void call_qk_float8(call_case *call);

/* The backward of queries and keys, with both weights' gradients. */
void call_qk_backward(call_case *call);

/* The backward of queries without a norm. */
void call_qk_rope_backward(call_case *call);

#endif
