/* qk_norm_rope: its attributes, and what inputs and outputs must be. Its rotations are checked as lrpe's; qk_plan.c makes the
 * problem. */
#include "common/qk.h"

#include <math.h>

const copes_attribute_info *const copes_qk_attribute_table[COPES_QK_ATTRIBUTES] = {
    COPES_ATTRIBUTE("pairing", COPES_ATTRIBUTE_ENUM, 1, 0, offsetof(copes_op, qk.pairing), -1, "half|interleaved",
                    "half", "pair k is features (k, k + rotary_dim / 2) or (2k, 2k + 1)"),
    COPES_ROTATION_ATTRIBUTES(qk),
    COPES_ATTRIBUTE("eps", COPES_ATTRIBUTE_DOUBLE, 1, 0, offsetof(copes_op, qk.eps), -1, NULL, "1e-6",
                    "added to the mean of squares"),
    COPES_ATTRIBUTE("weight_offset", COPES_ATTRIBUTE_DOUBLE, 1, 0, offsetof(copes_op, qk.weight_offset), -1, NULL, "0",
                    "added to weights"),
    COPES_ATTRIBUTE("norm_over", COPES_ATTRIBUTE_ENUM, 1, 0, offsetof(copes_op, qk.norm_over), -1, "head|all_heads",
                    "head", "what the mean of squares is over"),
    COPES_ATTRIBUTE("round_between", COPES_ATTRIBUTE_BOOL, 1, 0, offsetof(copes_op, qk.round_between), -1, NULL, "0",
                    "round the norm's result to the type before it turns"),
};

void copes_qk_rotation(const copes_call *call, int side, copes_op *op, copes_call *rotation)
{
    const copes_qk_attributes *attributes = &call->op->qk;
    const int from = copes_qk_source(call, side);
    *op = (copes_op){.kind = call->info->backward ? COPES_LRPE_BACKWARD : COPES_LRPE_FORWARD,
                     .lrpe = {.pairing = attributes->pairing,
                              .grid_rank = attributes->grid_rank,
                              .pad_theta = attributes->pad_theta,
                              .prefix = attributes->prefix,
                              .suffix = attributes->suffix,
                              .rotary_dim = attributes->rotary_dim,
                              .rotary_begin = attributes->rotary_begin,
                              .amplitude = attributes->amplitude,
                              .inverse = attributes->inverse}};
    for (int j = 0; j < COPES_MAX_GRID; j++) {
        op->lrpe.grid[j] = attributes->grid[j];
        op->lrpe.offset[j] = attributes->offset[j];
        op->lrpe.sections[j] = attributes->sections[j];
    }
    *rotation = (copes_call){.op = op, .info = call->info, .infers = true};
    copes_call_clear(rotation);
    rotation->in[call->info->backward ? COPES_LRPE_GRAD_O : COPES_LRPE_X] = call->in[from];
    rotation->in[COPES_LRPE_THETA] = call->in[COPES_QK_THETA];
    rotation->in[COPES_LRPE_POSITIONS] = call->in[COPES_QK_POSITIONS];
    rotation->in[COPES_LRPE_OFFSETS] = call->in[COPES_QK_OFFSETS];
    rotation->out[COPES_LRPE_OUT] = call->out[COPES_QK_Q_OUT + side];
}

static copes_status check_attributes(const copes_call *call)
{
    const copes_qk_attributes *attributes = &call->op->qk;
    const char *op = call->info->name;
    if (!(attributes->eps >= 0) || !isfinite((float)attributes->eps) ||
        (attributes->eps != 0 && (float)attributes->eps == 0))
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: eps is %g; it must be positive and finite in float32, or 0 for 1e-6", op,
                          attributes->eps);
    if (!isfinite((float)attributes->weight_offset))
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: weight_offset is %g; it must be finite in float32", op,
                          attributes->weight_offset);
    if (attributes->norm_over != COPES_QK_NORM_HEAD && attributes->norm_over != COPES_QK_NORM_ALL_HEADS)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: norm_over is %d; it must be COPES_QK_NORM_HEAD (0) or COPES_QK_NORM_ALL_HEADS (1)", op,
                          (int)attributes->norm_over);
    if (attributes->round_between != 0 && attributes->round_between != 1)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: round_between is %d; it must be 0 or 1", op,
                          attributes->round_between);
    return COPES_OK;
}

/* An input that is there without the one that it is for. */
static copes_status check_absent(const copes_call *call, const copes_tensor *tensor, const char *without)
{
    if (!copes_present(tensor))
        return COPES_OK;
    return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: %s is given; without %s it must be NULL", call->info->name,
                      tensor->name, without);
}

/* The tensor that a side turns: (B, N, heads, D), of the same batch and tokens as q's. */
static copes_status check_source(const copes_call *call, int side)
{
    const copes_tensor *from = call->in[copes_qk_source(call, side)], *q = call->in[copes_qk_source(call, 0)];
    COPES_TRY(copes_check_floating(call, from));
    if (from->rank != 4) {
        char text[COPES_SHAPE_TEXT];
        return copes_fail(COPES_ERROR_SHAPE, "%s: %s has shape %s; it must be (B, N, %s, D)", call->info->name,
                          from->name, copes_shape_text(from->rank, from->shape, text), side == 0 ? "H" : "Hk");
    }
    if (side == 0)
        return COPES_OK;
    const int64_t wanted[4] = {q->shape[0], q->shape[1], from->shape[2], q->shape[3]};
    COPES_TRY(copes_check_dtype(call, from, q->dtype, q->name));
    return copes_check_shape(call, from, 4, wanted, "to go with the queries");
}

/* Angles are the same for all heads, or of each of as many as q and k both have. */
static copes_status check_rotation(copes_call *call, int side)
{
    copes_op op;
    copes_call rotation;
    copes_qk_rotation(call, side, &op, &rotation);
    COPES_TRY(copes_family_lrpe.check(&rotation));
    call->spec[COPES_QK_Q_OUT + side] = rotation.spec[COPES_LRPE_OUT];
    if (side == 0) {
        call->lrpe = rotation.lrpe;
        call->accumulate_double = rotation.accumulate_double;
    }
    return COPES_OK;
}

/* (D) or (heads, D). */
static copes_status check_weight(copes_call *call, int side)
{
    const copes_tensor *from = call->in[copes_qk_source(call, side)], *weight = call->in[COPES_QK_WQ + side];
    const copes_tensor *learned = call->out[COPES_QK_GRAD_WQ + side];
    const int64_t heads = from->shape[2], d = from->shape[3];
    if (!copes_present(weight))
        return call->info->backward ? check_absent(call, learned, side == 0 ? "wq" : "wk") : COPES_OK;
    if (weight->dtype != from->dtype && weight->dtype != COPES_F32)
        return copes_fail(COPES_ERROR_DTYPE, "%s: %s has type %s; it must be %s, as %s, or float32", call->info->name,
                          weight->name, copes_dtype_name(weight->dtype), copes_dtype_name(from->dtype), from->name);
    const bool each = weight->rank == 2;
    if (weight->rank < 1 || weight->rank > 2 || weight->shape[weight->rank - 1] != d ||
        (each && weight->shape[0] != heads)) {
        char text[COPES_SHAPE_TEXT];
        return copes_fail(COPES_ERROR_SHAPE, "%s: %s has shape %s; it must be (%lld) or (%lld, %lld)", call->info->name,
                          weight->name, copes_shape_text(weight->rank, weight->shape, text), (long long)d,
                          (long long)heads, (long long)d);
    }
    if (!call->info->backward)
        return COPES_OK;
    const copes_tensor *x = call->in[COPES_QK_Q + side];
    COPES_TRY(copes_require(call, x, side == 0 ? "q" : "k", "the backward of a norm needs the forward's input"));
    COPES_TRY(copes_check_dtype(call, x, from->dtype, from->name));
    COPES_TRY(copes_check_shape(call, x, 4, from->shape, "as the forward's input"));
    call->spec[COPES_QK_GRAD_WQ + side] = (copes_spec){.dtype = call->accumulate_double ? COPES_F64 : COPES_F32,
                                                       .rank = weight->rank,
                                                       .shape = {weight->shape[0], each ? d : 0}};
    return COPES_OK;
}

static copes_status check_side(copes_call *call, int side)
{
    COPES_TRY(check_source(call, side));
    COPES_TRY(check_rotation(call, side));
    return check_weight(call, side);
}

/* Without k nothing of it may be there. */
static copes_status check_no_keys(const copes_call *call)
{
    const char *k = call->info->backward ? "grad_k_out" : "k";
    COPES_TRY(check_absent(call, call->in[COPES_QK_WK], k));
    COPES_TRY(check_absent(call, call->out[COPES_QK_K_OUT], k));
    if (call->info->backward) {
        COPES_TRY(check_absent(call, call->in[COPES_QK_K], k));
        return check_absent(call, call->out[COPES_QK_GRAD_WK], k);
    }
    return check_absent(call, call->out[COPES_QK_K_CACHE], k);
}

static copes_status check_backward(copes_call *call)
{
    const copes_tensor *grad_k = call->in[COPES_QK_GRAD_K_OUT];
    COPES_TRY(check_side(call, 0));
    if (!copes_present(call->in[COPES_QK_WQ])) /* only a norm's backward reads it */
        call->in[COPES_QK_Q] = &copes_absent;
    if (!copes_present(grad_k))
        return check_no_keys(call);
    COPES_TRY(check_side(call, 1));
    if (!copes_present(call->in[COPES_QK_WK]))
        call->in[COPES_QK_K] = &copes_absent;
    return copes_require(call, call->out[COPES_QK_K_OUT], "grad_k", "grad_k_out asks for it");
}

static copes_status check_forward(copes_call *call)
{
    COPES_TRY(check_side(call, 0));
    if (!copes_present(call->in[COPES_QK_K]))
        COPES_TRY(check_no_keys(call));
    else
        COPES_TRY(check_side(call, 1));
    if (copes_present(call->in[COPES_QK_K]) && !copes_present(call->out[COPES_QK_K_OUT]) &&
        !copes_present(call->out[COPES_QK_K_CACHE]))
        return copes_fail(COPES_ERROR_NULL, "%s: k_out and k_cache are NULL; with k one of them must be a tensor",
                          call->info->name);
    return copes_qk_check_caches(call);
}

static copes_status check(copes_call *call)
{
    COPES_TRY(check_attributes(call));
    return call->info->backward ? check_backward(call) : check_forward(call);
}

#define WEIGHT_TYPES "q's type or float32"
#define CACHE_TYPES "q's type, or float8_e4m3fn or its bits as uint8"

static const char *const types[COPES_MAX_INPUTS] = {
    [COPES_QK_THETA] = COPES_THETA_TYPES,
    [COPES_QK_POSITIONS] = COPES_POSITION_TYPES,
    [COPES_QK_OFFSETS] = COPES_POSITION_TYPES,
    [COPES_QK_WQ] = WEIGHT_TYPES,
    [COPES_QK_WK] = WEIGHT_TYPES,
    [COPES_QK_SLOTS] = "int64",
    [COPES_QK_K_SCALE] = "float32",
    [COPES_QK_V_SCALE] = "float32",
};

static const char *const out_types[COPES_MAX_OUTPUTS] = {
    [COPES_QK_K_CACHE] = CACHE_TYPES,
    [COPES_QK_V_CACHE] = CACHE_TYPES,
};

const copes_family copes_family_qk = {check, copes_qk_plan, types, out_types, offsetof(copes_op, qk.reserved)};
