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

/* batch.cu: in whole vectors, where batch entries share angles. */
template <typename T, encoding E, activation A>
bool plan_batch(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan);

/* heads.cu: in whole vectors, where heads share angles, of any positions, without an activation. */
template <typename T, encoding E>
bool plan_heads(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan);

/* any.cu: every problem. */
template <typename T> void plan_any(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan);

/* theta.cu: the kernel that runs first where the gradient of theta is asked for. */
template <typename T> copes_status plan_theta(const copes_lrpe_problem &problem, copes_plan *plan);

void list_tokens(variant_list *list);
void list_batch(variant_list *list);
void list_heads(variant_list *list);
void list_any(variant_list *list);
void list_theta(variant_list *list); /* the variant of a call that computes nothing else */

} // namespace COPES_GPU::lrpe

#endif
