/* The kernel that merges partial outputs of tpa_decode. It runs where the blocks that leave them cannot wait for
 * each other. */
#include "backends/gpu/tpa/merge.h"

namespace COPES_GPU::tpa
{

enum { THREADS = 128 };

template <typename T>
__global__ void __launch_bounds__(THREADS)
    tpa_merge(GPU_PARAMETER copes_tpa_problem problem, GPU_PARAMETER partial_outputs partials, bool pairs)
{
    merge_rows<T>(problem, partials, pairs, blockIdx.x, gridDim.x, THREADS);
}

template <typename T>
copes_status merge_partials(const gpu_queue &queue, const copes_tpa_problem &problem, const partial_outputs &partials,
                            bool pairs)
{
    if (partials.sums == nullptr || partials.merged)
        return COPES_OK;
    const int64_t threads = (int64_t)partials.rows * chunks_of_row(problem) * LARGEST_TEAM;
    return launch(queue, tpa_merge<T>, blocks_of((threads + THREADS - 1) / THREADS, THREADS), THREADS, 0, problem,
                  partials, pairs);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status merge_partials<T>(const gpu_queue &, const copes_tpa_problem &, const partial_outputs &,     \
                                            bool);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::tpa
