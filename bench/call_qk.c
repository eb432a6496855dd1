/* The tensors of qk_norm_rope: queries and keys as a model's projection gives them, and its paged cache. */
#include "bench/call.h"

static DLTensor *add(bench_call *call, check_type type, int rank, const int64_t *shape, bench_fill fill)
{
    bench_tensor *tensor = bench_call_add(call, type, rank, shape);
    tensor->fill = fill;
    return &tensor->view;
}

/* The weights of a norm: a row, or with a norm over all heads one for each. */
static DLTensor *add_weight(bench_call *call, const bench_case *c, int64_t heads)
{
    const bool each = c->norm == BENCH_NORM_ALL_HEADS;
    const int64_t shape[2] = {each ? heads : c->dim, c->dim};
    return add(call, c->type, each ? 2 : 1, shape, BENCH_RANDOM);
}

/* Of each sequence's tokens, in pages of its own. The call writes no more of it than its tokens. */
static DLTensor *add_cache(bench_call *call, const bench_case *c)
{
    const int64_t pages = (c->n + BENCH_PAGE - 1) / BENCH_PAGE;
    const int64_t shape[4] = {c->batch * pages, BENCH_PAGE, c->kv_head, c->dim};
    bench_tensor *tensor = bench_call_add(call, bench_cache_type(c), 4, shape);
    tensor->touched_rows = c->batch * c->n * c->kv_head;
    return &tensor->view;
}

/* What both directions read beside the queries and the keys. */
static void plan_shared(bench_call *call, const bench_case *c)
{
    const int64_t theta[2] = {1, bench_turned(c) / 2}, tokens[2] = {c->batch, c->n};
    copes_qk_norm_rope_forward_slots *args = &call->args.qk_norm_rope_forward;
    args->theta = add(call, CHECK_F32, 2, theta, BENCH_THETA);
    if (c->positions)
        args->positions = add(call, CHECK_I64, 2, tokens, BENCH_POSITIONS);
    if (c->norm == BENCH_NORM_NONE)
        return;
    args->wq = add_weight(call, c, c->head);
    args->wk = add_weight(call, c, c->kv_head);
}

/* With a cache keys go there alone, as attention reads them from it. */
static void plan_forward(bench_call *call, const bench_case *c)
{
    const int64_t q[4] = {c->batch, c->n, c->head, c->dim}, k[4] = {c->batch, c->n, c->kv_head, c->dim};
    copes_qk_norm_rope_forward_slots *args = &call->args.qk_norm_rope_forward;
    args->q = add(call, c->type, 4, q, BENCH_RANDOM);
    args->k = add(call, c->type, 4, k, BENCH_RANDOM);
    plan_shared(call, c);
    if (c->cache == BENCH_CACHE_NONE) {
        args->q_out = bench_call_output(call, c->type);
        args->k_out = bench_call_output(call, c->type);
        return;
    }
    args->v = add(call, c->type, 4, k, BENCH_RANDOM);
    args->slots = add(call, CHECK_I64, 2, q, BENCH_SLOTS);
    args->q_out = bench_call_output(call, c->type);
    args->k_cache = add_cache(call, c);
    args->v_cache = add_cache(call, c);
}

static void plan_backward(bench_call *call, const bench_case *c)
{
    const int64_t q[4] = {c->batch, c->n, c->head, c->dim}, k[4] = {c->batch, c->n, c->kv_head, c->dim};
    const check_type wide = c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32;
    copes_qk_norm_rope_backward_slots *args = &call->args.qk_norm_rope_backward;
    if (c->norm != BENCH_NORM_NONE) {
        args->q = add(call, c->type, 4, q, BENCH_RANDOM);
        args->k = add(call, c->type, 4, k, BENCH_RANDOM);
    }
    plan_shared(call, c);
    args->grad_q_out = add(call, c->type, 4, q, BENCH_RANDOM);
    args->grad_k_out = add(call, c->type, 4, k, BENCH_RANDOM);
    args->grad_q = bench_call_output(call, c->type);
    args->grad_k = bench_call_output(call, c->type);
    if (!c->grad_weights)
        return;
    args->grad_wq = bench_call_output(call, wide);
    args->grad_wk = bench_call_output(call, wide);
}

void bench_call_plan_qk(bench_call *call, const bench_case *c)
{
    call->op = (copes_op){.kind = c->backward ? COPES_QK_NORM_ROPE_BACKWARD : COPES_QK_NORM_ROPE_FORWARD};
    call->op.qk.pairing = c->interleaved ? COPES_LRPE_INTERLEAVED : COPES_LRPE_HALF;
    call->op.qk.rotary_dim = c->rotary_dim;
    call->op.qk.norm_over = c->norm == BENCH_NORM_ALL_HEADS ? COPES_QK_NORM_ALL_HEADS : COPES_QK_NORM_HEAD;
    if (c->backward)
        plan_backward(call, c);
    else
        plan_forward(call, c);
}
