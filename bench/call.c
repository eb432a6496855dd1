/* The tensors of each operator. */
#include "bench/call.h"

#include <string.h>

/* Of one tensor, so that the sums of all, twice, fit 63 bits. */
static const size_t MOST_BYTES = SIZE_MAX >> 8;

bench_tensor *bench_call_add(bench_call *call, check_type type, int rank, const int64_t *shape)
{
    bench_tensor *tensor = &call->tensors[call->count++];
    *tensor = (bench_tensor){.type = type};
    for (int i = 0; i < rank; i++)
        tensor->shape[i] = shape[i];
    tensor->view =
        (DLTensor){.device = call->device, .ndim = rank, .dtype = check_type_of(type)->dlpack, .shape = tensor->shape};
    return tensor;
}

DLTensor *bench_call_output(bench_call *call, check_type type)
{
    return &bench_call_add(call, type, 0, NULL)->view;
}

static void store_heads_first(bench_tensor *tensor)
{
    const int64_t *shape = tensor->shape;
    const int64_t strides[4] = {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1};
    memcpy(tensor->strides, strides, sizeof strides);
    tensor->view.strides = tensor->strides;
}

static check_type wide_of(const bench_case *c)
{
    return c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32;
}

/* What the second pass of a softmax in shares is given. Where a first pass comes before, it makes them. */
static DLTensor *add_sums(bench_call *call, const bench_case *c, int rank, const int64_t *shape)
{
    if (c->pass != BENCH_PASS_SECOND && c->pass != BENCH_PASS_EACH)
        return NULL;
    bench_tensor *added = bench_call_add(call, wide_of(c), rank, shape);
    added->fill = c->backward ? BENCH_RANDOM : BENCH_LSE;
    return &added->view;
}

/* Bits of any value. */
static DLTensor *add_mask(bench_call *call, const bench_case *c)
{
    const int64_t shape[4] = {c->batch, c->head, c->n, (c->dim + 7) / 8};
    bench_tensor *added = bench_call_add(call, CHECK_BYTE, 4, shape);
    added->fill = BENCH_BITS;
    return &added->view;
}

static void plan_act(bench_call *call, const bench_case *c)
{
    const int64_t shape[4] = {c->batch, c->head, c->n, c->dim};
    const int64_t sums[4] = {c->batch, c->head, c->over_tokens ? 1 : c->n, c->over_tokens ? c->dim : 1};
    call->op = (copes_op){.kind = c->backward ? COPES_ACT_BACKWARD : COPES_ACT_FORWARD,
                          .act = {.act = c->act, .dim = c->over_tokens ? -2 : -1}};
    if (!c->backward) {
        call->args.act_forward.x = &bench_call_add(call, c->type, 4, shape)->view;
        call->args.act_forward.lse_all = add_sums(call, c, 4, sums);
        return;
    }
    if (c->mask)
        call->args.act_backward.mask = add_mask(call, c);
    else if (c->act == COPES_ACT_SOFTMAX || c->from_output)
        call->args.act_backward.o = &bench_call_add(call, c->type, 4, shape)->view;
    else if (c->act != COPES_ACT_NONE)
        call->args.act_backward.x = &bench_call_add(call, c->type, 4, shape)->view;
    call->args.act_backward.grad_o = &bench_call_add(call, c->type, 4, shape)->view;
    call->args.act_backward.delta_all = add_sums(call, c, 4, sums);
}

static void plan_lrpe_tensors(bench_call *call, const bench_case *c)
{
    const bool cosine = c->op != BENCH_ROTATE;
    const int64_t angles = cosine ? c->dim : bench_turned(c) / 2, m = c->grid_rank > 0 ? c->grid_rank : 1;
    const int64_t x[4] = {c->batch, call->tokens, c->head, c->dim};
    const int64_t o[4] = {c->batch, call->tokens, c->head, cosine ? 2 * c->dim : c->dim};
    const int64_t theta[2] = {c->one_theta ? 1 : c->head, (angles + m - 1) / m}, lse[3] = {c->batch, c->head, c->dim};
    if (!c->backward)
        call->args.lrpe_forward.x = &bench_call_add(call, c->type, 4, x)->view;
    if (c->backward && (c->act != COPES_ACT_NONE || c->grad_theta))
        call->args.lrpe_backward.x = &bench_call_add(call, c->type, 4, x)->view;
    if (c->backward)
        call->args.lrpe_backward.grad_o = &bench_call_add(call, c->type, 4, o)->view;
    for (int i = 0; i < call->count && c->op == BENCH_MD_COSINE; i++)
        store_heads_first(&call->tensors[i]);
    bench_tensor *added = bench_call_add(call, c->type == CHECK_F64 ? CHECK_F32 : c->type, 2, theta);
    added->fill = BENCH_THETA;
    *(c->backward ? &call->args.lrpe_backward.theta : &call->args.lrpe_forward.theta) = &added->view;
    if (c->positions) {
        added = bench_call_add(call, CHECK_I64, 2, x);
        added->fill = BENCH_POSITIONS;
        *(c->backward ? &call->args.lrpe_backward.positions : &call->args.lrpe_forward.positions) = &added->view;
    }
    DLTensor *const all = add_sums(call, c, 3, lse);
    *(c->backward ? &call->args.lrpe_backward.delta_all : &call->args.lrpe_forward.lse_all) = all;
    if (!c->backward || !c->over_tokens)
        return;
    added = bench_call_add(call, wide_of(c), 3, lse);
    added->fill = BENCH_LSE;
    call->args.lrpe_backward.lse = &added->view;
}

static void plan_lrpe(bench_call *call, const bench_case *c)
{
    call->op = (copes_op){.kind = c->backward ? COPES_LRPE_BACKWARD : COPES_LRPE_FORWARD};
    call->op.lrpe.variant = c->op == BENCH_ROTATE ? COPES_LRPE_ROTATE : COPES_LRPE_COSINE;
    call->op.lrpe.pairing = c->interleaved ? COPES_LRPE_INTERLEAVED : COPES_LRPE_HALF;
    call->op.lrpe.rotary_dim = c->rotary_dim;
    call->op.lrpe.act = c->act;
    call->op.lrpe.dim = c->over_tokens ? -3 : -1;
    call->op.lrpe.prefix = c->prefix;
    call->op.lrpe.grid_rank = c->grid_rank;
    memcpy(call->op.lrpe.grid, c->grid, sizeof c->grid);
    plan_lrpe_tensors(call, c);
}

/* Multiply-adds of the algorithm that forms neither keys nor values: q once, the scores' inner products with bk and
 * the sums of bv, and one each to apply ak and av. */
static double tpa_multiply_adds(const bench_case *c)
{
    const double batch = (double)c->batch, heads = (double)c->head, d = (double)c->dim;
    const double rq = (double)c->ranks[0], rk = (double)c->ranks[1], rv = (double)c->ranks[2];
    return batch * heads * (rq * d + (double)c->n * (rk * (d + 1) + rv * (1 + d)));
}

static void plan_tpa(bench_call *call, const bench_case *c)
{
    const int64_t rq = c->ranks[0], rk = c->ranks[1], rv = c->ranks[2];
    const int64_t aq[4] = {c->batch, 1, c->head, rq}, bq[4] = {c->batch, 1, rq, c->dim};
    const int64_t ak[4] = {c->batch, c->n, c->head, rk}, bk[4] = {c->batch, c->n, rk, c->dim};
    const int64_t av[4] = {c->batch, c->n, c->head, rv}, bv[4] = {c->batch, c->n, rv, c->dim};
    call->op = (copes_op){.kind = COPES_TPA_DECODE};
    call->args.tpa_decode.aq = &bench_call_add(call, c->type, 4, aq)->view;
    call->args.tpa_decode.bq = &bench_call_add(call, c->type, 4, bq)->view;
    call->args.tpa_decode.ak = &bench_call_add(call, c->type, 4, ak)->view;
    call->args.tpa_decode.bk = &bench_call_add(call, c->type, 4, bk)->view;
    call->args.tpa_decode.av = &bench_call_add(call, c->type, 4, av)->view;
    call->args.tpa_decode.bv = &bench_call_add(call, c->type, 4, bv)->view;
    call->multiply_adds = tpa_multiply_adds(c);
}

/* The gradient is of lse, too, as attention in shares has it. */
static void plan_merge(bench_call *call, const bench_case *c)
{
    const int64_t shape[5] = {c->shares, c->batch, c->n, c->head, c->dim};
    const check_type wide = wide_of(c);
    copes_attention_merge_backward_slots *args = &call->args.attention_merge_backward;
    call->op.kind = c->backward ? COPES_ATTENTION_MERGE_BACKWARD : COPES_ATTENTION_MERGE_FORWARD;
    args->o_shares = &bench_call_add(call, c->type, 5, shape)->view;
    args->lse_shares = &bench_call_add(call, wide, 4, shape)->view;
    if (c->backward) {
        args->grad_o = &bench_call_add(call, c->type, 4, shape + 1)->view;
        args->grad_lse = &bench_call_add(call, wide, 3, shape + 1)->view;
    }
    call->args.out[0] = bench_call_output(call, c->type);
    call->args.out[1] = bench_call_output(call, wide);
}

/* The bytes of every tensor and of all. Each fits 63 bits, for the library has looked at them; the sum may not. */
static copes_status count_bytes(bench_call *call)
{
    for (int i = 0; i < call->count; i++) {
        bench_tensor *tensor = &call->tensors[i];
        const int64_t size = check_type_of(tensor->type)->size, *shape = tensor->shape;
        tensor->bytes = (size_t)size;
        for (int j = 0; j < tensor->view.ndim; j++)
            tensor->bytes *= (size_t)shape[j];
        if (tensor->bytes > MOST_BYTES)
            return COPES_ERROR_SIZE;
        call->moved += tensor->touched_rows > 0 ? tensor->touched_rows * shape[tensor->view.ndim - 1] * size
                                                : (int64_t)tensor->bytes;
        call->held += tensor->replaces == NULL ? (int64_t)tensor->bytes : 0;
        /* A first pass reads all but the result, and writes one of what the second is given. */
        if (call->first_too && &tensor->view != call->args.out[0])
            call->moved += (int64_t)tensor->bytes;
    }
    return COPES_OK;
}

static const copes_op_info *info_of(copes_kind kind)
{
    size_t i = 0;
    while (copes_op_at(i)->kind != kind)
        i++;
    return copes_op_at(i);
}

/* Outputs that may replace an input do. */
static void put_in_place(bench_call *call)
{
    const copes_op_info *info = info_of(call->op.kind);
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        if (call->args.out[i] != NULL && info->out[i]->replaces > 0)
            ((bench_tensor *)call->args.out[i])->replaces = call->args.in[info->out[i]->replaces - 1];
}

/* The slot of a share's sums. */
static DLTensor **sums_of(copes_args *args, const bench_case *c)
{
    if (c->op == BENCH_ACT)
        return c->backward ? &args->act_backward.delta : &args->act_forward.lse;
    return c->backward ? &args->lrpe_backward.delta : &args->lrpe_forward.lse;
}

/* The slot of the sums of all shares. */
static DLTensor **sums_of_all(copes_args *args, const bench_case *c)
{
    if (c->op == BENCH_ACT)
        return c->backward ? &args->act_backward.delta_all : &args->act_forward.lse_all;
    return c->backward ? &args->lrpe_backward.delta_all : &args->lrpe_forward.lse_all;
}

/* The first pass of a call of the second: it makes the sums that the second is given. */
static void add_first_pass(bench_call *call, const bench_case *c)
{
    call->first_too = true;
    call->first = call->args;
    *sums_of(&call->first, c) = *sums_of_all(&call->first, c);
    *sums_of_all(&call->first, c) = NULL;
}

/* Outputs of one tensor, and theta's gradient; or a share's sums in their place. */
static void add_outputs(bench_call *call, const bench_case *c)
{
    if (c->pass == BENCH_PASS_FIRST) {
        *sums_of(&call->args, c) = bench_call_output(call, wide_of(c));
        return;
    }
    if (c->pass == BENCH_PASS_EACH)
        add_first_pass(call, c);
    call->args.out[0] = bench_call_output(call, c->type);
    if (c->grad_theta)
        call->args.lrpe_backward.grad_theta = bench_call_output(call, wide_of(c));
    if (c->mask && !c->backward)
        call->args.act_forward.mask = bench_call_output(call, CHECK_BYTE);
}

/* Outputs are described by the library. */
static copes_status plan_outputs(bench_call *call, const bench_case *c)
{
    const copes_status status = copes_infer(&call->op, &call->args);
    if (status == COPES_OK && c->op == BENCH_MD_COSINE)
        store_heads_first((bench_tensor *)call->args.out[0]);
    if (c->in_place)
        put_in_place(call);
    return status;
}

copes_status bench_call_plan(bench_call *call, const bench_case *c, copes_context *context, DLDevice device)
{
    *call = (bench_call){.context = context, .device = device, .tokens = bench_case_tokens(c)};
    if (c->op == BENCH_ACT)
        plan_act(call, c);
    else if (c->op == BENCH_TPA)
        plan_tpa(call, c);
    else if (c->op == BENCH_QK)
        bench_call_plan_qk(call, c);
    else if (c->op == BENCH_MERGE)
        plan_merge(call, c);
    else
        plan_lrpe(call, c);
    if (c->op != BENCH_QK && c->op != BENCH_MERGE)
        add_outputs(call, c);
    copes_status status = plan_outputs(call, c);
    if (status == COPES_OK)
        status = copes_workspace_size(context, &call->op, &call->args, &call->workspace_size);
    size_t of_first = 0;
    if (status == COPES_OK && call->first_too)
        status = copes_workspace_size(context, &call->op, &call->first, &of_first);
    if (call->workspace_size < of_first)
        call->workspace_size = of_first;
    return status == COPES_OK ? count_bytes(call) : status;
}

int64_t bench_call_memory(const bench_call *call)
{
    return call->held + (int64_t)call->workspace_size;
}
