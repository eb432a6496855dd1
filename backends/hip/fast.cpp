/* AMD's own kernels, which those of backends/gpu ask first: there are none yet, so that they take every problem
 * themselves. Nor are there clusters, or launches that a stream with fewer compute units could not run. */
#include "backends/gpu/tpa/fast.h"
#include "backends/gpu/families.h"
#include "backends/gpu/sequence/column.h"

namespace COPES_GPU
{

template <typename T>
bool run_sequence_fast(const gpu_queue &, const copes_lrpe_problem &, bool, void *, copes_status *)
{
    return false;
}

template <typename T> int64_t fast_sequence_workspace(const gpu_queue &, const copes_lrpe_problem &, bool)
{
    return 0;
}

template <typename T> bool fast_tpa_workspace(const gpu_queue &, const copes_tpa_problem &, int64_t *)
{
    return false;
}

template <typename T> bool run_fast_tpa(const gpu_queue &, const copes_tpa_problem &, void *, copes_status *)
{
    return false;
}

copes_status find_stream_resources(const gpu_queue &, gpu_queue *)
{
    return COPES_OK;
}

void count_clusters(gpu_queue *)
{
}

#define INSTANTIATE(T)                                                                                                 \
    template bool run_sequence_fast<T>(const gpu_queue &, const copes_lrpe_problem &, bool, void *, copes_status *);   \
    template int64_t fast_sequence_workspace<T>(const gpu_queue &, const copes_lrpe_problem &, bool);                  \
    FAST_TPA_INSTANTIATE(T)
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU
