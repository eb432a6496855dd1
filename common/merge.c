/* attention_merge: its attribute, checks and canonical problem. */
#include "common/family.h"

const copes_attribute_info *const copes_merge_attribute_table[COPES_MERGE_ATTRIBUTES] = {
    COPES_ATTRIBUTE("base", COPES_ATTRIBUTE_ENUM, 1, 0, offsetof(copes_op, merge.base), -1, "e|2", "e",
                    "of the logarithms"),
};

static bool is_backward(const copes_call *call)
{
    return call->op->kind == COPES_ATTENTION_MERGE_BACKWARD;
}

/* The sizes S, B, N, H and E, of the tensors that have them all. */
typedef struct sizes {
    int64_t length[5];
} sizes;

static copes_status check_rank(const copes_call *call, int slot, int rank)
{
    const copes_tensor *tensor = call->in[slot];
    if (tensor->rank == rank)
        return COPES_OK;
    char text[COPES_SHAPE_TEXT];
    return copes_fail(COPES_ERROR_SHAPE, "%s: %s has shape %s; it must be %s", call->info->name, tensor->name,
                      copes_shape_text(tensor->rank, tensor->shape, text), call->info->in[slot]->shape);
}

/* Forward by o_shares; backward by grad_o, as o_shares may be absent, and lse_shares. */
static copes_status read_sizes(const copes_call *call, sizes *s)
{
    const copes_tensor *shares = call->in[COPES_MERGE_O_SHARES], *lse = call->in[COPES_MERGE_LSE_SHARES];
    const copes_tensor *grad_o = call->in[COPES_MERGE_GRAD_O];
    if (!is_backward(call)) {
        COPES_TRY(check_rank(call, COPES_MERGE_O_SHARES, 5));
        for (int i = 0; i < 5; i++)
            s->length[i] = shares->shape[i];
        return COPES_OK;
    }
    COPES_TRY(check_rank(call, COPES_MERGE_GRAD_O, 4));
    COPES_TRY(check_rank(call, COPES_MERGE_LSE_SHARES, 4));
    s->length[0] = lse->shape[0];
    for (int i = 0; i < 4; i++)
        s->length[i + 1] = grad_o->shape[i];
    return COPES_OK;
}

/* What the gradient of lse_shares needs, and nothing else does. */
static copes_status check_optional(copes_call *call, copes_dtype wide, const sizes *s)
{
    const copes_tensor *shares = call->in[COPES_MERGE_O_SHARES], *grad_lse = call->in[COPES_MERGE_GRAD_LSE];
    if (copes_present(shares)) {
        COPES_TRY(copes_check_dtype(call, shares, call->in[COPES_MERGE_GRAD_O]->dtype, "grad_o"));
        COPES_TRY(copes_check_shape(call, shares, 5, s->length, "(S, B, N, H, E) to go with grad_o and lse_shares"));
    }
    if (copes_present(grad_lse)) {
        COPES_TRY(copes_check_dtype(call, grad_lse, wide, ""));
        COPES_TRY(copes_check_shape(call, grad_lse, 3, s->length + 1, "(B, N, H) to go with grad_o"));
    }
    if (copes_present(call->out[COPES_MERGE_OUT_LSE]))
        return copes_require(call, shares, "o_shares", "grad_lse_shares needs the forward's");
    call->in[COPES_MERGE_O_SHARES] = call->in[COPES_MERGE_GRAD_LSE] = &copes_absent;
    return COPES_OK;
}

static void describe(copes_spec *spec, copes_dtype dtype, int rank, const int64_t *length)
{
    *spec = (copes_spec){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        spec->shape[i] = length[i];
}

static copes_status check(copes_call *call)
{
    const bool backward = is_backward(call);
    const copes_log_base base = call->op->merge.base;
    if (base != COPES_LOG_BASE_E && base != COPES_LOG_BASE_2)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: base is %d; it must be COPES_LOG_BASE_E (0) or COPES_LOG_BASE_2 (1)", call->info->name,
                          (int)base);
    const copes_tensor *lead = call->in[backward ? COPES_MERGE_GRAD_O : COPES_MERGE_O_SHARES];
    const copes_tensor *lse = call->in[COPES_MERGE_LSE_SHARES];
    COPES_TRY(copes_check_floating(call, lead));
    call->accumulate_double = lead->dtype == COPES_F64;
    const copes_dtype wide = call->accumulate_double ? COPES_F64 : COPES_F32;
    sizes s;
    COPES_TRY(read_sizes(call, &s));
    COPES_TRY(copes_check_dtype(call, lse, wide, ""));
    COPES_TRY(copes_check_shape(call, lse, 4, s.length,
                                backward ? "(S, B, N, H) to go with grad_o" : "(S, B, N, H) to go with o_shares"));
    if (backward)
        COPES_TRY(check_optional(call, wide, &s));
    const int shares = backward ? 0 : 1; /* an output that is of all shares has S */
    describe(&call->spec[COPES_MERGE_OUT], lead->dtype, 5 - shares, s.length + shares);
    describe(&call->spec[COPES_MERGE_OUT_LSE], wide, 4 - shares, s.length + shares);
    return COPES_OK;
}

static void plan(const copes_call *call, copes_problem *out)
{
    const bool backward = is_backward(call);
    const copes_spec *spec = &call->spec[COPES_MERGE_OUT];
    const int64_t *length = spec->shape + (backward ? 1 : 0);
    copes_merge_problem *p = &out->merge;
    *p = (copes_merge_problem){
        .base = call->op->merge.base,
        .backward = backward,
        .dtype = spec->dtype,
        .shares = call->in[COPES_MERGE_LSE_SHARES]->shape[0],
        .b = length[0],
        .n = length[1],
        .h = length[2],
        .e = length[3],
        .o_shares = copes_view_of(call->in[COPES_MERGE_O_SHARES]),
        .lse_shares = copes_view_of(call->in[COPES_MERGE_LSE_SHARES]),
        .row = copes_view_of(backward ? call->in[COPES_MERGE_GRAD_O] : call->out[COPES_MERGE_OUT]),
        .lse = copes_view_of(backward ? call->in[COPES_MERGE_GRAD_LSE] : call->out[COPES_MERGE_OUT_LSE]),
    };
    if (!backward)
        return;
    p->grad_o_shares = copes_view_of(call->out[COPES_MERGE_OUT]);
    p->grad_lse_shares = copes_view_of(call->out[COPES_MERGE_OUT_LSE]);
}

const copes_family copes_family_merge = {check, plan, NULL, NULL, offsetof(copes_op, merge.reserved)};
