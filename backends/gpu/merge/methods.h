/* The methods of attention_merge: how each plans a problem, and the variants that it has. */
#ifndef COPES_BACKENDS_GPU_MERGE_METHODS_H
#define COPES_BACKENDS_GPU_MERGE_METHODS_H

#include "backends/gpu/families.h"

namespace COPES_GPU::merge
{

/* forward.cu: a thread has a vector of a row, or an element, of all shares. */
template <typename T>
copes_status plan_forward(const gpu_device &device, const copes_merge_problem &problem, copes_plan *plan);
template <typename T> void list_forward(variant_list *list);

/* backward.cu: neighbouring threads share a row, of all shares. */
template <typename T>
copes_status plan_backward(const gpu_device &device, const copes_merge_problem &problem, copes_plan *plan);
template <typename T> void list_backward(variant_list *list);

} // namespace COPES_GPU::merge

#endif
