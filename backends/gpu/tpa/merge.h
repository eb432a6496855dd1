/* Merges the partial outputs of tpa_decode. Bound by latency, a few kilobytes a row: a team of threads has 16 features of
 * it, four each and a share of the parts, so that all reads of a thread are under way at once. Where the blocks of a launch
 * can wait for each other, those that have left the parts merge them; elsewhere a kernel of its own does. */
#ifndef COPES_BACKENDS_GPU_TPA_MERGE_H
#define COPES_BACKENDS_GPU_TPA_MERGE_H

#include "launch.h"

#include "backends/gpu/queue.h"
#include "backends/gpu/tpa/output.h"

namespace COPES_GPU::tpa
{

inline constexpr int LANES_OF_ROW = MERGED_FEATURES / 4, MOST_SHARES = 8, LARGEST_TEAM = LANES_OF_ROW * MOST_SHARES,
                     PARTS_AT_ONCE = 8;

/* A thread's share of a row's parts: four features of every so many. */
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

/* Takes in what the other shares' threads have of the row. */
DEVICE void merge_shares(output_item<1> &item, uint32_t shares)
{
    for (int mask = LANES_OF_ROW; mask < (int)(LANES_OF_ROW * shares); mask *= 2) {
        const row_state other = {shuffle_xor(item.row[0].most, mask), shuffle_xor(item.row[0].sum, mask)};
        const row_factors by(item.row[0], other);
        for (int k = 0; k < 4; k++)
            item.o[k] = by.of(item.o[k], shuffle_xor(item.o[k], mask));
    }
}

/* Merges all rows by some blocks of so many threads, whole warps. Teams are of half as many threads where there are more
 * rows than teams, and parts are few enough. */
template <typename T>
DEVICE void merge_rows(const copes_tpa_problem &problem, const partial_outputs &partials, bool pairs, uint32_t block,
                       uint32_t blocks, uint32_t threads)
{
    const uint32_t items = partials.rows * partials.by_chunk.divisor;
    const bool few = partials.parts <= MOST_SHARES / 2 * PARTS_AT_ONCE && items > blocks * (threads / LARGEST_TEAM);
    const uint32_t shares = few ? MOST_SHARES / 2 : MOST_SHARES, size = LANES_OF_ROW * shares,
                   team = block * (threads / size) + threadIdx.x / size, teams = blocks * (threads / size);
    const int lane = threadIdx.x % LANES_OF_ROW, share = (int)(threadIdx.x / LANES_OF_ROW % shares);
    const int count = (int)((partials.parts - share + shares - 1) / shares),
              most = (int)((partials.parts + shares - 1) / shares);
#pragma unroll 1
    for (uint32_t first = 0; first < items; first += teams) { /* as often in every thread, as shuffles ask for */
        const bool exists = first + team < items;
        uint32_t chunk, h, n;
        const uint32_t row = divide(exists ? first + team : 0, partials.by_chunk, &chunk),
                       b = divide(divide(row, partials.by_head, &h), partials.by_token, &n);
        const int feature = (int)chunk * MERGED_FEATURES + lane * 4;
        const int64_t length = partials.length(problem), visible = key_range(problem).visible(b, n);
        const part_share parts = {partials.state_at(problem, row, share),
                                  partials.sums_at(problem, row, share) + (feature < length ? feature : 0),
                                  length * shares, shares};
        output_item<1> item = merge_item<PARTS_AT_ONCE, 1>(parts, most, count);
        merge_shares(item, shares);
        const int features[4] = {feature, feature + 1, feature + 2, feature + 3};
        if (exists && share == 0)
            write_output<T, 4>(problem, pairs, b, n, h, features, item.row[0], item.o, visible > 0);
    }
}

/* Ends a kernel that may have left partials, where its launch is to merge them. `threads`: of each block, those that have
 * not left, whole warps. */
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

/* Enqueues the merging of partials that the launch before it has left. */
template <typename T>
copes_status merge_partials(const gpu_queue &queue, const copes_tpa_problem &problem, const partial_outputs &partials,
                            bool pairs);

} // namespace COPES_GPU::tpa

#endif
