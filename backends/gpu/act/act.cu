/* act: which method a problem goes to. */
#include "backends/gpu/act/methods.h"
#include "backends/gpu/act/strides.h"

namespace COPES_GPU::act
{

/* Softmax along an axis with other dimensions inside it is softmax over the sequence. It needs at most one dimension
 * before the axis, the batch, and one or two after it, the heads and features. */
static bool as_sequence(const copes_act_problem &problem, copes_lrpe_problem *sequence)
{
    const int axis = problem.axis, after = problem.rank - 1 - axis;
    if (axis > 1 || after < 1 || after > 2)
        return false;
    *sequence = {};
    sequence->variant = COPES_LRPE_ROTATE;
    sequence->act = COPES_ACT_SOFTMAX;
    sequence->softmax = COPES_OVER_SEQUENCE;
    sequence->passes = problem.passes;
    sequence->backward = problem.backward;
    sequence->dtype = problem.dtype;
    sequence->b = axis == 1 ? problem.shape[0] : 1;
    sequence->n = sequence->length = sequence->grid[0] = problem.shape[axis];
    sequence->h = after == 2 ? problem.shape[axis + 1] : 1;
    sequence->d = problem.shape[problem.rank - 1];
    sequence->grid_rank = 1;
    sequence->counted = true;
    sequence->amplitude = 1;
    sequence->theta_sign = 1;
    const copes_view *from[] = {&problem.src, &problem.saved, &problem.dst};
    copes_view *to[] = {&sequence->src, &sequence->x, &sequence->dst};
    for (int i = 0; i < 3; i++) {
        to[i]->data = from[i]->data;
        to[i]->stride[0] = axis == 1 ? from[i]->stride[0] : 0;
        to[i]->stride[1] = from[i]->stride[axis];
        to[i]->stride[2] = after == 2 ? from[i]->stride[axis + 1] : 0;
        to[i]->stride[3] = from[i]->stride[problem.rank - 1];
    }
    copes_view *sums = problem.backward ? &sequence->delta : &sequence->lse;
    sums->data = problem.sums.data;
    sums->stride[0] = axis == 1 ? problem.sums.stride[0] : 0;
    sums->stride[1] = after == 2 ? problem.sums.stride[axis + 1] : 0;
    sums->stride[2] = problem.sums.stride[problem.rank - 1];
    return true;
}

/* Softmax over rows along an axis. */
template <typename T>
static copes_status plan_rows(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan)
{
    act_strides rows;
    for (int i = 0; i < problem.rank; i++)
        if (i != problem.axis)
            rows.add(problem, i, 1);
    set_tiling(plan, rows);
    if (plan_softmax_lanes<T>(device, problem, rows.count, plan) || plan_fast<T>(device, problem, rows, plan) ||
        plan_softmax_team<T>(device, problem, rows, plan))
        return COPES_OK;
    return plan_softmax_any(rows.count, plan);
}

template <typename T> copes_status plan(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan)
{
    copes_lrpe_problem sequence;
    if (problem.mask.data != nullptr)
        return plan_mask<T>(device, problem, plan);
    if (problem.axis < 0)
        return plan_elementwise<T>(device, problem, plan);
    return as_sequence(problem, &sequence) ? sequence::plan<T>(device, sequence, true, plan)
                                           : plan_rows<T>(device, problem, plan);
}

template copes_status plan<f32>(const gpu_device &, const copes_act_problem &, copes_plan *);
template copes_status plan<f16>(const gpu_device &, const copes_act_problem &, copes_plan *);
template copes_status plan<bf16>(const gpu_device &, const copes_act_problem &, copes_plan *);

template <typename... T> static void list_all(variant_list *list)
{
    (list_elementwise<T>(list), ...);
    (list_mask<T>(list), ...);
    (list_softmax_lanes<T>(list), ...);
    (list_fast<T>(list), ...);
    (list_softmax_team<T>(list), ...);
}

void list_variants(variant_list *list)
{
    list_all<f32, f16, bf16>(list);
    list_softmax_any(list);
}

} // namespace COPES_GPU::act
