/* lrpe: which method a problem goes to. */
#include "backends/gpu/angles.h"
#include "backends/gpu/lrpe/methods.h"

#include <utility>

namespace COPES_GPU::lrpe
{

template <typename T, encoding E, activation A>
static void plan_rows(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    if (!plan_tokens<T, E, A>(device, problem, plan) && !plan_batch<T, E, A>(device, problem, plan) &&
        !plan_heads<T, E>(device, problem, plan))
        plan_any<T>(device, problem, plan);
}

template <typename T, encoding E>
static void plan_encoding(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    if (problem.act == COPES_ACT_NONE)
        plan_rows<T, E, activation::none>(device, problem, plan);
    else if (problem.act == COPES_ACT_SILU)
        plan_rows<T, E, activation::silu>(device, problem, plan);
    else if (problem.softmax == COPES_OVER_FEATURES)
        plan_rows<T, E, activation::softmax>(device, problem, plan);
    else
        plan_rows<T, E, activation::elementwise>(device, problem, plan);
}

/* Batch entries share angles. Where all heads have one theta, so do heads, which then take the place of batch entries. */
static copes_lrpe_problem with_heads_as_entries(copes_lrpe_problem problem)
{
    constexpr int64_t ENOUGH = 4;
    if (problem.theta.stride[0] != 0 || problem.h < ENOUGH || refuse_anywhere(problem) != nullptr)
        return problem;
    for (copes_view *view : {&problem.src, &problem.x, &problem.dst})
        std::swap(view->stride[0], view->stride[2]);
    std::swap(problem.b, problem.h);
    return problem;
}

template <typename T>
static copes_status plan_rows_of(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    if (problem.softmax == COPES_OVER_SEQUENCE)
        return sequence::plan<T>(device, problem, false, plan);
    const copes_lrpe_problem sharing = with_heads_as_entries(problem);
    if (problem.variant == COPES_LRPE_COSINE)
        plan_encoding<T, encoding::cosine>(device, sharing, plan);
    else if (problem.pairing == COPES_LRPE_HALF)
        plan_encoding<T, encoding::half>(device, sharing, plan);
    else
        plan_encoding<T, encoding::interleaved>(device, sharing, plan);
    return COPES_OK;
}

static copes_status run_nothing(const gpu_queue &, const copes_problem &, const copes_plan &, void *)
{
    return COPES_OK;
}

/* Without an activation only the gradient of theta reads x. */
template <typename T> copes_status plan(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    if (problem.grad_theta.data == nullptr)
        return plan_rows_of<T>(device, problem, plan);
    copes_lrpe_problem rows = problem;
    rows.grad_theta = {};
    if (problem.act == COPES_ACT_NONE)
        rows.x = {};
    COPES_TRY(plan_theta<T>(problem, plan));
    if (problem.b * problem.n * problem.h * problem.d > 0)
        return plan_rows_of<T>(device, rows, plan);
    set_launch(plan, 1, 1, 0);
    take(plan, plan->first, run_nothing);
    return COPES_OK;
}

template copes_status plan<f32>(const gpu_device &, const copes_lrpe_problem &, copes_plan *);
template copes_status plan<f16>(const gpu_device &, const copes_lrpe_problem &, copes_plan *);
template copes_status plan<bf16>(const gpu_device &, const copes_lrpe_problem &, copes_plan *);

void list_variants(variant_list *list)
{
    list_tokens(list);
    list_batch(list);
    list_heads(list);
    list_any(list);
    list_theta(list);
}

} // namespace COPES_GPU::lrpe
