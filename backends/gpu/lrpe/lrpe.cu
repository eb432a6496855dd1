/* lrpe: which method a problem goes to. */
#include "backends/gpu/angles.h"
#include "backends/gpu/lrpe/methods.h"

#include <utility>

namespace COPES_GPU::lrpe
{

/* A problem as kernels take it whose blocks share angles: among batch entries or, where `batch_as_heads`, among heads.
 * Those have one theta then, and take the place of batch entries. */
struct sharing {
    copes_lrpe_problem problem;
    bool batch_as_heads;
};

/* RoPE of rows that are whole vectors of 8 bytes alone. */
template <typename T, encoding E, activation A>
static bool plan_narrow(const gpu_device &device, const sharing &shared, copes_plan *plan)
{
    if constexpr (sizeof(T) == 2 && E != encoding::cosine && A == activation::none)
        return plan_anywhere<narrow<T>, E, A>(device, shared.problem, shared.batch_as_heads, plan);
    return false;
}

template <typename T, encoding E, activation A>
static void plan_rows(const gpu_device &device, const copes_lrpe_problem &problem, const sharing &shared,
                      copes_plan *plan)
{
    if (!plan_tokens<T, E, A>(device, shared.problem, plan) && !plan_batch<T, E, A>(device, shared.problem, plan) &&
        !plan_anywhere<T, E, A>(device, shared.problem, shared.batch_as_heads, plan) &&
        !plan_narrow<T, E, A>(device, shared, plan))
        plan_any(device, problem, plan);
}

template <typename T, encoding E>
static void plan_encoding(const gpu_device &device, const copes_lrpe_problem &problem, const sharing &shared,
                          copes_plan *plan)
{
    if (problem.act == COPES_ACT_NONE)
        plan_rows<T, E, activation::none>(device, problem, shared, plan);
    else if (problem.act == COPES_ACT_SILU)
        plan_rows<T, E, activation::silu>(device, problem, shared, plan);
    else if (problem.softmax == COPES_OVER_FEATURES)
        plan_rows<T, E, activation::softmax>(device, problem, shared, plan);
    else
        plan_rows<T, E, activation::elementwise>(device, problem, shared, plan);
}

/* Do batch entries have positions of their own? */
static bool has_positions_of_entries(const copes_lrpe_problem &problem)
{
    return problem.positions.data != nullptr && problem.positions.stride[1] != 0 && problem.b > 1;
}

/* Makes one batch entry of all where their tokens follow each other in every tensor, as those of a decoding step do. */
static void join_entries(copes_lrpe_problem *problem)
{
    copes_view positions = problem->positions;
    std::swap(positions.stride[0], positions.stride[2]); /* (N, B, m) */
    std::swap(positions.stride[0], positions.stride[1]); /* (B, N, m) */
    for (const copes_view *view : {&problem->src, &problem->x, &problem->dst, &positions})
        if (view->data != nullptr && problem->n > 1 && view->stride[0] != problem->n * view->stride[1])
            return;
    if (problem->b > INT32_MAX / problem->n)
        return;
    if (problem->n == 1) {
        for (copes_view *view : {&problem->src, &problem->x, &problem->dst})
            view->stride[1] = view->stride[0];
        problem->positions.stride[2] = problem->positions.stride[1];
    }
    problem->n *= problem->b;
    problem->length = problem->n;
    problem->b = 1;
}

/* Have all heads one theta, and one gradient of it? A theta that is repeated for each head has one of each head. */
static bool is_one_theta(const copes_lrpe_problem &problem)
{
    const bool learned = problem.grad_theta.data != nullptr;
    return problem.h <= 1 || (problem.theta.stride[0] == 0 && !(learned && problem.grad_theta.stride[0] != 0));
}

/* Batch entries share angles. Where all heads have one theta, so do heads. */
static sharing share_angles(const copes_lrpe_problem &problem)
{
    constexpr int64_t ENOUGH = 4;
    sharing shared = {problem, false};
    copes_lrpe_problem &of = shared.problem;
    const bool own = has_positions_of_entries(of);
    if (of.positions.data != nullptr && !own)
        of.positions.stride[1] = 0;
    if (!is_one_theta(of))
        return shared;
    if (!own && of.h < ENOUGH)
        return shared;
    if (own && !of.counted)
        join_entries(&of);
    for (copes_view *view : {&of.src, &of.x, &of.dst})
        std::swap(view->stride[0], view->stride[2]);
    std::swap(of.b, of.h);
    of.theta.stride[0] = 0;
    shared.batch_as_heads = true;
    return shared;
}

template <typename T>
static copes_status plan_rows_of(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    if (problem.softmax == COPES_OVER_SEQUENCE)
        return sequence::plan<T>(device, problem, false, plan);
    if (qk::plan_step<T>(device, problem, plan))
        return COPES_OK;
    const sharing shared = share_angles(problem);
    if (problem.variant == COPES_LRPE_COSINE)
        plan_encoding<T, encoding::cosine>(device, problem, shared, plan);
    else if (problem.pairing == COPES_LRPE_HALF)
        plan_encoding<T, encoding::half>(device, problem, shared, plan);
    else
        plan_encoding<T, encoding::interleaved>(device, problem, shared, plan);
    return COPES_OK;
}

static copes_status run_nothing(const gpu_queue &, const copes_problem &, const copes_plan &, void *)
{
    return COPES_OK;
}

template <typename T, encoding E>
static bool plan_gradients_of(const gpu_device &device, const sharing &shared, copes_plan *plan)
{
    const copes_lrpe_problem &problem = shared.problem;
    if (problem.softmax == COPES_OVER_FEATURES)
        return plan_gradients<T, E, activation::softmax>(device, problem, shared.batch_as_heads, plan);
    if (problem.act != COPES_ACT_NONE)
        return plan_gradients<T, E, activation::elementwise>(device, problem, shared.batch_as_heads, plan);
    return plan_gradients<T, E, activation::none>(device, problem, shared.batch_as_heads, plan);
}

/* Both gradients by one kernel; false: it does not take the problem. */
template <typename T>
static bool plan_both(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    if (problem.softmax == COPES_OVER_SEQUENCE || problem.b * problem.n * problem.h * problem.d == 0)
        return false;
    const sharing shared = share_angles(problem);
    if (problem.variant == COPES_LRPE_COSINE)
        return plan_gradients_of<T, encoding::cosine>(device, shared, plan);
    if (problem.pairing == COPES_LRPE_HALF)
        return plan_gradients_of<T, encoding::half>(device, shared, plan);
    return plan_gradients_of<T, encoding::interleaved>(device, shared, plan);
}

/* Without an activation only the gradient of theta reads x. */
template <typename T> copes_status plan(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    if (problem.grad_theta.data == nullptr)
        return plan_rows_of<T>(device, problem, plan);
    if (plan_both<T>(device, problem, plan))
        return COPES_OK;
    copes_lrpe_problem rows = problem;
    rows.grad_theta = {};
    if (problem.act == COPES_ACT_NONE)
        rows.x = {};
    COPES_TRY(plan_theta(problem, plan));
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
    list_anywhere(list);
    list_gradients(list);
    list_any(list);
    list_theta(list);
}

} // namespace COPES_GPU::lrpe
