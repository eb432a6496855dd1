/* lrpe: the outputs' shapes, and the canonical problem of a checked call. */
#include "common/lrpe.h"

static copes_status check(copes_call *call)
{
    COPES_TRY(copes_lrpe_read(call));
    const copes_lrpe_shape *shape = &call->lrpe;
    const copes_dtype dtype = call->in[call->info->backward ? COPES_LRPE_GRAD_O : COPES_LRPE_X]->dtype;
    const bool doubled = !call->info->backward && call->op->lrpe.variant == COPES_LRPE_COSINE;
    const int64_t features = doubled ? copes_multiply(shape->d, 2) : shape->d;
    if (features < 0)
        return copes_fail(COPES_ERROR_SIZE, "%s: x has %lld features; o's 2D must fit 63 bits", call->info->name,
                          (long long)shape->d);
    copes_spec *out = &call->spec[COPES_LRPE_OUT];
    *out = (copes_spec){.dtype = dtype, .rank = shape->rank, .shape = {shape->b, shape->n, shape->h}};
    out->shape[shape->rank - 1] = features;
    if (copes_lrpe_softmax_axis(&call->op->lrpe) == COPES_OVER_SEQUENCE)
        call->spec[call->info->backward ? COPES_LRPE_DELTA : COPES_LRPE_OUT_LSE] = copes_lrpe_columns(call);
    if (call->info->backward) {
        const copes_tensor *theta = call->in[COPES_LRPE_THETA];
        copes_spec *learned = &call->spec[COPES_LRPE_GRAD_THETA];
        *learned = (copes_spec){.dtype = call->accumulate_double ? COPES_F64 : COPES_F32, .rank = theta->rank};
        for (int i = 0; i < theta->rank; i++)
            learned->shape[i] = theta->shape[i];
    }
    return COPES_OK;
}

/* A (B, N, H, D) view of a tensor that may lack the axis H. */
static copes_view view_of(const copes_tensor *tensor)
{
    copes_view view = {.data = copes_view_data(tensor)};
    view.stride[0] = tensor->stride[0];
    view.stride[1] = tensor->stride[1];
    view.stride[2] = tensor->rank == 4 ? tensor->stride[2] : 0;
    view.stride[3] = tensor->stride[tensor->rank == 4 ? 3 : 2];
    return view;
}

/* The log sum exp that the call writes or reads. */
static const copes_tensor *lse_of(const copes_call *call)
{
    if (call->info->backward)
        return call->in[COPES_LRPE_LSE];
    return call->passes == COPES_SECOND_PASS ? call->in[COPES_LRPE_LSE_ALL] : call->out[COPES_LRPE_OUT_LSE];
}

/* And the delta. */
static const copes_tensor *delta_of(const copes_call *call)
{
    if (!call->info->backward || call->passes == COPES_BOTH_PASSES)
        return &copes_absent;
    return call->passes == COPES_SECOND_PASS ? call->in[COPES_LRPE_DELTA_ALL] : call->out[COPES_LRPE_DELTA];
}

/* (H, E, m): one theta is read with a stride of 0, and one that is written to has a place for each. */
static copes_view theta_view(const copes_tensor *tensor, bool scalar)
{
    const int rows = tensor->rank - 2;
    copes_view view = {.data = copes_view_data(tensor)};
    view.stride[0] = tensor->shape[rows] == 1 ? 0 : tensor->stride[rows];
    view.stride[1] = scalar ? 0 : tensor->stride[rows + 1];
    view.stride[2] = rows == 1 ? tensor->stride[0] : 0;
    return view;
}

static void plan_angles(const copes_call *call, const copes_lrpe_shape *shape, copes_lrpe_problem *problem)
{
    const bool scalar = shape->grid_rank == 1 && shape->e == 1 && !shape->sectioned && call->op->lrpe.pad_theta == 0;
    int64_t begin = 0;
    problem->mixed = shape->mixed;
    for (int j = 0; j < shape->grid_rank; j++) {
        const int64_t wanted = shape->sectioned         ? call->op->lrpe.sections[j]
                               : scalar || shape->mixed ? shape->k
                                                        : shape->e;
        const int64_t end = wanted < shape->k - begin ? begin + wanted : shape->k;
        problem->segment[j] = (copes_segment){begin, end, shape->sectioned ? begin : 0};
        begin = shape->mixed ? 0 : end;
    }
    problem->theta = theta_view(call->in[COPES_LRPE_THETA], scalar);
    if (call->info->backward && copes_present(call->out[COPES_LRPE_GRAD_THETA]))
        problem->grad_theta = theta_view(call->out[COPES_LRPE_GRAD_THETA], scalar);
}

/* (m, B, N), whether the tensor has positions or adds to those on a line. */
static void plan_positions(const copes_call *call, const copes_lrpe_shape *shape, copes_lrpe_problem *problem)
{
    const copes_tensor *positions = call->in[COPES_LRPE_POSITIONS], *offsets = call->in[COPES_LRPE_OFFSETS];
    problem->counted = !copes_present(positions);
    problem->length = shape->length;
    problem->grid_rank = shape->grid_rank;
    for (int j = 0; j < shape->grid_rank; j++) {
        problem->grid[j] = shape->grid[j];
        problem->offset[j] = call->op->lrpe.offset[j];
    }
    const copes_tensor *tensor = problem->counted ? offsets : positions;
    problem->positions_dtype = tensor->dtype;
    problem->positions = (copes_view){.data = copes_view_data(tensor)};
    for (int i = 0; i < tensor->rank; i++)
        problem->positions.stride[problem->counted ? 1 : 3 - tensor->rank + i] = tensor->stride[i];
}

void copes_lrpe_plan(const copes_call *call, copes_lrpe_problem *problem)
{
    const copes_lrpe_shape *shape = &call->lrpe;
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    const bool backward = call->info->backward;
    const double amplitude = attributes->amplitude != 0 ? attributes->amplitude : 1;
    const copes_tensor *src = call->in[backward ? COPES_LRPE_GRAD_O : COPES_LRPE_X];
    *problem = (copes_lrpe_problem){
        .variant = attributes->variant,
        .pairing = attributes->pairing,
        .act = attributes->act,
        .softmax = copes_lrpe_softmax_axis(attributes),
        .passes = call->passes,
        .backward = backward,
        .dtype = src->dtype,
        .theta_dtype = call->in[COPES_LRPE_THETA]->dtype,
        .b = shape->b,
        .n = shape->n,
        .h = shape->h,
        .d = shape->d,
        .e = shape->e,
        .k = shape->k,
        .begin = attributes->rotary_begin,
        .amplitude = (float)amplitude,
        .amplitude_as_double = amplitude,
        .theta_sign = attributes->inverse != 0 ? -1 : 1,
        .prefix = attributes->prefix,
        .src = view_of(src),
        .x = backward ? view_of(call->in[COPES_LRPE_X]) : (copes_view){0},
        .dst = view_of(call->out[COPES_LRPE_OUT]),
        .lse = copes_view_of(lse_of(call)),
        .delta = copes_view_of(delta_of(call)),
    };
    plan_positions(call, shape, problem);
    plan_angles(call, shape, problem);
}

static void plan(const copes_call *call, copes_problem *problem)
{
    copes_lrpe_plan(call, &problem->lrpe);
}

static const char *const types[COPES_MAX_INPUTS] = {
    [COPES_LRPE_THETA] = COPES_THETA_TYPES,
    [COPES_LRPE_POSITIONS] = COPES_POSITION_TYPES,
    [COPES_LRPE_OFFSETS] = COPES_POSITION_TYPES,
    [COPES_LRPE_LSE] = "float32 (float64 where x is)",
    [COPES_LRPE_DELTA_ALL] = "float32 (float64 where x is)",
};

const copes_family copes_family_lrpe = {check, plan, types, NULL, offsetof(copes_op, lrpe.reserved)};
