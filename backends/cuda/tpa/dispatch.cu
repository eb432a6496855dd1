/* tpa_decode on tensor cores: which problems they take, and by which method. */
#include "backends/cuda/tpa/methods.h"

namespace COPES_GPU::tpa
{

enum { MOST_HEADS = 192, MOST_FEATURES = 256, MOST_RANKS = 64, MOST_QUERY_RANKS = 4096 };

/* Are the coefficients of each batch entry contiguous? */
template <typename T> static bool in_one_piece(const copes_view &view, const copes_tpa_problem &problem, int64_t rank)
{
    return (rank == 1 || view.stride[3] == 1) && (problem.h == 1 || view.stride[2] == rank) &&
           (problem.m == 1 || view.stride[1] == problem.h * rank) &&
           (problem.b == 1 || view.stride[0] % vector_length<T> == 0);
}

/* Are features rows of whole vectors, whatever the address of the first? */
template <typename T>
static bool in_rows(const copes_view &view, const copes_tpa_problem &problem, int64_t rank, int64_t width)
{
    const int64_t lengths[4] = {problem.b, problem.m, rank, width};
    return width % vector_length<T> == 0 && in_vectors<T>(aligned(view), lengths, 4);
}

static bool has_sizes(const copes_tpa_problem &p)
{
    const int64_t tokens = INT32_MAX / MOST_CLUSTER;
    return p.h >= 1 && p.h <= MOST_HEADS && p.d <= MOST_FEATURES && p.e >= 1 && p.e <= MOST_FEATURES &&
           p.rk <= MOST_RANKS && p.rv <= MOST_RANKS && p.rq <= MOST_QUERY_RANKS && p.m >= 1 && p.m <= INT32_MAX / 2 &&
           p.b >= 1 && p.n >= 1 && p.b <= tokens / p.n;
}

/* Why tensor cores do not take the problem, whatever its tensors' addresses; nullptr: they do. */
template <typename T> static const char *refuse_problem(const gpu_device &device, const copes_tpa_problem &p)
{
    if (!COPES_MMA)
        return "the library has no code for compute capability 8.0 or newer";
    if (device.architecture < 80)
        return "the device is older than compute capability 8.0";
    if (!has_sizes(p))
        return "there are no keys, or more than 192 heads, 256 features or ranks of 64";
    if (p.score_exponent != 0 || p.value_exponent != 0)
        return "a product of scales is outside the range of float32";
    if (p.bq.stride[3] != 1 || !in_rows<T>(p.bk, p, p.rk, p.d) || !in_rows<T>(p.bv, p, p.rv, p.e))
        return "features are not contiguous rows of whole vectors of 16 bytes";
    if (!in_one_piece<T>(p.ak, p, p.rk) || !in_one_piece<T>(p.av, p, p.rv))
        return "ak or av is not contiguous";
    return nullptr;
}

template <typename T> static bool is_aligned(const copes_tpa_problem &problem)
{
    const auto address = [](const copes_view &view) { return reinterpret_cast<uintptr_t>(view.data); };
    const uintptr_t cache = address(problem.ak) | address(problem.bk) | address(problem.av) | address(problem.bv);
    return cache % 16 == 0 && (address(problem.aq) | address(problem.bq)) % sizeof(T) == 0;
}

#if COPES_WGMMA
template <typename T>
static bool plan_wgmma(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan)
{
    return is_allowed(device, wgmma::name, plan) && wgmma::plan<T>(device, problem, plan);
}
#else
template <typename T> static bool plan_wgmma(const gpu_device &, const copes_tpa_problem &, copes_plan *plan)
{
    return refuse(plan, wgmma::name, "the library has no code for compute capability 9.0");
}
#endif

/* Refuses both methods for one reason. If shared memory is too small for tpa_mma it is too small for tpa_wgmma,
 * because the stages of tpa_wgmma are no smaller. */
static answer refuse_both(copes_plan *plan, const char *why)
{
    refuse(plan, wgmma::name, why);
    refuse(plan, mma::name, why);
    return answer::refused;
}

#if COPES_MMA
template <typename T> answer plan_fast(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan)
{
    const char *why = refuse_problem<T>(device, problem);
    if (why == nullptr)
        why = mma::refuse_block<T>(device, problem);
    if (why != nullptr)
        return refuse_both(plan, why);
    const bool other = !plan_wgmma<T>(device, problem, plan);
    if (other && !is_allowed(device, mma::name, plan))
        return answer::refused;
    if (other)
        mma::plan<T>(device, problem, plan);
    if (is_aligned<T>(problem))
        return answer::taken;
    if (!other)
        refuse_addresses(plan, wgmma::name);
    refuse_addresses(plan, mma::name); /* asks for the same alignment */
    return answer::elsewhere;
}
#else
template <typename T> answer plan_fast(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan)
{
    return refuse_both(plan, refuse_problem<T>(device, problem));
}
#endif

template <typename T> void list_fast(variant_list *list)
{
#if COPES_MMA
    mma::list<T>(list);
#endif
#if COPES_WGMMA
    wgmma::list<T>(list);
#endif
    (void)list;
}

#define INSTANTIATE(T)                                                                                                 \
    template answer plan_fast<T>(const gpu_device &, const copes_tpa_problem &, copes_plan *);                         \
    template void list_fast<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)
#undef INSTANTIATE

} // namespace COPES_GPU::tpa
