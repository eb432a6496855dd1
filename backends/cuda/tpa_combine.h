/* How the parts of a row become its output: the warps of a block that share heads through shared memory, the blocks of a
 * cluster through each other's shared memory, and parts without a cluster through the workspace. */
#ifndef COPES_BACKENDS_CUDA_TPA_COMBINE_H
#define COPES_BACKENDS_CUDA_TPA_COMBINE_H

#include "backends/cuda/tpa_warp.h"
#include "backends/gpu/tpa_merge.h"

namespace COPES_GPU
{

/* A block's outputs in shared memory, over its stages: `groups` of `heads` rows, each with its state, and the states of the
 * rows once the groups are merged into the first. */
template <int WIDTH> struct block_outputs {
    static constexpr int PITCH = WIDTH + 8; /* 8 rows of pairs fill the banks */
    int groups, heads;
    row_state *merged, *state;
    float *o;

    __device__ __forceinline__ block_outputs(void *memory, int groups, int heads) : groups(groups), heads(heads)
    {
        o = static_cast<float *>(memory);
        state = reinterpret_cast<row_state *>(o + groups * heads * PITCH);
        merged = state + groups * heads;
    }
};

constexpr int block_outputs_bytes(int width, int groups, int heads)
{
    return groups * heads * (width + 8) * 4 + (groups + 1) * heads * 8;
}

/* Leaves a warp's rows, from `first` on, in its group's place. */
template <typename T, int WIDTH>
DEVICE void store_rows(const block_outputs<WIDTH> &to, int key_group, int first, const warp_outputs<T, WIDTH> &from)
{
    const auto [lane, g, t] = place_of_lane();
    for (int half = 0; half < 2; half++) {
        const int row = key_group * to.heads + first + half * 8 + g;
        float sum = from.sum[half];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (t == 0)
            to.state[row] = {from.most[half] - from.headroom, sum};
        tensor_product<T, WIDTH>::store_row(from.o, half, t, to.o + row * to.PITCH);
    }
}

DEVICE void accumulate(float4 &sum, float weight, const float4 &x)
{
    sum.x = fmaf(weight, x.x, sum.x);
    sum.y = fmaf(weight, x.y, sum.y);
    sum.z = fmaf(weight, x.z, sum.z);
    sum.w = fmaf(weight, x.w, sum.w);
}

/* Merges `count` states and outputs, `at` giving the i-th, in order. */
template <typename State, typename Output>
DEVICE row_state merge_rows(int count, State state, Output output, float4 &sum)
{
    row_state row = {-INFINITY, 0};
#pragma unroll 8
    for (int i = 0; i < count; i++)
        row.most = fmaxf(row.most, state(i).most);
    sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int i = 0; i < count; i++) {
        const row_state part = state(i);
        const float weight = exp2_term(part.most - shift_of(row.most));
        row.sum = fmaf(weight, part.sum, row.sum);
        accumulate(sum, weight, output(i));
    }
    return row;
}

/* Merges the groups of a block into the first. */
template <int WIDTH> DEVICE void merge_groups(const block_outputs<WIDTH> &block)
{
    for (int i = threadIdx.x; i < block.heads * (WIDTH / 4); i += blockDim.x) {
        const int row = i / (WIDTH / 4), feature = i % (WIDTH / 4) * 4;
        float *o = block.o + row * block.PITCH + feature;
        float4 sum;
        const row_state merged = merge_rows(
            block.groups, [&](int g) { return block.state[g * block.heads + row]; },
            [&](int g) { return *reinterpret_cast<const float4 *>(o + g * block.heads * block.PITCH); }, sum);
        *reinterpret_cast<float4 *>(o) = sum;
        if (feature == 0)
            block.merged[row] = merged;
    }
}

/* The finished output of 4 features of a row. */
template <typename T>
DEVICE void write_output(const copes_tpa_problem &problem, int64_t b, int64_t n, int h, int feature, row_state row,
                         const float4 &sum)
{
    const int64_t *stride = problem.o.stride;
    T *o = static_cast<T *>(problem.o.data) + b * stride[0] + n * stride[1] + h * stride[2];
    const float factor = row.sum == 0 && row.most == -INFINITY ? 0 : (float)problem.value_scale / row.sum;
    const float x[4] = {sum.x, sum.y, sum.z, sum.w};
    for (int i = 0; i < 4 && feature + i < problem.e; i++)
        write_scalar(o + (feature + i) * stride[3], x[i] * factor);
    if (feature == 0)
        write_lse(problem, b, n, h, row);
}

/* Where a query token's outputs go: to the workspace, as a part's, or to the finished output. */
template <typename T> struct output_place {
    int64_t b, n;
    int64_t part;
    float *partials; /* nullptr: finished */
};

/* 4 features of a row. */
template <typename T>
DEVICE void put_output(const copes_tpa_problem &problem, const cache_cut &cut, const output_place<T> &to, int h,
                       int feature, row_state row, const float4 &sum)
{
    if (to.partials == nullptr) {
        write_output<T>(problem, to.b, to.n, h, feature, row, sum);
        return;
    }
    float *partial = partial_at(problem, cut, to.partials, (to.b * problem.n + to.n) * problem.h + h, to.part);
    if (feature == 0)
        partial[0] = row.most, partial[1] = row.sum;
    const float x[4] = {sum.x, sum.y, sum.z, sum.w};
    for (int i = 0; i < 4 && feature + i < problem.e; i++)
        partial[2 + feature + i] = x[i];
}

/* The blocks of a cluster share out the outputs, each reading all the blocks' parts. */
template <typename T, int WIDTH>
DEVICE void finish_cluster(const copes_tpa_problem &problem, const cache_cut &cut, const output_place<T> &to,
                           int blocks, int rank, const block_outputs<WIDTH> &block)
{
    for (int i = rank * blockDim.x + threadIdx.x; i < problem.h * (WIDTH / 4); i += blockDim.x * blocks) {
        const int row = i / (WIDTH / 4), feature = i % (WIDTH / 4) * 4;
        const float4 *o = reinterpret_cast<const float4 *>(block.o + row * block.PITCH + feature);
        float4 sum;
        const row_state merged = merge_rows(
            blocks, [&](int from) { return *in_block(block.merged + row, from); },
            [&](int from) { return *in_block(o, from); }, sum);
        put_output(problem, cut, to, row, feature, merged, sum);
    }
}

/* The same where a block has all of a part's keys. */
template <typename T, int WIDTH>
DEVICE void finish_block(const copes_tpa_problem &problem, const cache_cut &cut, const output_place<T> &to,
                         const block_outputs<WIDTH> &block)
{
    for (int i = threadIdx.x; i < problem.h * (WIDTH / 4); i += blockDim.x) {
        const int row = i / (WIDTH / 4), feature = i % (WIDTH / 4) * 4;
        const float4 o = *reinterpret_cast<const float4 *>(block.o + row * block.PITCH + feature);
        put_output(problem, cut, to, row, feature, block.merged[row], o);
    }
}

} // namespace COPES_GPU

#endif
