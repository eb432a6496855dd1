/* What the backend asks of the kernels, for each storage type T: f32, f16 and bf16. One file of kernels a function. */
#ifndef COPES_BACKENDS_GPU_KERNELS_H
#define COPES_BACKENDS_GPU_KERNELS_H

#include "backends/gpu/queue.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU {

/* Elementwise activations, and softmax along any axis. */
template <typename T> copes_status run_act(const queue &to, const copes_act_problem &problem);
template <typename T> copes_status run_softmax_rows(const queue &to, const copes_act_problem &problem);

/* lrpe where a token can be finished by itself: no activation, an elementwise one, or softmax over the features. */
template <typename T> copes_status run_lrpe(const queue &to, const copes_lrpe_problem &problem);

/* Softmax over the sequence, alone (K = 0) or before an encoding. */
template <typename T> size_t sequence_workspace(const queue &to, const copes_lrpe_problem &problem);
template <typename T> copes_status run_sequence(const queue &to, const copes_lrpe_problem &problem, void *workspace);

template <typename T> size_t tpa_workspace(const queue &to, const copes_tpa_problem &problem);
template <typename T> copes_status run_tpa(const queue &to, const copes_tpa_problem &problem, void *workspace);

} // namespace COPES_GPU

#endif
