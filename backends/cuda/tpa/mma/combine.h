/* How the parts of a row become its output: the warps of a block that share heads through shared memory, the blocks of
 * a cluster through each other's shared memory, and parts without a cluster through the workspace. Outputs stay in the
 * order in which tensor cores leave them, 4 in an item: a warp then reads and writes items in a row, and no index needs
 * dividing. */
#ifndef COPES_BACKENDS_CUDA_TPA_MMA_COMBINE_H
#define COPES_BACKENDS_CUDA_TPA_MMA_COMBINE_H

#include "backends/cuda/tpa/cut.h"
#include "backends/cuda/tpa/mma/warp.h"
#include "backends/gpu/tpa/output.h"

namespace COPES_GPU::tpa::mma
{

/* A block's outputs in shared memory: for each key group and head tile WIDTH / 8 items a lane. The states of a group's
 * rows have a place of their own; so have those of the block's rows. */
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

/* Leaves a warp's maxima and sums with the block's. */
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

/* A row of the block, which all its groups have in common now. */
template <typename T, int WIDTH> DEVICE row_state merge_states(const block_outputs<T, WIDTH> &block, int row)
{
    row_state merged = {-INFINITY, 0};
#pragma unroll 4
    for (int i = 0; i < block.groups; i++)
        merged.most = fmaxf(merged.most, block.state[i * block.heads() + row].most);
#pragma unroll 4
    for (int i = 0; i < block.groups; i++) {
        const row_state part = block.state[i * block.heads() + row];
        merged.sum = fmaf(exp2_term(part.most - shift_of(merged.most)), part.sum, merged.sum);
    }
    return merged;
}

/* Leaves a warp's outputs with the block's, relative to the maxima of the block's rows. */
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

/* Adds the groups of a block to the first. */
template <typename T, int WIDTH> DEVICE void merge_groups(const block_outputs<T, WIDTH> &block)
{
    const int items = block.items();
    for (int item = threadIdx.x; item < items; item += blockDim.x) {
        float4 sum = block.o[item];
#pragma unroll 4
        for (int i = 1; i < block.groups; i++) {
            const float4 part = block.o[i * items + item];
            sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
        }
        block.o[item] = sum;
    }
}

/* An item's parts: features of two rows, 8 heads apart, in the blocks of the cluster. */
template <typename T, int WIDTH> struct cluster_parts {
    const block_outputs<T, WIDTH> &block;
    int item, first; /* and its first row */

    __device__ __forceinline__ row_state state(int rank, int row) const
    {
        return *map_to_rank(block.merged + first + row * 8, rank);
    }
    __device__ __forceinline__ float4 sums(int rank) const
    {
        return *map_to_rank(block.o + item, rank);
    }
};

/* Finishes the outputs of a part's keys, of which the blocks of a cluster have a share each: they share out the
 * items. */
template <typename T, int WIDTH>
DEVICE void finish_outputs(const copes_tpa_problem &problem, const cluster_cut &cut, const output_place &to,
                           const block_outputs<T, WIDTH> &block)
{
    const int blocks = cut.cluster, rank = blockIdx.x % blocks;
    for (int item = rank * blockDim.x + threadIdx.x; item < block.items(); item += blockDim.x * blocks) {
        const int tile = item / block.ITEMS, g = item % 32 / 4, t = item % 4, row = tile * WARP_HEADS + g;
        const cluster_parts<T, WIDTH> parts = {block, item, row};
        const output_item<2> out =
            blocks <= 4 ? merge_item<4, 2>(parts, blocks, blocks) : merge_item<8, 2>(parts, blocks, blocks);
        int feature[2];
        tensor_product<T, WIDTH>::features_of(item % block.ITEMS / 32, t, feature);
        for (int half = 0; half < 2; half++)
            if (to.head + row + half * 8 < problem.h)
                put_output<T>(problem, to, to.head + row + half * 8, feature, out.row[half], out.o + 2 * half);
    }
}

} // namespace COPES_GPU::tpa::mma

#endif
