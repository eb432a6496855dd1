/* The good calls that the tables of qk_norm_rope spoil. */
#include "tests/refusal_qk.h"

static const DLDataType int64 = {kDLInt, 64, 1}, float8 = {FLOAT8, 8, 1};
static const int64_t queries[4] = {2, 12, 4, 8}, keys[4] = {2, 12, 2, 8}, values[4] = {2, 12, 2, 6}, theta[2] = {1, 4},
                     row[1] = {8}, rows[2] = {2, 8}, key_places[4] = {4, 5, 2, 8}, value_places[4] = {4, 5, 2, 6};

/* What both directions have. */
static void add_inputs(call_case *call)
{
    call_add(call, Q, float32, 4, queries);
    call_add(call, K, float32, 4, keys);
    call_add(call, THETA, float32, 2, theta);
    call_add(call, WQ, float32, 1, row);
    call_add(call, WK, float32, 2, rows);
    call_add(call, Q_OUT, float32, 4, queries);
    call_add(call, K_OUT, float32, 4, keys);
}

void call_qk(call_case *call)
{
    call->op = (copes_op){.kind = COPES_QK_NORM_ROPE_FORWARD};
    add_inputs(call);
    call_add(call, V, float32, 4, values);
    call_add(call, SLOTS, int64, 2, queries);
    call_add(call, K_CACHE, float32, 4, key_places);
    call_add(call, V_CACHE, float32, 4, value_places);
}

void call_qk_float8(call_case *call)
{
    static const int64_t one = 1;
    call_qk(call);
    call_add(call, K_CACHE, float8, 4, key_places);
    call_add(call, V_CACHE, float8, 4, value_places);
    call_add(call, K_SCALE, float32, 1, rows);
    call_add(call, V_SCALE, float32, 1, &one);
}

void call_qk_backward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_QK_NORM_ROPE_BACKWARD};
    add_inputs(call);
    call_add(call, GRAD_Q_OUT, float32, 4, queries);
    call_add(call, GRAD_K_OUT, float32, 4, keys);
    call_add(call, GRAD_WQ, float32, 1, row);
    call_add(call, GRAD_WK, float32, 2, rows);
}

void call_qk_rope_backward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_QK_NORM_ROPE_BACKWARD};
    call_add(call, THETA, float32, 2, theta);
    call_add(call, GRAD_Q_OUT, float32, 4, queries);
    call_add(call, Q_OUT, float32, 4, queries);
}
