/* The good calls that the tables of lrpe spoil. */
#include "tests/refusal_lrpe.h"

static const int64_t shape[4] = {2, 12, 3, 8}, theta[2] = {3, 4}, lse[3] = {2, 3, 8};

void call_rotate(call_case *call)
{
    call->op = (copes_op){.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SILU}};
    call_add(call, X, float32, 4, shape);
    call_add(call, THETA, float32, 2, theta);
    call_add(call, OUT, float32, 4, shape);
}

/* On a grid of 2 x 5 after a prefix of 1 and before a suffix of 1, with softmax over the sequence and its lse. */
void call_grid(call_case *call)
{
    call_rotate(call);
    call->op.lrpe = (copes_lrpe_attributes){.act = COPES_ACT_SOFTMAX,
                                            .dim = -3,
                                            .grid_rank = 2,
                                            .grid = {2, 5},
                                            .prefix = 1,
                                            .suffix = 1,
                                            .sections = {1, 3}};
    call_add(call, LSE, float32, 3, lse);
}

/* Positions of two dimensions, and a theta for each. */
void call_positions(call_case *call)
{
    static const int64_t positions[3] = {2, 2, 12}, each[3] = {2, 3, 4};
    call_rotate(call);
    call_add(call, THETA, float32, 3, each);
    call_add(call, POSITIONS, int32, 3, positions);
}

void call_offsets(call_case *call)
{
    call_rotate(call);
    call_add(call, OFFSETS, int32, 1, shape);
}

void call_cosine_backward(call_case *call)
{
    static const int64_t wide[2] = {1, 8}, doubled[4] = {2, 12, 3, 16};
    call->op = (copes_op){.kind = COPES_LRPE_BACKWARD,
                          .lrpe = {.variant = COPES_LRPE_COSINE, .act = COPES_ACT_SOFTMAX, .dim = -3}};
    call_add(call, X, float32, 4, shape);
    call_add(call, THETA, float32, 2, wide);
    call_add(call, GRAD, float32, 4, doubled);
    call_add(call, LSE_IN, float32, 3, lse);
    call_add(call, OUT, float32, 4, shape);
}

void call_learning(call_case *call)
{
    call_rotate(call);
    call->op.kind = COPES_LRPE_BACKWARD;
    call_add(call, POSITIONS, int32, 2, shape);
    call_add(call, GRAD, float32, 4, shape);
    call_add(call, GRAD_THETA, float32, 2, theta);
}
