/* qk_norm_rope: the canonical problem of a checked call. */
#include "common/qk.h"

/* (H, D), of a tensor that may lack the axis H. */
static copes_view weight_view(const copes_tensor *tensor)
{
    copes_view view = {.data = copes_view_data(tensor)};
    view.stride[0] = tensor->rank == 2 ? tensor->stride[0] : 0;
    view.stride[1] = tensor->rank == 2 ? tensor->stride[1] : tensor->stride[0];
    return view;
}

static void plan_side(const copes_call *call, int which, copes_qk_side *side)
{
    copes_op op;
    copes_call rotation;
    const copes_tensor *weight = call->in[COPES_QK_WQ + which];
    copes_qk_rotation(call, which, &op, &rotation);
    rotation.lrpe = call->lrpe;
    rotation.lrpe.h = call->in[copes_qk_source(call, which)]->shape[2];
    copes_lrpe_plan(&rotation, &side->rotate);
    if (!copes_present(weight))
        return;
    side->weight = weight_view(weight);
    side->weight_dtype = weight->dtype;
    side->weight_rows = weight->rank == 2 ? weight->shape[0] : 1;
    if (!call->info->backward)
        return;
    side->rotate.x = copes_view_of(call->in[COPES_QK_Q + which]);
    side->grad_weight = weight_view(call->out[COPES_QK_GRAD_WQ + which]);
}

static copes_qk_cache plan_cache(const copes_call *call, int cache_slot, int scale_slot)
{
    const copes_tensor *cache = call->out[cache_slot], *scale = call->in[scale_slot];
    copes_qk_cache plan = {.data = copes_view_of(cache), .scale = copes_view_of(scale)};
    if (copes_present(scale) && scale->shape[0] == 1)
        plan.scale.stride[0] = 0;
    return plan;
}

static void plan_caches(const copes_call *call, copes_qk_problem *problem)
{
    const copes_tensor *k_cache = call->out[COPES_QK_K_CACHE], *v_cache = call->out[COPES_QK_V_CACHE];
    const copes_tensor *cache = copes_present(k_cache) ? k_cache : v_cache, *v = call->in[COPES_QK_V];
    if (!copes_present(cache))
        return;
    problem->slots = copes_view_of(call->in[COPES_QK_SLOTS]);
    problem->blocks = cache->shape[0];
    problem->page = cache->shape[1];
    problem->cache_dtype = cache->dtype == COPES_U8 ? COPES_F8_E4M3 : cache->dtype;
    problem->k_cache = plan_cache(call, COPES_QK_K_CACHE, COPES_QK_K_SCALE);
    problem->v_cache = plan_cache(call, COPES_QK_V_CACHE, COPES_QK_V_SCALE);
    problem->v = copes_view_of(v);
    problem->v_heads = copes_present(v) ? v->shape[2] : 0;
    problem->e = copes_present(v) ? v->shape[3] : 0;
}

void copes_qk_plan(const copes_call *call, copes_problem *out)
{
    const copes_qk_attributes *attributes = &call->op->qk;
    copes_qk_problem *problem = &out->qk;
    *problem = (copes_qk_problem){
        .backward = call->info->backward,
        .dtype = call->spec[COPES_QK_Q_OUT].dtype,
        .sides = copes_present(call->in[copes_qk_source(call, 1)]) ? 2 : 1,
        .over_heads = attributes->norm_over == COPES_QK_NORM_ALL_HEADS,
        .round_between = attributes->round_between != 0,
        .eps = attributes->eps != 0 ? attributes->eps : 1e-6,
        .weight_offset = attributes->weight_offset,
    };
    for (int side = 0; side < problem->sides; side++)
        plan_side(call, side, &problem->side[side]);
    if (!call->info->backward)
        plan_caches(call, problem);
}
