/* Softmax over the sequence on Hopper: which of the kernels in resident.cu a problem goes to. */
#include "backends/cuda/sequence/methods.h"
#include "backends/cuda/sequence/plan.h"
#include "backends/gpu/angles.h"
#include "backends/gpu/sequence/methods.h"

namespace COPES_GPU::sequence
{

static const char *const NOT_BUILT = "the library has no code for compute capability 9.0 or newer";

/* The kernels need whole vectors, and for each angle one step from each token to the next. nullptr where the problem
 * has both, wherever its tensors start in memory. */
template <typename T> static const char *refuse_problem(const gpu_device &device, const copes_lrpe_problem &problem)
{
    const bool cosine = problem.variant == COPES_LRPE_COSINE, rotated = problem.k > 0;
    const int64_t d = problem.d;
    if (!COPES_RESIDENT)
        return NOT_BUILT;
    if (device.architecture < 90)
        return "the device is older than compute capability 9.0";
    if (d % vector_length<T> != 0 || (rotated && !cosine && 2 * problem.k != d))
        return "the features are not whole vectors of 16 bytes, or not all of them are rotated";
    if (const char *why = refuse_anywhere(problem))
        return why;
    if (rotated && (problem.grid_rank != 1 || problem.prefix != 0 || problem.length != problem.n))
        return "positions are not one line from the first token to the last";
    if (problem.n <= 0 || problem.n > INT32_MAX / 2 || problem.b > INT32_MAX || problem.h > INT32_MAX)
        return "a length is past 2^31 - 1";
    return problem.b * problem.h * d == 0 ? "there is nothing to do" : nullptr;
}

#if COPES_RESIDENT
template <typename T, coding C>
static bool plan_rotated(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    if (!problem.backward)
        return plan_resident(resident_kernels<T, C, role::forward>(), device, problem, plan);
    return problem.lse.data != nullptr ? plan_resident(resident_kernels<T, C, role::kept>(), device, problem, plan)
                                       : refuse(plan, cluster_name, "backward is not given the forward's lse");
}

template <typename T>
static bool plan_coding(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    if (problem.variant == COPES_LRPE_COSINE)
        return plan_rotated<T, coding::cosine>(device, problem, plan);
    if (problem.k > 0 && problem.pairing == COPES_LRPE_HALF)
        return plan_rotated<T, coding::half>(device, problem, plan);
    if (problem.k > 0)
        return plan_rotated<T, coding::interleaved>(device, problem, plan);
    return plan_resident(given && problem.backward ? resident_kernels<T, coding::none, role::given>()
                                                   : resident_kernels<T, coding::none, role::forward>(),
                         device, problem, plan);
}
#else
template <typename T> static bool plan_coding(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *)
{
    return false;
}
#endif

/* A workspace must not depend on addresses. So the plan for aligned tensors sets it, even where a tensor's address
 * is refused. */
template <typename T>
bool plan_fast(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    if (const char *why = refuse_problem<T>(device, problem))
        return refuse(plan, cluster_name, why);
    copes_lrpe_problem anywhere = problem;
    for (copes_view *view : {&anywhere.src, &anywhere.x, &anywhere.dst})
        *view = aligned(*view);
    if (!is_in_vectors(anywhere, vector_length<T>))
        return refuse(plan, cluster_name, "a tensor's rows are not contiguous, or not at multiples of 16 bytes");
    if (is_in_vectors(problem, vector_length<T>))
        return plan_coding<T>(device, problem, given, plan);
    plan_coding<T>(device, anywhere, given, plan);
    return refuse_addresses(plan, cluster_name);
}

template <typename T, coding C, role R> static void list_kinds(variant_list *list)
{
    list->add(resident_variant<block_name, T, C, R>);
    list->add(resident_variant<cluster_name, T, C, R>);
    list->add(resident_variant<wide_group_name, T, C, R>);
    list->add(resident_variant<group_name, T, C, R>);
    list->add(resident_variant<narrow_group_name, T, C, R>);
}

template <typename T, coding... C> static void list_rotated(variant_list *list)
{
    (list_kinds<T, C, role::forward>(list), ...);
    (list_kinds<T, C, role::kept>(list), ...);
}

template <typename T> void list_fast(variant_list *list)
{
    if (!COPES_RESIDENT)
        return;
    list_kinds<T, coding::none, role::forward>(list);
    list_kinds<T, coding::none, role::given>(list);
    list_rotated<T, coding::half, coding::interleaved, coding::cosine>(list);
}

#define INSTANTIATE(T)                                                                                                 \
    template bool plan_fast<T>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);                    \
    template void list_fast<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)
#undef INSTANTIATE

} // namespace COPES_GPU::sequence
