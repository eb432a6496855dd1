/* tpa_decode on Hopper's tensor cores, for some of what tpa_mma.cu takes: rank 1, and heads in whole vectors. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_WGMMA_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_WGMMA_H

#include "backends/gpu/queue.h"

#include "common/problem.h"

namespace COPES_GPU
{

/* False: not this problem. */
template <typename T>
bool wgmma_tpa_workspace(const gpu_queue &queue, const copes_tpa_problem &problem, int64_t *bytes);
template <typename T>
bool run_wgmma_tpa(const gpu_queue &queue, const copes_tpa_problem &problem, void *workspace, copes_status *status);

} // namespace COPES_GPU

#endif
