/* The methods of qk_norm_rope, the fastest first. Each plans a problem that it takes. */
#ifndef COPES_BACKENDS_GPU_QK_METHODS_H
#define COPES_BACKENDS_GPU_QK_METHODS_H

#include "backends/gpu/encoding.h"
#include "backends/gpu/families.h"

namespace COPES_GPU::qk
{

/* line.cu, forward.cu and backward.cu: in whole vectors, where all heads have the same angles. The latter two take 16 bits without a norm
 * in vectors of 8 bytes, too. */
template <typename T, encoding E>
bool plan_line(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan);
template <typename T, encoding E>
bool plan_forward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan);
template <typename T, encoding E>
bool plan_backward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan);

/* tokens.cu: the same where a norm is over all heads, or heads learn weights of their own, if a block can have all heads of a token. */
template <typename T, encoding E>
bool plan_tokens_forward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan);
template <typename T, encoding E>
bool plan_tokens_backward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan);

/* any.cu: every problem. */
void plan_any(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan);

void list_line(variant_list *list);
void list_tokens(variant_list *list);
void list_forward(variant_list *list);
void list_backward(variant_list *list);
void list_any(variant_list *list);

} // namespace COPES_GPU::qk

#endif
