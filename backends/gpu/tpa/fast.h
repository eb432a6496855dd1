/* A vendor's own kernels for tpa_decode, which tpa.cu asks before it takes its own. */
#ifndef COPES_BACKENDS_GPU_TPA_FAST_H
#define COPES_BACKENDS_GPU_TPA_FAST_H

#include "backends/gpu/queue.h"

#include "common/problem.h"

namespace COPES_GPU
{

/* False: not these shapes and strides, or, as addresses are no part of what a workspace's size may depend on, not these
 * addresses. */
template <typename T> bool fast_tpa_workspace(const gpu_queue &queue, const copes_tpa_problem &problem, int64_t *bytes);
template <typename T>
bool run_fast_tpa(const gpu_queue &queue, const copes_tpa_problem &problem, void *workspace, copes_status *status);

#define FAST_TPA_INSTANTIATE(T)                                                                                        \
    template bool fast_tpa_workspace<T>(const gpu_queue &, const copes_tpa_problem &, int64_t *);                      \
    template bool run_fast_tpa<T>(const gpu_queue &, const copes_tpa_problem &, void *, copes_status *);

} // namespace COPES_GPU

#endif
