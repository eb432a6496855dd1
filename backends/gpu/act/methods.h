/* The methods of act: how each plans a problem that it takes, and the variants that it has. */
#ifndef COPES_BACKENDS_GPU_ACT_METHODS_H
#define COPES_BACKENDS_GPU_ACT_METHODS_H

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

/* softmax_rows.cu: softmax along an axis. Neighbouring threads or a block share a row. */
template <typename T>
copes_status plan_softmax_rows(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan);
template <typename T> void list_softmax_rows(variant_list *list);

/* softmax_shares.cu: one pass of it, where neighbouring threads hold the share's part of a row. */
template <typename T>
bool plan_softmax_shares(const gpu_device &device, const copes_act_problem &problem, int64_t rows, copes_plan *plan);
template <typename T> void list_softmax_shares(variant_list *list);

} // namespace COPES_GPU::act

#endif
