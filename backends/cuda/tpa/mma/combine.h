/* How tpa_mma merges the partial rows of:
 *   the warps of a block that have the same heads    through shared memory
 *   the blocks of a cluster                          through each other's shared memory
 *   parts                                            through the workspace
 * An item is the 4 sums of a lane in one tile of mma.sync. Outputs stay in this order. So the lanes of a warp read
 * and write neighbouring items, and no index needs a division. */
#ifndef COPES_BACKENDS_CUDA_TPA_MMA_COMBINE_H
#define COPES_BACKENDS_CUDA_TPA_MMA_COMBINE_H

#include "backends/cuda/tpa/cut.h"
#include "backends/cuda/tpa/mma/warp.h"
#include "backends/gpu/tpa/output.h"

namespace COPES_GPU::tpa::mma
{

/* A block's outputs in shared memory: WIDTH / 8 items a lane for each (key group, head tile). `state` has a
 * row_state for each row of each key group, `merged` one for each row of the block. */
template <typename T, int WIDTH> struct block_outputs {
    static constexpr int ITEMS = WIDTH / 8 * 32; /* of a warp */
    int groups, tiles;
    row_state *state, *merged;
    float4 *o;

    __device__ __forceinline__ int items() const
    {
        return tiles * ITEMS;
    }
    __device__ __forceinline__ int heads() const
    {
        return tiles * WARP_HEADS;
    }
};

constexpr int block_outputs_bytes(int width, int groups, int tiles)
{
    return groups * tiles * width * (int)WARP_HEADS * 4;
}

/* Stores the states of a warp's rows. */
template <typename T, int WIDTH>
DEVICE void store_states(const block_outputs<T, WIDTH> &to, int key_group, int first,
                         const warp_outputs<T, WIDTH> &from)
{
    const auto [lane, g, t] = place_of_lane();
    for (int half = 0; half < 2; half++) {
        row_state state = from.weights.state(half);
        state.sum += shuffle_xor(state.sum, 1);
        state.sum += shuffle_xor(state.sum, 2);
        if (t == 0)
            to.state[key_group * to.heads() + first + half * 8 + g] = state;
    }
}

/* The state of a row over all key groups. */
template <typename T, int WIDTH> DEVICE row_state merge_states(const block_outputs<T, WIDTH> &block, int row)
{
    row_state merged = {-INFINITY, 0};
#pragma unroll 4
    for (int i = 0; i < block.groups; i++)
        merged.most = fmaxf(merged.most, block.state[i * block.heads() + row].most);
#pragma unroll 4
    for (int i = 0; i < block.groups; i++) {
        const row_state partial = block.state[i * block.heads() + row];
        merged.sum = fmaf(exp2_term(partial.most - shift_of(merged.most)), partial.sum, merged.sum);
    }
    return merged;
}

/* Stores a warp's outputs, relative to the maxima of the block's rows, so that merge_groups only adds. */
template <typename T, int WIDTH>
DEVICE void store_outputs(const block_outputs<T, WIDTH> &to, int key_group, int tile, warp_outputs<T, WIDTH> &from)
{
    const auto [lane, g, t] = place_of_lane();
    float weight[2];
    for (int half = 0; half < 2; half++) {
        const int row = tile * WARP_HEADS + half * 8 + g;
        const row_state merged = merge_states(to, row);
        weight[half] = exp2_term(from.weights.state(half).most - shift_of(merged.most));
        if (key_group == 0 && t == 0)
            to.merged[row] = merged;
    }
    from.shrink(weight);
    float4 *place = to.o + (key_group * to.tiles + tile) * to.ITEMS + lane;
#pragma unroll
    for (int i = 0; i < WIDTH / 8; i++)
        place[i * 32] = make_float4(from.o[i][0], from.o[i][1], from.o[i][2], from.o[i][3]);
}

/* Adds the outputs of all key groups to the first group's. */
template <typename T, int WIDTH> DEVICE void merge_groups(const block_outputs<T, WIDTH> &block)
{
    const int items = block.items();
    for (int item = threadIdx.x; item < items; item += blockDim.x) {
        float4 sum = block.o[item];
#pragma unroll 4
        for (int i = 1; i < block.groups; i++) {
            const float4 partial = block.o[i * items + item];
            sum.x += partial.x, sum.y += partial.y, sum.z += partial.z, sum.w += partial.w;
        }
        block.o[item] = sum;
    }
}

/* An item in each block of the cluster. It has features of two rows, 8 heads apart. */
template <typename T, int WIDTH> struct cluster_partials {
    const block_outputs<T, WIDTH> &block;
    int item, first; /* `first`: the first of its two rows */

    __device__ __forceinline__ row_state state(int other, int row) const
    {
        return *map_to_rank(block.merged + first + row * 8, other);
    }
    __device__ __forceinline__ float4 sums(int other) const
    {
        return *map_to_rank(block.o + item, other);
    }
};

/* Finishes the outputs of a part. Every block of the cluster has some of the part's keys, and finishes some of the
 * items. */
template <typename T, int WIDTH>
DEVICE void finish_outputs(const copes_tpa_problem &problem, const cluster_cut &cut, const output_place &to,
                           const block_outputs<T, WIDTH> &block)
{
    const int blocks = cut.cluster, own = blockIdx.x % blocks;
    for (int item = own * blockDim.x + threadIdx.x; item < block.items(); item += blockDim.x * blocks) {
        const int tile = item / block.ITEMS, g = item % 32 / 4, t = item % 4, row = tile * WARP_HEADS + g;
        const cluster_partials<T, WIDTH> partials = {block, item, row};
        const output_item<2> out =
            blocks <= 4 ? merge_item<4, 2>(partials, blocks, blocks) : merge_item<8, 2>(partials, blocks, blocks);
        int feature[2];
        tensor_product<T, WIDTH>::features_of(item % block.ITEMS / 32, t, feature);
        for (int half = 0; half < 2; half++)
            if (to.head + row + half * 8 < problem.h)
                put_output<T>(problem, to, to.head + row + half * 8, feature, out.row[half], out.o + 2 * half);
    }
}

} // namespace COPES_GPU::tpa::mma

#endif
