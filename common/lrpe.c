/* lrpe: its attributes and what inputs and outputs must be. lrpe_plan.c makes the problem. */
#include "common/lrpe.h"

const copes_attribute_info *const copes_lrpe_attribute_table[COPES_LRPE_ATTRIBUTES] = {
    COPES_ATTRIBUTE("variant", COPES_ATTRIBUTE_ENUM, 1, 0, offsetof(copes_op, lrpe.variant), -1, "rotate|cosine",
                    "rotate", "rotate pairs of features, or double them to x cos and x sin"),
    COPES_ATTRIBUTE("pairing", COPES_ATTRIBUTE_ENUM, 1, 0, offsetof(copes_op, lrpe.pairing), -1, "half|interleaved",
                    "half", "rotate: pair k is features (k, k + rotary_dim / 2) or (2k, 2k + 1)"),
    COPES_ATTRIBUTE("act", COPES_ATTRIBUTE_ENUM, 1, 0, offsetof(copes_op, lrpe.act), -1,
                    "none|relu|sigmoid|silu|softmax", "none", "the activation that comes first"),
    COPES_ATTRIBUTE("dim", COPES_ATTRIBUTE_AXIS, 1, 4, offsetof(copes_op, lrpe.dim), -1, NULL, "-1",
                    "softmax's axis in (B, N, H, D): -1 the features, -3 the sequence"),
    COPES_ATTRIBUTE("grid", COPES_ATTRIBUTE_INT64, COPES_MAX_GRID, 0, offsetof(copes_op, lrpe.grid),
                    offsetof(copes_op, lrpe.grid_rank), NULL, "N - prefix - suffix",
                    "lengths of the position grid, the last one fastest"),
    COPES_ATTRIBUTE("offset", COPES_ATTRIBUTE_INT64, COPES_MAX_GRID, 0, offsetof(copes_op, lrpe.offset), -1, NULL, "0",
                    "position of the grid's first token in each of its dimensions"),
    COPES_ATTRIBUTE("prefix", COPES_ATTRIBUTE_INT64, 1, 0, offsetof(copes_op, lrpe.prefix), -1, NULL, "0",
                    "tokens before the grid, which are not turned"),
    COPES_ATTRIBUTE("suffix", COPES_ATTRIBUTE_INT64, 1, 0, offsetof(copes_op, lrpe.suffix), -1, NULL, "0",
                    "tokens after the grid, which are not turned"),
    COPES_ATTRIBUTE("sections", COPES_ATTRIBUTE_INT64, COPES_MAX_GRID, 0, offsetof(copes_op, lrpe.sections), -1, NULL,
                    "none", "angles of each grid dimension, summing to K"),
    COPES_ATTRIBUTE("rotary_dim", COPES_ATTRIBUTE_INT64, 1, 0, offsetof(copes_op, lrpe.rotary_dim), -1, NULL, "D",
                    "rotate: the leading features that turn"),
    COPES_ATTRIBUTE("pad_theta", COPES_ATTRIBUTE_BOOL, 1, 0, offsetof(copes_op, lrpe.pad_theta), -1, NULL, "0",
                    "take a theta of fewer than K angles: those past E are 0"),
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
    const copes_tensor *lead = &call->in[call->info->backward ? COPES_LRPE_GRAD_O : COPES_LRPE_X];
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

static copes_status read_angles(const copes_call *call, copes_lrpe_shape *shape)
{
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    const int64_t rotary_dim = attributes->rotary_dim == 0 ? shape->d : attributes->rotary_dim;
    if (attributes->variant == COPES_LRPE_COSINE && attributes->rotary_dim != 0 && rotary_dim != shape->d)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: rotary_dim is %lld; for variant cosine it must be 0",
                          call->info->name, (long long)rotary_dim);
    if (attributes->variant == COPES_LRPE_ROTATE && (rotary_dim < 0 || rotary_dim > shape->d || rotary_dim % 2 != 0))
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: rotary_dim is %lld; with %lld features it must be even and 0 to %lld", call->info->name,
                          (long long)rotary_dim, (long long)shape->d, (long long)shape->d);
    shape->k = attributes->variant == COPES_LRPE_COSINE ? shape->d : rotary_dim / 2;
    return COPES_OK;
}

static copes_status check_grid(const copes_call *call, copes_lrpe_shape *shape)
{
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    const char *op = call->info->name;
    if (attributes->prefix < 0 || attributes->suffix < 0 || attributes->prefix > shape->n ||
        attributes->suffix > shape->n - attributes->prefix)
        return copes_fail(
            COPES_ERROR_ATTRIBUTE,
            "%s: prefix is %lld and suffix is %lld; each must be 0 or more, and their sum at most N, %lld", op,
            (long long)attributes->prefix, (long long)attributes->suffix, (long long)shape->n);
    if (attributes->grid_rank < 0 || attributes->grid_rank > COPES_MAX_GRID)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: grid_rank is %d; it must be 0 to %d", op, attributes->grid_rank,
                          COPES_MAX_GRID);
    for (int j = attributes->grid_rank; j < COPES_MAX_GRID; j++)
        if (attributes->grid[j] != 0)
            return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: grid[%d] is %lld; with grid_rank %d it must be 0", op, j,
                              (long long)attributes->grid[j], attributes->grid_rank);
    shape->length = shape->n - attributes->prefix - attributes->suffix;
    shape->grid_rank = attributes->grid_rank > 0 ? attributes->grid_rank : 1;
    int64_t product = 1;
    for (int j = 0; j < shape->grid_rank; j++) {
        shape->grid[j] = attributes->grid_rank > 0 ? attributes->grid[j] : shape->length;
        product = shape->grid[j] < 0 || product < 0 ? -1 : copes_multiply(product, shape->grid[j]);
    }
    if (product != shape->length) {
        char text[COPES_SHAPE_TEXT];
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: grid is %s; its lengths must multiply to N - prefix - suffix, %lld - %lld - %lld = %lld",
                          op, copes_shape_text(shape->grid_rank, attributes->grid, text), (long long)shape->n,
                          (long long)attributes->prefix, (long long)attributes->suffix, (long long)shape->length);
    }
    return COPES_OK;
}

static copes_status check_positions(const copes_call *call, const copes_lrpe_shape *shape)
{
    static const int64_t limit = INT64_C(1) << 31; /* exclusive, either way */
    for (int j = shape->grid_rank; j < COPES_MAX_GRID; j++)
        if (call->op->lrpe.offset[j] != 0)
            return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: offset[%d] is %lld; with a %d-d grid it must be 0",
                              call->info->name, j, (long long)call->op->lrpe.offset[j], shape->grid_rank);
    for (int j = 0; j < shape->grid_rank; j++) {
        const int64_t offset = call->op->lrpe.offset[j], length = shape->grid[j];
        if (offset <= -limit || offset >= limit || (length > 0 && offset > limit - length))
            return copes_fail(
                COPES_ERROR_ATTRIBUTE,
                "%s: offset[%d] is %lld; with %lld positions from there all must lie between -2^31 and 2^31, "
                "both excluded",
                call->info->name, j, (long long)offset, (long long)length);
    }
    return COPES_OK;
}

static copes_status check_padding(const copes_call *call, const copes_lrpe_shape *shape)
{
    if (call->op->lrpe.pad_theta == 0 || (shape->grid_rank == 1 && !shape->sectioned))
        return COPES_OK;
    return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: pad_theta is 1; with %s it must be 0", call->info->name,
                      shape->sectioned ? "sections" : "a grid of more than one dimension");
}

static copes_status check_sections(const copes_call *call, copes_lrpe_shape *shape)
{
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    int64_t sum = 0;
    bool fits = true;
    for (int j = 0; j < COPES_MAX_GRID; j++) {
        const int64_t section = attributes->sections[j];
        shape->sectioned = shape->sectioned || section != 0;
        fits = fits && section >= 0 && section <= shape->k - sum && (j < shape->grid_rank || section == 0);
        sum += fits ? section : 0;
    }
    if (!shape->sectioned || (fits && sum == shape->k))
        return check_padding(call, shape);
    char text[COPES_SHAPE_TEXT];
    return copes_fail(
        COPES_ERROR_ATTRIBUTE,
        "%s: sections is %s; with a grid of %d dimensions and %lld angles it must be %d lengths of 0 or more "
        "that sum to %lld",
        call->info->name, copes_shape_text(COPES_MAX_GRID, attributes->sections, text), shape->grid_rank,
        (long long)shape->k, shape->grid_rank, (long long)shape->k);
}

/* How many angles theta may have. One that is short by mistake would leave features unturned without a word, so in one
 * dimension it takes pad_theta. */
static copes_status check_width(const copes_call *call, const copes_lrpe_shape *shape)
{
    const copes_tensor *theta = &call->in[COPES_LRPE_THETA];
    char text[COPES_SHAPE_TEXT];
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    const int m = shape->grid_rank;
    const int64_t k = shape->k, e = shape->e;
    if (m == 1 && attributes->pad_theta == 0 && e != 1 && e != k)
        return copes_fail(COPES_ERROR_SHAPE,
                          "%s: theta has shape %s; with %lld angles (%s) E must be %lld, or 1 for all of them; "
                          "pad_theta allows fewer, and those past E are then 0",
                          call->info->name, copes_shape_text(theta->rank, theta->shape, text), (long long)k,
                          attributes->variant == COPES_LRPE_COSINE ? "one per feature" : "half of rotary_dim",
                          (long long)k);
    const int64_t least = m > 1 ? (k + m - 1) / m : 1;
    if (e < least || e > k)
        return copes_fail(COPES_ERROR_SHAPE,
                          "%s: theta has shape %s; with %lld angles and a %d-d grid E must be %lld to %lld",
                          call->info->name, copes_shape_text(theta->rank, theta->shape, text), (long long)k, m,
                          (long long)least, (long long)k);
    return COPES_OK;
}

static copes_status check_theta(const copes_call *call, copes_lrpe_shape *shape)
{
    const copes_tensor *theta = &call->in[COPES_LRPE_THETA];
    const char *op = call->info->name;
    if (theta->dtype != COPES_F32 && theta->dtype != COPES_F16 && theta->dtype != COPES_BF16)
        return copes_fail(COPES_ERROR_DTYPE, "%s: theta has type %s; it must be %s", op, copes_dtype_name(theta->dtype),
                          COPES_THETA_TYPES);
    char text[COPES_SHAPE_TEXT];
    if (theta->rank != 2 || (theta->shape[0] != 1 && theta->shape[0] != shape->h))
        return copes_fail(COPES_ERROR_SHAPE, "%s: theta has shape %s; with %lld heads it must be (%lld, E) or (1, E)",
                          op, copes_shape_text(theta->rank, theta->shape, text), (long long)shape->h,
                          (long long)shape->h);
    shape->e = theta->shape[1];
    if (shape->sectioned && shape->e != shape->k)
        return copes_fail(COPES_ERROR_SHAPE, "%s: theta has shape %s; with sections E must be %lld, their sum", op,
                          copes_shape_text(theta->rank, theta->shape, text), (long long)shape->k);
    return shape->k > 0 && !shape->sectioned ? check_width(call, shape) : COPES_OK;
}

static copes_status check_optional(copes_call *call, const copes_lrpe_shape *shape)
{
    copes_tensor *x = &call->in[COPES_LRPE_X], *lse = &call->in[COPES_LRPE_LSE];
    const copes_softmax_axis softmax = copes_lrpe_softmax_axis(&call->op->lrpe);
    if (call->info->backward) {
        const copes_tensor *grad = &call->in[COPES_LRPE_GRAD_O];
        if (call->op->lrpe.act == COPES_ACT_NONE) {
            x->name = NULL;
        } else {
            const int64_t four[4] = {shape->b, shape->n, shape->h, shape->d}, three[3] = {shape->b, shape->n, shape->d};
            COPES_TRY(copes_require(call, x, "x", "the backward of an activation needs the forward's input"));
            COPES_TRY(copes_check_dtype(call, x, grad->dtype, "grad_o"));
            COPES_TRY(
                copes_check_shape(call, x, shape->rank, shape->rank == 4 ? four : three, "as the forward's input"));
        }
    }
    if (softmax != COPES_OVER_SEQUENCE && (copes_present(lse) || copes_present(&call->out[COPES_LRPE_OUT_LSE])))
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: lse is given; it must be NULL but for softmax over the sequence",
                          call->info->name);
    if (!copes_present(lse))
        return COPES_OK;
    const int64_t lse_shape[3] = {shape->b, shape->h, shape->d};
    COPES_TRY(copes_check_dtype(call, lse, call->accumulate_double ? COPES_F64 : COPES_F32, ""));
    return copes_check_shape(call, lse, 3, lse_shape, "(B, H, D)");
}

copes_status copes_lrpe_read(copes_call *call)
{
    copes_lrpe_shape *shape = &call->lrpe;
    const copes_tensor *lead = &call->in[call->info->backward ? COPES_LRPE_GRAD_O : COPES_LRPE_X];
    COPES_TRY(check_enums(call));
    COPES_TRY(copes_check_floating(call, lead));
    call->accumulate_double = lead->dtype == COPES_F64;
    COPES_TRY(read_shape(call, shape));
    COPES_TRY(read_angles(call, shape));
    COPES_TRY(check_grid(call, shape));
    COPES_TRY(check_positions(call, shape));
    COPES_TRY(check_sections(call, shape));
    COPES_TRY(check_theta(call, shape));
    return check_optional(call, shape);
}
