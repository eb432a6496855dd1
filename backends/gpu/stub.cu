#include "backends/gpu/kernels.h"
namespace COPES_GPU {
template <typename T> size_t tpa_workspace(const queue &, const copes_tpa_problem &) { return 0; }
template <typename T> copes_status run_tpa(const queue &, const copes_tpa_problem &, void *) { return copes_fail(COPES_ERROR_UNSUPPORTED, "stub"); }
#define I(T) template size_t tpa_workspace<T>(const queue &, const copes_tpa_problem &); template copes_status run_tpa<T>(const queue &, const copes_tpa_problem &, void *);
I(f32) I(f16) I(bf16)
}
