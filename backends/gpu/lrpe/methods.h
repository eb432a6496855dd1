/* The methods of lrpe, the fastest first. Each plans a problem that it takes, for its storage type, encoding and activation. */
#ifndef COPES_BACKENDS_GPU_LRPE_METHODS_H
#define COPES_BACKENDS_GPU_LRPE_METHODS_H

#include "backends/gpu/encoding.h"
#include "backends/gpu/families.h"

namespace COPES_GPU::lrpe
{

enum class activation {
    none,
    silu,
    elementwise, /* the others, told apart at run time */
    softmax      /* over the features */
};

/* tokens.cu: a batch of one, in whole vectors. */
template <typename T, encoding E, activation A>
bool plan_tokens(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan);

/* batch.cu: on a grid, in whole vectors, where batch entries share angles. */
template <typename T, encoding E, activation A>
bool plan_batch(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan);

/* anywhere.cu: in whole vectors, at any positions; RoPE of 16 bits in vectors of 8 bytes, too. `batch_as_heads`: heads share angles, and
 * the problem has them in place of batch entries. */
template <typename T, encoding E, activation A>
bool plan_anywhere(const gpu_device &device, const copes_lrpe_problem &problem, bool batch_as_heads, copes_plan *plan);

/* gradients.cu: the gradients of x and theta, likewise. */
template <typename T, encoding E, activation A>
bool plan_gradients(const gpu_device &device, const copes_lrpe_problem &problem, bool batch_as_heads, copes_plan *plan);

/* any.cu: every problem. */
void plan_any(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan);

/* theta.cu: the gradient of theta, by a kernel that runs first, where gradients.cu does not take the problem. */
copes_status plan_theta(const copes_lrpe_problem &problem, copes_plan *plan);

void list_tokens(variant_list *list);
void list_batch(variant_list *list);
void list_anywhere(variant_list *list);
void list_gradients(variant_list *list);
void list_any(variant_list *list);
void list_theta(variant_list *list); /* the variant of a call that computes nothing else */

} // namespace COPES_GPU::lrpe

#endif
