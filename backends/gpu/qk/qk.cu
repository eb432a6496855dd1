/* qk_norm_rope: which method a problem goes to. */
#include "backends/gpu/qk/methods.h"

namespace COPES_GPU::qk
{

/* Rows that are whole vectors of 8 bytes alone. */
template <typename T, encoding E>
static bool plan_narrow(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    if constexpr (sizeof(T) == 2)
        return problem.backward ? plan_backward<narrow<T>, E>(device, problem, plan)
                                : plan_forward<narrow<T>, E>(device, problem, plan);
    return false;
}

template <typename T, encoding E>
static bool plan_rows(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    if (problem.backward)
        return plan_tokens_backward<T, E>(device, problem, plan) || plan_backward<T, E>(device, problem, plan) ||
               plan_narrow<T, E>(device, problem, plan);
    return plan_line<T, E>(device, problem, plan) || plan_tokens_forward<T, E>(device, problem, plan) ||
           plan_forward<T, E>(device, problem, plan) || plan_narrow<T, E>(device, problem, plan);
}

template <typename T> copes_status plan(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    const bool half = problem.side[0].rotate.pairing == COPES_LRPE_HALF;
    const bool taken = half ? plan_rows<T, encoding::half>(device, problem, plan)
                            : plan_rows<T, encoding::interleaved>(device, problem, plan);
    if (!taken)
        plan_any(device, problem, plan);
    return COPES_OK;
}

/* As many tokens as the device has at a time, of queries alone. */
template <typename T> bool plan_step(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    constexpr double AT_ONCE = 1024; /* threads of a multiprocessor */
    const double threads =
        (double)problem.b * (double)problem.n * (double)problem.h * (double)problem.d / (2 * vector_length<T>);
    if (problem.backward || problem.variant == COPES_LRPE_COSINE || problem.act != COPES_ACT_NONE ||
        threads > AT_ONCE * device.multiprocessors)
        return false;
    copes_qk_problem queries = {};
    queries.dtype = problem.dtype;
    queries.sides = 1;
    queries.side[0].rotate = problem;
    return problem.pairing == COPES_LRPE_HALF ? plan_line<T, encoding::half>(device, queries, plan)
                                              : plan_line<T, encoding::interleaved>(device, queries, plan);
}

template bool plan_step<f32>(const gpu_device &, const copes_lrpe_problem &, copes_plan *);
template bool plan_step<f16>(const gpu_device &, const copes_lrpe_problem &, copes_plan *);
template bool plan_step<bf16>(const gpu_device &, const copes_lrpe_problem &, copes_plan *);

template copes_status plan<f32>(const gpu_device &, const copes_qk_problem &, copes_plan *);
template copes_status plan<f16>(const gpu_device &, const copes_qk_problem &, copes_plan *);
template copes_status plan<bf16>(const gpu_device &, const copes_qk_problem &, copes_plan *);

void list_variants(variant_list *list)
{
    list_line(list);
    list_tokens(list);
    list_forward(list);
    list_backward(list);
    list_any(list);
}

} // namespace COPES_GPU::qk
