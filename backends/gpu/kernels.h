/* What the backend asks of the kernels, for each storage type T: f32, f16 and bf16. */
#ifndef COPES_BACKENDS_GPU_KERNELS_H
#define COPES_BACKENDS_GPU_KERNELS_H

#include "backends/gpu/queue.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU
{

template <typename T> int64_t lrpe_workspace(const gpu_queue &queue, const copes_lrpe_problem &problem);
template <typename T> copes_status run_lrpe(const gpu_queue &queue, const copes_lrpe_problem &problem, void *workspace);

template <typename T> int64_t tpa_workspace(const gpu_queue &queue, const copes_tpa_problem &problem);
template <typename T> copes_status run_tpa(const gpu_queue &queue, const copes_tpa_problem &problem, void *workspace);

/* lrpe in whole vectors. False: not this problem. lrpe_tokens.cu and lrpe_batch.cu. */
enum class encoding { half, interleaved, cosine };
enum class activation {
    none,
    silu,
    elementwise, /* the others, told apart at run time */
    softmax      /* over the features */
};

template <typename T, encoding E, activation A>
bool run_lrpe_tokens(const gpu_queue &queue, const copes_lrpe_problem &problem, copes_status *status);
template <typename T, encoding E, activation A>
bool run_lrpe_batch(const gpu_queue &queue, const copes_lrpe_problem &problem, copes_status *status);

/* lrpe token by token, whatever its strides and sizes, and slowly: lrpe_any.cu. */
template <typename T> copes_status run_lrpe_any(const gpu_queue &queue, const copes_lrpe_problem &problem);

/* Softmax over the sequence, alone (K = 0) or before an encoding: sequence.cu. `given`: backward, and x is the softmax
 * itself instead of its argument. */
template <typename T> int64_t sequence_workspace(const gpu_queue &queue, const copes_lrpe_problem &problem, bool given);
template <typename T>
copes_status run_sequence(const gpu_queue &queue, const copes_lrpe_problem &problem, bool given, void *workspace);

} // namespace COPES_GPU

#endif
