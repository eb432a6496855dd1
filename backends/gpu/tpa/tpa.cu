/* tpa_decode: chooses the method of a problem. */
#include "backends/gpu/tpa/methods.h"

namespace COPES_GPU::tpa
{

template <typename T> copes_status plan(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan)
{
    const answer fast = plan_fast<T>(device, problem, plan);
    if (fast != answer::taken)
        plan_fma<T>(device, problem, fast == answer::refused, plan);
    return COPES_OK;
}

template copes_status plan<f32>(const gpu_device &, const copes_tpa_problem &, copes_plan *);
template copes_status plan<f16>(const gpu_device &, const copes_tpa_problem &, copes_plan *);
template copes_status plan<bf16>(const gpu_device &, const copes_tpa_problem &, copes_plan *);

template <typename... T> static void list_all(variant_list *list)
{
    (list_fast<T>(list), ...);
    (list_fma<T>(list), ...);
}

void list_variants(variant_list *list)
{
    list_all<f32, f16, bf16>(list);
}

} // namespace COPES_GPU::tpa
