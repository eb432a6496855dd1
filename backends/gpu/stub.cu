#include "backends/gpu/kernels.h"
namespace COPES_GPU {
template <typename T> size_t tpa_workspace(const queue &, const copes_tpa_problem &) { return 0; }
template <typename T> copes_status run_tpa(const queue &, const copes_tpa_problem &, void *) { return copes_fail(COPES_ERROR_UNSUPPORTED, "stub"); }
template <typename T> size_t sequence_workspace(const queue &, const copes_lrpe_problem &, bool) { return 0; }
template <typename T> copes_status run_sequence(const queue &, const copes_lrpe_problem &, bool, void *) { return COPES_OK; }
#define I(T) template size_t tpa_workspace<T>(const queue &, const copes_tpa_problem &); template copes_status run_tpa<T>(const queue &, const copes_tpa_problem &, void *); template size_t sequence_workspace<T>(const queue &, const copes_lrpe_problem &, bool); template copes_status run_sequence<T>(const queue &, const copes_lrpe_problem &, bool, void *);
I(f32) I(f16) I(bf16)
}
