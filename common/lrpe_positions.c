/* lrpe: where tokens are, on a grid or by a tensor, and how theta's columns become angles. */
#include "common/lrpe.h"

static copes_status check_position_tensor(const copes_call *call, const copes_tensor *tensor)
{
    if (tensor->dtype == COPES_I32 || tensor->dtype == COPES_I64 || tensor->dtype == COPES_F32)
        return COPES_OK;
    return copes_fail(COPES_ERROR_DTYPE, "%s: %s has type %s; it must be " COPES_POSITION_TYPES, call->info->name,
                      tensor->name, copes_dtype_name(tensor->dtype));
}

/* Where tokens have positions of their own they count along nothing. */
static copes_status check_no_grid(const copes_call *call)
{
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    const struct {
        const char *name;
        int64_t value;
    } absent[] = {{"grid_rank", attributes->grid_rank}, {"grid[0]", attributes->grid[0]},
                  {"grid[1]", attributes->grid[1]},     {"grid[2]", attributes->grid[2]},
                  {"grid[3]", attributes->grid[3]},     {"prefix", attributes->prefix},
                  {"suffix", attributes->suffix}};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        if (absent[i].value != 0)
            return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: %s is %lld; with positions it must be 0", call->info->name,
                              absent[i].name, (long long)absent[i].value);
    if (copes_present(call->in[COPES_LRPE_OFFSETS]))
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: offsets is given; with positions it must be NULL",
                          call->info->name);
    return COPES_OK;
}

static copes_status read_positions(const copes_call *call, copes_lrpe_shape *shape)
{
    const copes_tensor *positions = call->in[COPES_LRPE_POSITIONS];
    COPES_TRY(check_no_grid(call));
    COPES_TRY(check_position_tensor(call, positions));
    const int64_t m = positions->rank == 3 ? positions->shape[0] : 1, shapes[3] = {m, shape->b, shape->n};
    if (positions->rank < 1 || positions->rank > 3 || m < 1 || m > COPES_MAX_GRID) {
        char text[COPES_SHAPE_TEXT];
        return copes_fail(COPES_ERROR_SHAPE,
                          "%s: positions has shape %s; it must be (N), (B, N) or (m, B, N), m of 1 to %d",
                          call->info->name, copes_shape_text(positions->rank, positions->shape, text), COPES_MAX_GRID);
    }
    COPES_TRY(copes_check_shape(call, positions, positions->rank, shapes + 3 - positions->rank,
                                positions->rank == 1   ? "(N) to go with the tokens"
                                : positions->rank == 2 ? "(B, N) to go with the tokens"
                                                       : "(m, B, N) to go with the tokens"));
    shape->length = shape->n;
    shape->grid_rank = (int)m;
    for (int j = 0; j < shape->grid_rank; j++)
        shape->grid[j] = 1;
    return COPES_OK;
}

static copes_status check_offsets(const copes_call *call, const copes_lrpe_shape *shape)
{
    const copes_tensor *offsets = call->in[COPES_LRPE_OFFSETS];
    if (!copes_present(offsets))
        return COPES_OK;
    COPES_TRY(check_position_tensor(call, offsets));
    if (shape->grid_rank > 1)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: offsets is given; with a %d-d grid it must be NULL",
                          call->info->name, shape->grid_rank);
    return copes_check_shape(call, offsets, 1, &shape->b, "(B)");
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

static copes_status check_range(const copes_call *call, const copes_lrpe_shape *shape)
{
    static const int64_t limit = INT64_C(1) << 31; /* exclusive, either way */
    for (int j = shape->grid_rank; j < COPES_MAX_GRID; j++)
        if (call->op->lrpe.offset[j] != 0)
            return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: offset[%d] is %lld; with %d-d positions it must be 0",
                              call->info->name, j, (long long)call->op->lrpe.offset[j], shape->grid_rank);
    for (int j = 0; j < shape->grid_rank && !copes_present(call->in[COPES_LRPE_POSITIONS]); j++) {
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

copes_status copes_lrpe_check_positions(const copes_call *call, copes_lrpe_shape *shape)
{
    if (copes_present(call->in[COPES_LRPE_POSITIONS]))
        COPES_TRY(read_positions(call, shape));
    else
        COPES_TRY(check_grid(call, shape));
    COPES_TRY(check_offsets(call, shape));
    return check_range(call, shape);
}

static copes_status check_padding(const copes_call *call, const copes_lrpe_shape *shape)
{
    if (call->op->lrpe.pad_theta == 0 || (shape->grid_rank == 1 && !shape->sectioned))
        return COPES_OK;
    if (shape->sectioned)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: pad_theta is 1; with sections it must be 0", call->info->name);
    return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: pad_theta is 1; with %d-d positions it must be 0", call->info->name,
                      shape->grid_rank);
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
    return copes_fail(COPES_ERROR_ATTRIBUTE,
                      "%s: sections is %s; with %d-d positions it must have 0 or more angles for each dimension, which "
                      "sum to %lld",
                      call->info->name, copes_shape_text(COPES_MAX_GRID, attributes->sections, text), shape->grid_rank,
                      (long long)shape->k);
}

/* How many angles theta may have. One that is short by mistake would leave features unturned without a word, so in one
 * dimension it takes pad_theta. */
static copes_status check_width(const copes_call *call, const copes_lrpe_shape *shape)
{
    const copes_tensor *theta = call->in[COPES_LRPE_THETA];
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
                          "%s: theta has shape %s; with %lld angles and %d-d positions E must be %lld to %lld",
                          call->info->name, copes_shape_text(theta->rank, theta->shape, text), (long long)k, m,
                          (long long)least, (long long)k);
    return COPES_OK;
}

/* (m, H, K) or (m, 1, K): the rows of one dimension after another, whose angles are summed. */
static copes_status check_mixed_theta(const copes_call *call, copes_lrpe_shape *shape)
{
    const copes_tensor *theta = call->in[COPES_LRPE_THETA];
    const int64_t heads = theta->shape[1] == 1 ? 1 : shape->h, wanted[3] = {shape->grid_rank, heads, shape->k};
    shape->mixed = true;
    shape->e = shape->k;
    if (shape->sectioned || call->op->lrpe.pad_theta != 0)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: %s; with a theta of rank 3 it must be 0", call->info->name,
                          shape->sectioned ? "sections is given" : "pad_theta is 1");
    return copes_check_shape(call, theta, 3, wanted,
                             "(m, H, K) or (m, 1, K) with as many rows of angles as positions have dimensions");
}

copes_status copes_lrpe_check_theta(const copes_call *call, copes_lrpe_shape *shape)
{
    const copes_tensor *theta = call->in[COPES_LRPE_THETA];
    const char *op = call->info->name;
    if (theta->dtype != COPES_F32 && theta->dtype != COPES_F16 && theta->dtype != COPES_BF16)
        return copes_fail(COPES_ERROR_DTYPE, "%s: theta has type %s; it must be %s", op, copes_dtype_name(theta->dtype),
                          COPES_THETA_TYPES);
    char text[COPES_SHAPE_TEXT];
    COPES_TRY(check_sections(call, shape));
    if (theta->rank == 3)
        return check_mixed_theta(call, shape);
    if (theta->rank != 2 || (theta->shape[0] != 1 && theta->shape[0] != shape->h))
        return copes_fail(COPES_ERROR_SHAPE,
                          "%s: theta has shape %s; with %lld heads it must be (%lld, E), (1, E) or of rank 3", op,
                          copes_shape_text(theta->rank, theta->shape, text), (long long)shape->h, (long long)shape->h);
    shape->e = theta->shape[1];
    if (shape->sectioned && shape->e != shape->k)
        return copes_fail(COPES_ERROR_SHAPE, "%s: theta has shape %s; with sections E must be %lld, their sum", op,
                          copes_shape_text(theta->rank, theta->shape, text), (long long)shape->k);
    return shape->k > 0 && !shape->sectioned ? check_width(call, shape) : COPES_OK;
}
