/* How the parts of a row become its output: the warps of a block that share heads through shared memory, the blocks of
 * a cluster through each other's shared memory, and parts without a cluster through the workspace. Outputs stay in the
 * order in which tensor cores leave them, 4 in an item: a warp then reads and writes items in a row, and no index needs
 * dividing. */
#ifndef COPES_BACKENDS_CUDA_TPA_COMBINE_H
#define COPES_BACKENDS_CUDA_TPA_COMBINE_H

#include "backends/cuda/tpa_warp.h"
#include "backends/gpu/tpa_merge.h"

namespace COPES_GPU
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
        float sum = from.sum[half];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (t == 0)
            to.state[key_group * to.heads() + first + half * 8 + g] = {from.most[half] - from.headroom, sum};
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
        weight[half] = exp2_term(from.most[half] - from.headroom - shift_of(merged.most));
        if (key_group == 0 && t == 0)
            to.merged[row] = merged;
    }
    from.shrink(weight[0], weight[1]);
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

/* An item: features of two rows, 8 heads apart, and these rows. */
struct output_item {
    row_state row[2];
    float o[4];
};

/* Adds an item's parts that some blocks of a cluster have, `count` of at most AT_ONCE from block `first` on. All are
 * read before one is used. */
template <int AT_ONCE, typename T, int WIDTH>
DEVICE void add_parts(output_item &to, const block_outputs<T, WIDTH> &block, int first, int count, int item, int row)
{
    row_state state[AT_ONCE][2];
    float4 part[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const bool exists = i < count;
        for (int half = 0; half < 2; half++)
            state[i][half] = exists ? *in_block(block.merged + row + half * 8, first + i) : row_state{-INFINITY, 0};
        part[i] = exists ? *in_block(block.o + item, first + i) : make_float4(0, 0, 0, 0);
    }
    float shift[2];
    for (int half = 0; half < 2; half++) {
        const float before = to.row[half].most;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            to.row[half].most = fmaxf(to.row[half].most, state[i][half].most);
        shift[half] = shift_of(to.row[half].most);
        const float shrink = exp2_term(before - shift[half]);
        to.row[half].sum *= shrink, to.o[2 * half] *= shrink, to.o[2 * half + 1] *= shrink;
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const float x[4] = {part[i].x, part[i].y, part[i].z, part[i].w};
        for (int half = 0; half < 2; half++) {
            const float weight = exp2_term(state[i][half].most - shift[half]);
            to.row[half].sum = fmaf(weight, state[i][half].sum, to.row[half].sum);
            for (int k = 2 * half; k < 2 * half + 2; k++)
                to.o[k] = fmaf(weight, x[k], to.o[k]);
        }
    }
}

/* Where a query token's outputs go: to the workspace, as a part's, or to the finished output. */
struct output_place {
    int64_t b, n;
    int head; /* the first of the block's rows */
    int64_t part;
    float *partials; /* nullptr: finished */
    bool pairs;      /* may two features be written as one word? */
};

/* Two features of a head: neighbours, where they may be written as one word. */
template <typename T>
DEVICE void put_output(const copes_tpa_problem &problem, const cache_cut &cut, const output_place &to, int h,
                       const int (&feature)[2], row_state row, const float *x)
{
    if (to.partials != nullptr) {
        float *partial = partial_at(problem, cut, to.partials, (to.b * problem.n + to.n) * problem.h + h, to.part);
        if (feature[0] == 0)
            partial[0] = row.most, partial[1] = row.sum;
        for (int i = 0; i < 2; i++)
            if (feature[i] < (int)problem.e)
                partial[2 + feature[i]] = x[i];
        return;
    }
    T *o = output_at<T>(problem, to.b, to.n, h);
    const float factor = row.sum == 0 && row.most == -INFINITY ? 0 : (float)problem.value_scale / row.sum;
    const float finished[2] = {x[0] * factor, x[1] * factor};
    if (to.pairs && feature[0] < (int)problem.e)
        *reinterpret_cast<uint32_t *>(o + feature[0]) = storage<T>::pack(finished);
    for (int i = 0; i < 2 && !to.pairs; i++)
        if (feature[i] < (int)problem.e)
            write_scalar(o + feature[i] * problem.o.stride[3], finished[i]);
    if (feature[0] == 0)
        write_lse(problem, to.b, to.n, h, row);
}

/* Finishes the outputs of a part's keys, of which a cluster of `blocks` has a share each: they share out the items. */
template <typename T, int WIDTH>
DEVICE void finish_outputs(const copes_tpa_problem &problem, const cache_cut &cut, const output_place &to, int blocks,
                           int rank, const block_outputs<T, WIDTH> &block)
{
    for (int item = rank * blockDim.x + threadIdx.x; item < block.items(); item += blockDim.x * blocks) {
        const int tile = item / block.ITEMS, g = item % 32 / 4, t = item % 4, row = tile * WARP_HEADS + g;
        output_item out = {{{-INFINITY, 0}, {-INFINITY, 0}}, {0, 0, 0, 0}};
        if (blocks <= 4)
            add_parts<4>(out, block, 0, blocks, item, row);
        for (int first = 0; first < blocks && blocks > 4; first += 8)
            add_parts<8>(out, block, first, blocks - first, item, row);
        int feature[2];
        tensor_product<T, WIDTH>::features_of(item % block.ITEMS / 32, t, feature);
        for (int half = 0; half < 2; half++)
            if (to.head + row + half * 8 < problem.h)
                put_output<T>(problem, cut, to, to.head + row + half * 8, feature, out.row[half], out.o + 2 * half);
    }
}

} // namespace COPES_GPU

#endif
