/* attention_merge: which method a problem goes to. */
#include "backends/gpu/merge/methods.h"

namespace COPES_GPU::merge
{

template <typename T> copes_status plan(const gpu_device &device, const copes_merge_problem &problem, copes_plan *plan)
{
    return problem.backward ? plan_backward<T>(device, problem, plan) : plan_forward<T>(device, problem, plan);
}

template copes_status plan<f32>(const gpu_device &, const copes_merge_problem &, copes_plan *);
template copes_status plan<f16>(const gpu_device &, const copes_merge_problem &, copes_plan *);
template copes_status plan<bf16>(const gpu_device &, const copes_merge_problem &, copes_plan *);

template <typename... T> static void list_all(variant_list *list)
{
    (list_forward<T>(list), ...);
    (list_backward<T>(list), ...);
}

void list_variants(variant_list *list)
{
    list_all<f32, f16, bf16>(list);
}

} // namespace COPES_GPU::merge
