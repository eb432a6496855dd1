/* lrpe: its attributes and what inputs and outputs must be. lrpe_positions.c looks at positions and theta, lrpe_plan.c makes the
 * problem. */
#include "common/lrpe.h"

#include <math.h>

const copes_attribute_info *const copes_lrpe_attribute_table[COPES_LRPE_ATTRIBUTES] = {
    COPES_ATTRIBUTE("variant", COPES_ATTRIBUTE_ENUM, 1, 0, offsetof(copes_op, lrpe.variant), -1, "rotate|cosine",
                    "rotate", "rotate pairs of features, or double them to x cos and x sin"),
    COPES_ATTRIBUTE("pairing", COPES_ATTRIBUTE_ENUM, 1, 0, offsetof(copes_op, lrpe.pairing), -1, "half|interleaved",
                    "half", "rotate: pair k is features (k, k + rotary_dim / 2) or (2k, 2k + 1)"),
    COPES_ATTRIBUTE("act", COPES_ATTRIBUTE_ENUM, 1, 0, offsetof(copes_op, lrpe.act), -1,
                    "none|relu|sigmoid|silu|softmax", "none", "the activation that comes first"),
    COPES_ATTRIBUTE("dim", COPES_ATTRIBUTE_AXIS, 1, 4, offsetof(copes_op, lrpe.dim), -1, NULL, "-1",
                    "softmax's axis in (B, N, H, D): -1 the features, -3 the sequence"),
    COPES_ROTATION_ATTRIBUTES(lrpe),
};

/* COPES_NO_SOFTMAX: an axis that lrpe does not take. */
static copes_softmax_axis axis_of(int32_t dim)
{
    switch (dim) {
    case 0:
    case -1: return COPES_OVER_FEATURES;
    case -3: return COPES_OVER_SEQUENCE;
    default: return COPES_NO_SOFTMAX;
    }
}

/* The axis must be one that lrpe takes also where no softmax uses it: whoever gives one means something by it. */
static copes_status check_enums(const copes_call *call)
{
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    const char *op = call->info->name;
    if (attributes->variant != COPES_LRPE_ROTATE && attributes->variant != COPES_LRPE_COSINE)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: variant is %d; it must be COPES_LRPE_ROTATE (0) or COPES_LRPE_COSINE (1)", op,
                          (int)attributes->variant);
    if (attributes->pairing != COPES_LRPE_HALF && attributes->pairing != COPES_LRPE_INTERLEAVED)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: pairing is %d; it must be COPES_LRPE_HALF (0) or COPES_LRPE_INTERLEAVED (1)", op,
                          (int)attributes->pairing);
    if (attributes->variant == COPES_LRPE_COSINE && attributes->pairing != COPES_LRPE_HALF)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: pairing is %d; for variant cosine, which pairs nothing, it must be COPES_LRPE_HALF (0)",
                          op, (int)attributes->pairing);
    if (attributes->act < COPES_ACT_NONE || attributes->act > COPES_ACT_SOFTMAX)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: act is %d; it must be COPES_ACT_NONE (0) to COPES_ACT_SOFTMAX (%d)", op,
                          (int)attributes->act, COPES_ACT_SOFTMAX);
    if (axis_of(attributes->dim) == COPES_NO_SOFTMAX)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: dim is %d; counted from the end it must be -1 for the features or -3 for the sequence",
                          op, attributes->dim);
    if (attributes->pad_theta != 0 && attributes->pad_theta != 1)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: pad_theta is %d; it must be 0 or 1", op, attributes->pad_theta);
    return COPES_OK;
}

copes_softmax_axis copes_lrpe_softmax_axis(const copes_lrpe_attributes *attributes)
{
    return attributes->act == COPES_ACT_SOFTMAX ? axis_of(attributes->dim) : COPES_NO_SOFTMAX;
}

/* x's shape as (B, N, H, D), from x itself or, for a backward without x, from grad_o. */
static copes_status read_shape(const copes_call *call, copes_lrpe_shape *shape)
{
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    const copes_tensor *lead = call->in[call->info->backward ? COPES_LRPE_GRAD_O : COPES_LRPE_X];
    if (lead->rank != 3 && lead->rank != 4) {
        char text[COPES_SHAPE_TEXT];
        return copes_fail(COPES_ERROR_SHAPE, "%s: %s has shape %s; it must be (B, N, H, D) or (B, N, D)",
                          call->info->name, lead->name, copes_shape_text(lead->rank, lead->shape, text));
    }
    const bool doubled = call->info->backward && attributes->variant == COPES_LRPE_COSINE;
    *shape = (copes_lrpe_shape){.rank = lead->rank,
                                .b = lead->shape[0],
                                .n = lead->shape[1],
                                .h = lead->rank == 4 ? lead->shape[2] : 1,
                                .d = lead->shape[lead->rank - 1]};
    if (doubled && shape->d % 2 != 0)
        return copes_fail(COPES_ERROR_SHAPE,
                          "%s: grad_o has %lld features; for variant cosine it must be 2D, an even number",
                          call->info->name, (long long)shape->d);
    if (doubled)
        shape->d /= 2;
    return COPES_OK;
}

static copes_status check_factors(const copes_call *call)
{
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    if (!isfinite(attributes->amplitude) || !isfinite((float)attributes->amplitude))
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: amplitude is %g; it must be finite in float32, or 0 for 1",
                          call->info->name, attributes->amplitude);
    if (attributes->inverse != 0 && attributes->inverse != 1)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: inverse is %d; it must be 0 or 1", call->info->name,
                          attributes->inverse);
    return COPES_OK;
}

/* Cosine turns all features. */
static copes_status read_angles_of_cosine(const copes_call *call, copes_lrpe_shape *shape)
{
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    if (attributes->rotary_dim != 0 && attributes->rotary_dim != shape->d)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: rotary_dim is %lld; for variant cosine it must be 0",
                          call->info->name, (long long)attributes->rotary_dim);
    if (attributes->rotary_begin != 0)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: rotary_begin is %lld; for variant cosine it must be 0",
                          call->info->name, (long long)attributes->rotary_begin);
    shape->k = shape->d;
    return COPES_OK;
}

static copes_status read_angles(const copes_call *call, copes_lrpe_shape *shape)
{
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    const int64_t begin = attributes->rotary_begin;
    if (attributes->variant == COPES_LRPE_COSINE)
        return read_angles_of_cosine(call, shape);
    if (begin < 0 || begin > shape->d)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: rotary_begin is %lld; with %lld features it must be 0 to %lld",
                          call->info->name, (long long)begin, (long long)shape->d, (long long)shape->d);
    const int64_t most = shape->d - begin, rotary_dim = attributes->rotary_dim == 0 ? most : attributes->rotary_dim;
    if (rotary_dim < 0 || rotary_dim > most || rotary_dim % 2 != 0)
        return copes_fail(
            COPES_ERROR_ATTRIBUTE,
            "%s: rotary_dim is %lld; with %lld features from rotary_begin on it must be even and 0 to %lld",
            call->info->name, (long long)rotary_dim, (long long)most, (long long)most);
    shape->k = rotary_dim / 2;
    return COPES_OK;
}

/* Where lse and delta have a meaning, as messages say it. */
static const char over_sequence[] = "softmax over the sequence";

copes_spec copes_lrpe_columns(const copes_call *call)
{
    return (copes_spec){.dtype = call->accumulate_double ? COPES_F64 : COPES_F32,
                        .rank = 3,
                        .shape = {call->lrpe.b, call->lrpe.h, call->lrpe.d}};
}

static copes_status check_optional(copes_call *call, const copes_lrpe_shape *shape)
{
    const copes_tensor *x = call->in[COPES_LRPE_X], *lse = call->in[COPES_LRPE_LSE];
    if (call->info->backward) {
        const copes_tensor *grad = call->in[COPES_LRPE_GRAD_O];
        const bool theta_learns = copes_present(call->out[COPES_LRPE_GRAD_THETA]);
        if (call->op->lrpe.act == COPES_ACT_NONE && !theta_learns) {
            call->in[COPES_LRPE_X] = &copes_absent;
        } else {
            const int64_t four[4] = {shape->b, shape->n, shape->h, shape->d}, three[3] = {shape->b, shape->n, shape->d};
            COPES_TRY(copes_require(call, x, "x",
                                    theta_learns ? "grad_theta needs the forward's input"
                                                 : "the backward of an activation needs the forward's input"));
            COPES_TRY(copes_check_dtype(call, x, grad->dtype, "grad_o"));
            COPES_TRY(
                copes_check_shape(call, x, shape->rank, shape->rank == 4 ? four : three, "as the forward's input"));
        }
    }
    if (!call->info->backward || !copes_present(call->in[COPES_LRPE_LSE]))
        return COPES_OK;
    if (copes_lrpe_softmax_axis(&call->op->lrpe) != COPES_OVER_SEQUENCE)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: lse is given; it must be NULL but for %s", call->info->name,
                          over_sequence);
    const copes_spec columns = copes_lrpe_columns(call);
    COPES_TRY(copes_check_dtype(call, lse, columns.dtype, ""));
    return copes_check_shape(call, lse, columns.rank, columns.shape, "(B, H, D)");
}

/* Backward: what else delta hangs on. */
static copes_status check_delta(const copes_call *call)
{
    const copes_tensor *given = call->in[COPES_LRPE_DELTA_ALL], *made = call->out[COPES_LRPE_DELTA];
    if (!copes_present(given) && !copes_present(made))
        return COPES_OK;
    if (!copes_present(call->in[COPES_LRPE_LSE]))
        return copes_fail(COPES_ERROR_NULL, "%s: lse is NULL; %s needs that of all shares", call->info->name,
                          copes_present(given) ? given->name : made->name);
    if (copes_present(made) && copes_present(call->out[COPES_LRPE_GRAD_THETA]))
        return copes_fail(COPES_ERROR_NULL, "%s: grad_theta and delta are given; one of them must be NULL",
                          call->info->name);
    return COPES_OK;
}

static copes_status check_shares(copes_call *call)
{
    const bool backward = call->info->backward;
    const copes_spec columns = copes_lrpe_columns(call);
    const copes_share_slots slots = {.given = backward ? COPES_LRPE_DELTA_ALL : COPES_LRPE_LSE_ALL,
                                     .made = backward ? COPES_LRPE_DELTA : COPES_LRPE_OUT_LSE,
                                     .taken = copes_lrpe_softmax_axis(&call->op->lrpe) == COPES_OVER_SEQUENCE,
                                     .where = over_sequence,
                                     .byproduct = !backward};
    COPES_TRY(copes_check_shares(call, &slots, &columns, "(B, H, D)"));
    return backward ? check_delta(call) : COPES_OK;
}

copes_status copes_lrpe_read(copes_call *call)
{
    copes_lrpe_shape *shape = &call->lrpe;
    const copes_tensor *lead = call->in[call->info->backward ? COPES_LRPE_GRAD_O : COPES_LRPE_X];
    COPES_TRY(check_enums(call));
    COPES_TRY(copes_check_floating(call, lead));
    call->accumulate_double = lead->dtype == COPES_F64;
    COPES_TRY(check_factors(call));
    COPES_TRY(read_shape(call, shape));
    COPES_TRY(read_angles(call, shape));
    COPES_TRY(copes_lrpe_check_positions(call, shape));
    COPES_TRY(copes_lrpe_check_theta(call, shape));
    COPES_TRY(check_optional(call, shape));
    return check_shares(call);
}
