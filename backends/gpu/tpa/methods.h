/* The methods of tpa_decode. */
#ifndef COPES_BACKENDS_GPU_TPA_METHODS_H
#define COPES_BACKENDS_GPU_TPA_METHODS_H

#include "backends/gpu/families.h"
#include "backends/gpu/names.h"

namespace COPES_GPU::tpa
{

/* The vendor's own methods, in the vendor's folder. `elsewhere`: they refuse the tensors' addresses alone.
 * plan->workspace is then the bytes that they would need, since a workspace must not depend on addresses. */
enum class answer { taken, refused, elsewhere };

template <typename T> answer plan_fast(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan);
template <typename T> void list_fast(variant_list *list);

/* fma.cu: takes every problem. `in_parts`: it may cut the cache into parts and ask for a workspace. */
template <typename T>
void plan_fma(const gpu_device &device, const copes_tpa_problem &problem, bool in_parts, copes_plan *plan);
template <typename T> void list_fma(variant_list *list);

inline constexpr variant_word cut_names[] = {"whole", "parts"}; /* is the cache cut into parts? */

} // namespace COPES_GPU::tpa

#endif
