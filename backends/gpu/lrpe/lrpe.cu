/* lrpe: which kernels a problem goes to. */
#include "backends/gpu/kernels.h"
#include "backends/gpu/lrpe/rows.h"

#include <utility>

namespace COPES_GPU
{

template <typename T, encoding E, activation A>
copes_status run_rows(const gpu_queue &queue, const copes_lrpe_problem &problem)
{
    copes_status status;
    if (run_lrpe_tokens<T, E, A>(queue, problem, &status) || run_lrpe_batch<T, E, A>(queue, problem, &status))
        return status;
    return run_lrpe_any<T>(queue, problem);
}

template <typename T, encoding E> copes_status run_encoding(const gpu_queue &queue, const copes_lrpe_problem &problem)
{
    if (problem.act == COPES_ACT_NONE)
        return run_rows<T, E, activation::none>(queue, problem);
    if (problem.act == COPES_ACT_SILU)
        return run_rows<T, E, activation::silu>(queue, problem);
    return problem.softmax == COPES_OVER_FEATURES ? run_rows<T, E, activation::softmax>(queue, problem)
                                                  : run_rows<T, E, activation::elementwise>(queue, problem);
}

/* Heads that have one theta between them take the place of batch entries, as it is those that share angles. */
static copes_lrpe_problem with_entries(copes_lrpe_problem problem)
{
    constexpr int64_t ENOUGH = 4;
    if (problem.theta.stride[0] != 0 || problem.h < ENOUGH)
        return problem;
    for (copes_view *view : {&problem.src, &problem.x, &problem.dst})
        std::swap(view->stride[0], view->stride[2]);
    std::swap(problem.b, problem.h);
    return problem;
}

template <typename T> int64_t lrpe_workspace(const gpu_queue &queue, const copes_lrpe_problem &problem)
{
    return problem.softmax == COPES_OVER_SEQUENCE ? sequence_workspace<T>(queue, problem, false) : 0;
}

template <typename T> copes_status run_lrpe(const gpu_queue &queue, const copes_lrpe_problem &problem, void *workspace)
{
    if (problem.softmax == COPES_OVER_SEQUENCE)
        return run_sequence<T>(queue, problem, false, workspace);
    const copes_lrpe_problem sharing = with_entries(problem);
    if (problem.variant == COPES_LRPE_COSINE)
        return run_encoding<T, encoding::cosine>(queue, sharing);
    return problem.pairing == COPES_LRPE_HALF ? run_encoding<T, encoding::half>(queue, sharing)
                                              : run_encoding<T, encoding::interleaved>(queue, sharing);
}

#define INSTANTIATE(T)                                                                                                 \
    template int64_t lrpe_workspace<T>(const gpu_queue &, const copes_lrpe_problem &);                                 \
    template copes_status run_lrpe<T>(const gpu_queue &, const copes_lrpe_problem &, void *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU
