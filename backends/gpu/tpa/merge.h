/* Merges the partial outputs of tpa_decode. Latency binds, as a row has a few kilobytes. A team of threads merges a
 * chunk of 16 features of a row. Each thread has four features and a share of the parts, and starts all its reads at
 * once. The blocks that left the parts merge them where the blocks of a launch can wait for each other. Elsewhere a
 * kernel of its own does (merge.cu). */
#ifndef COPES_BACKENDS_GPU_TPA_MERGE_H
#define COPES_BACKENDS_GPU_TPA_MERGE_H

#include "launch.h"

#include "backends/gpu/queue.h"
#include "backends/gpu/tpa/output.h"

namespace COPES_GPU::tpa
{

inline constexpr int THREADS_OF_CHUNK = MERGED_FEATURES / 4, MOST_SHARES = 8,
                     LARGEST_TEAM = THREADS_OF_CHUNK * MOST_SHARES, PARTS_AT_ONCE = 8;

/* A thread's share of a row's parts, each `shares`-th, and four features of them. */
struct part_share {
    const row_state *states;
    const float *sums_of_first;
    int64_t apart;
    uint32_t shares;

    __device__ __forceinline__ row_state state(int i, int) const
    {
        return states[i * shares];
    }
    __device__ __forceinline__ float4 sums(int i) const
    {
        return *reinterpret_cast<const float4 *>(sums_of_first + i * apart);
    }
};

/* Merges the item with the items of the team's other shares. */
DEVICE void merge_shares(output_item<1> &item, uint32_t shares)
{
    for (int mask = THREADS_OF_CHUNK; mask < (int)(THREADS_OF_CHUNK * shares); mask *= 2) {
        const row_state other = {shuffle_xor(item.row[0].most, mask), shuffle_xor(item.row[0].sum, mask)};
        const row_factors by(item.row[0], other);
        for (int k = 0; k < 4; k++)
            item.o[k] = by.of(item.o[k], shuffle_xor(item.o[k], mask));
    }
}

/* Merges all rows by `blocks` blocks of `threads` threads, whole warps. Teams have half as many threads where there
 * are more chunks than teams and parts are few. */
template <typename T>
DEVICE void merge_rows(const copes_tpa_problem &problem, const partial_outputs &partials, bool pairs, uint32_t block,
                       uint32_t blocks, uint32_t threads)
{
    const uint32_t items = partials.rows * partials.by_chunk.divisor;
    const bool few = partials.parts <= MOST_SHARES / 2 * PARTS_AT_ONCE && items > blocks * (threads / LARGEST_TEAM);
    const uint32_t shares = few ? MOST_SHARES / 2 : MOST_SHARES, size = THREADS_OF_CHUNK * shares,
                   team = block * (threads / size) + threadIdx.x / size, teams = blocks * (threads / size);
    const int thread = threadIdx.x % THREADS_OF_CHUNK, share = (int)(threadIdx.x / THREADS_OF_CHUNK % shares);
    const int count = (int)((partials.parts - share + shares - 1) / shares),
              most = (int)((partials.parts + shares - 1) / shares);
#pragma unroll 1
    for (uint32_t first = 0; first < items;
         first += teams) { /* every thread loops as often, since shuffles need all lanes */
        const bool exists = first + team < items;
        uint32_t chunk, h, n;
        const uint32_t row = divide(exists ? first + team : 0, partials.by_chunk, &chunk),
                       b = divide(divide(row, partials.by_head, &h), partials.by_token, &n);
        const int feature = (int)chunk * MERGED_FEATURES + thread * 4;
        const int64_t length = partials.length(problem);
        const part_share parts = {partials.state_at(problem, row, share),
                                  partials.sums_at(problem, row, share) + (feature < length ? feature : 0),
                                  length * shares, shares};
        output_item<1> item = merge_item<PARTS_AT_ONCE, 1>(parts, most, count);
        merge_shares(item, shares);
        const int features[4] = {feature, feature + 1, feature + 2, feature + 3};
        if (exists && share == 0)
            write_output<T, 4>(problem, pairs, b, n, h, features, item.row[0], item.o, key_range(problem).any(b, n));
    }
}

/* Ends a kernel that may have left partials, if its launch merges them. threads: the threads of a block that have
 * not exited, whole warps. */
template <typename T>
DEVICE void merge_left(const copes_tpa_problem &problem, const partial_outputs &partials, bool pairs, uint32_t threads)
{
    if constexpr (BLOCKS_MEET) {
        if (!partials.merged)
            return;
        grid_sync();
        const uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        merge_rows<T>(problem, partials, pairs, block, gridDim.x * gridDim.y * gridDim.z, threads);
    }
}

/* Enqueues the kernel that merges partials, if the launch before it has left any and has not merged them. */
template <typename T>
copes_status merge_partials(const gpu_queue &queue, const copes_tpa_problem &problem, const partial_outputs &partials,
                            bool pairs);

} // namespace COPES_GPU::tpa

#endif
