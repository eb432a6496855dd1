/* lrpe: the outputs' shapes, and the canonical problem of a checked call. */
#include "common/lrpe.h"

static copes_status check(copes_call *call)
{
    COPES_TRY(copes_lrpe_read(call));
    const copes_lrpe_shape *shape = &call->lrpe;
    const copes_dtype dtype = call->in[call->info->backward ? COPES_LRPE_GRAD_O : COPES_LRPE_X].dtype;
    const bool doubled = !call->info->backward && call->op->lrpe.variant == COPES_LRPE_COSINE;
    const int64_t features = doubled ? copes_multiply(shape->d, 2) : shape->d;
    if (features < 0)
        return copes_fail(COPES_ERROR_SIZE, "%s: x has %lld features; o's 2D must fit 63 bits", call->info->name,
                          (long long)shape->d);
    copes_spec *out = &call->spec[COPES_LRPE_OUT];
    *out = (copes_spec){.dtype = dtype, .rank = shape->rank, .shape = {shape->b, shape->n, shape->h}};
    out->shape[shape->rank - 1] = features;
    if (copes_lrpe_softmax_axis(&call->op->lrpe) == COPES_OVER_SEQUENCE && !call->info->backward)
        call->spec[COPES_LRPE_OUT_LSE] = (copes_spec){.dtype = call->accumulate_double ? COPES_F64 : COPES_F32,
                                                      .rank = 3,
                                                      .shape = {shape->b, shape->h, shape->d}};
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

static copes_view lse_view(const copes_tensor *tensor)
{
    copes_view view = {.data = copes_view_data(tensor)};
    for (int i = 0; i < 3; i++)
        view.stride[i] = tensor->stride[i];
    return view;
}

static void plan_segments(const copes_call *call, const copes_lrpe_shape *shape, copes_lrpe_problem *problem)
{
    const bool scalar = shape->grid_rank == 1 && shape->e == 1 && !shape->sectioned && call->op->lrpe.pad_theta == 0;
    int64_t begin = 0;
    for (int j = 0; j < shape->grid_rank; j++) {
        const int64_t wanted = shape->sectioned ? call->op->lrpe.sections[j] : scalar ? shape->k : shape->e;
        const int64_t end = wanted < shape->k - begin ? begin + wanted : shape->k;
        problem->segment[j] = (copes_segment){begin, end, shape->sectioned ? begin : 0};
        begin = end;
    }
    const copes_tensor *theta = &call->in[COPES_LRPE_THETA];
    problem->theta =
        (copes_view){.data = copes_view_data(theta),
                     .stride = {theta->shape[0] == 1 ? 0 : theta->stride[0], scalar ? 0 : theta->stride[1]}};
}

static void plan(const copes_call *call, copes_problem *out)
{
    const copes_lrpe_shape *shape = &call->lrpe;
    const copes_lrpe_attributes *attributes = &call->op->lrpe;
    const bool backward = call->info->backward;
    const copes_tensor *src = &call->in[backward ? COPES_LRPE_GRAD_O : COPES_LRPE_X];
    copes_lrpe_problem *problem = &out->lrpe;
    *problem = (copes_lrpe_problem){
        .variant = attributes->variant,
        .pairing = attributes->pairing,
        .act = attributes->act,
        .softmax = copes_lrpe_softmax_axis(attributes),
        .backward = backward,
        .dtype = src->dtype,
        .theta_dtype = call->in[COPES_LRPE_THETA].dtype,
        .b = shape->b,
        .n = shape->n,
        .h = shape->h,
        .d = shape->d,
        .k = shape->k,
        .prefix = attributes->prefix,
        .length = shape->length,
        .grid_rank = shape->grid_rank,
        .src = view_of(src),
        .x = backward ? view_of(&call->in[COPES_LRPE_X]) : (copes_view){0},
        .dst = view_of(&call->out[COPES_LRPE_OUT]),
        .lse = lse_view(backward ? &call->in[COPES_LRPE_LSE] : &call->out[COPES_LRPE_OUT_LSE]),
    };
    for (int j = 0; j < shape->grid_rank; j++) {
        problem->grid[j] = shape->grid[j];
        problem->offset[j] = attributes->offset[j];
    }
    plan_segments(call, shape, problem);
}

static const char *const types[COPES_MAX_INPUTS] = {
    [COPES_LRPE_THETA] = COPES_THETA_TYPES,
    [COPES_LRPE_LSE] = "float32 (float64 where x is)",
};

const copes_family copes_family_lrpe = {check, plan, types, offsetof(copes_op, lrpe.reserved)};
