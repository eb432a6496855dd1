/* qk_norm_rope: which method a problem goes to. */
#include "backends/gpu/qk/methods.h"

namespace COPES_GPU::qk
{

template <typename T, encoding E>
static bool plan_rows(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    return problem.backward ? plan_backward<T, E>(device, problem, plan) : plan_forward<T, E>(device, problem, plan);
}

template <typename T> copes_status plan(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    const bool half = problem.side[0].rotate.pairing == COPES_LRPE_HALF;
    const bool taken = half ? plan_rows<T, encoding::half>(device, problem, plan)
                            : plan_rows<T, encoding::interleaved>(device, problem, plan);
    if (!taken)
        plan_any<T>(device, problem, plan);
    return COPES_OK;
}

template copes_status plan<f32>(const gpu_device &, const copes_qk_problem &, copes_plan *);
template copes_status plan<f16>(const gpu_device &, const copes_qk_problem &, copes_plan *);
template copes_status plan<bf16>(const gpu_device &, const copes_qk_problem &, copes_plan *);

void list_variants(variant_list *list)
{
    list_forward(list);
    list_backward(list);
    list_any(list);
}

} // namespace COPES_GPU::qk
