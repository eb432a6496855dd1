/* A vendor's own kernels for tpa_decode, which tpa.cu asks before it takes its own. */
#ifndef COPES_BACKENDS_GPU_TPA_FAST_H
#define COPES_BACKENDS_GPU_TPA_FAST_H

#include "backends/gpu/queue.h"

#include "common/problem.h"

namespace COPES_GPU
{

/* Do they take these shapes and strides, and, as addresses are no part of what a workspace's size may depend on, these
 * addresses? */
template <typename T> bool fast_tpa_fits(const queue &to, const copes_tpa_problem &problem);
template <typename T> bool fast_tpa_aligned(const copes_tpa_problem &problem);
template <typename T> size_t fast_tpa_workspace(const queue &to, const copes_tpa_problem &problem);
template <typename T> copes_status run_fast_tpa(const queue &to, const copes_tpa_problem &problem, void *workspace);

#define FAST_TPA_INSTANTIATE(T)                                                                                        \
    template bool fast_tpa_fits<T>(const queue &, const copes_tpa_problem &);                                          \
    template bool fast_tpa_aligned<T>(const copes_tpa_problem &);                                                      \
    template size_t fast_tpa_workspace<T>(const queue &, const copes_tpa_problem &);                                   \
    template copes_status run_fast_tpa<T>(const queue &, const copes_tpa_problem &, void *);

} // namespace COPES_GPU

#endif
