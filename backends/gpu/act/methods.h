/* The methods of act: how each plans a problem that it takes, and the variants that it has. */
#ifndef COPES_BACKENDS_GPU_ACT_METHODS_H
#define COPES_BACKENDS_GPU_ACT_METHODS_H

#include "backends/gpu/act/strides.h"
#include "backends/gpu/families.h"

namespace COPES_GPU::act
{

/* elementwise.cu: every activation but softmax. */
template <typename T>
copes_status plan_elementwise(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan);
template <typename T> void list_elementwise(variant_list *list);

/* mask.cu: relu with a mask, in either direction. */
template <typename T>
copes_status plan_mask(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan);
template <typename T> void list_mask(variant_list *list);

/* softmax_lanes.cu: softmax along the innermost axis, of rows that neighbouring threads hold. */
template <typename T>
bool plan_softmax_lanes(const gpu_device &device, const copes_act_problem &problem, int64_t rows, copes_plan *plan);
template <typename T> void list_softmax_lanes(variant_list *list);

/* Methods that not every vendor's chips have, of rows along the innermost axis: cuda/act/dispatch.cu, hip/fast.cpp. */
template <typename T>
bool plan_fast(const gpu_device &device, const copes_act_problem &problem, const act_strides &rows, copes_plan *plan);
template <typename T> void list_fast(variant_list *list);

/* softmax_team.cu: softmax along the innermost axis, of rows of any length. */
template <typename T>
bool plan_softmax_team(const gpu_device &device, const copes_act_problem &problem, const act_strides &rows,
                       copes_plan *plan);
template <typename T> void list_softmax_team(variant_list *list);

/* softmax_any.cu: softmax along any axis. */
copes_status plan_softmax_any(int64_t rows, copes_plan *plan);
void list_softmax_any(variant_list *list);

} // namespace COPES_GPU::act

#endif
