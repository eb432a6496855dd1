/* A warpgroup's share of tpa_decode on Hopper's tensor cores: 32 heads, a stage's keys at a time. Of the 64 rows of its
 * products each head has two, which a thread holds side by side: those of the query's high and low parts, whose scores are
 * to be added; then the weights' parts. Keys and values are read from shared memory once for all. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_GROUP_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_GROUP_H

#include "backends/cuda/tpa/weights.h"
#include "backends/cuda/tpa/wgmma/query.h"

#if COPES_SM90A

namespace COPES_GPU::tpa::wgmma
{

/* What a lane has gathered of its head: o[4 j + i] + o[4 j + 2 + i] is feature 8 j + 2t + i. */
template <typename T, int WIDTH> struct group_outputs {
    float o[WIDTH / 2];
    row_weights<T, quad_rows<1>> weights;

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++)
            o[i] = 0;
        weights.clear();
    }

    __device__ __forceinline__ void shrink(const float (&by)[1])
    {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++)
            o[i] *= by[0];
    }
};

/* Of a lane's head: four keys of every 16, 2t, 2t + 1, 2t + 8 and 2t + 9. */
typedef float group_keys[BOX_KEYS / 16][4];

/* The coefficients of the lane's head for the keys of a stage, whose rows of 64 bytes come with their chunks permuted. */
template <typename T> DEVICE void read_coefficients(group_keys &x, const group_place &w, uint32_t piece)
{
    const int row = w.lane;
#pragma unroll
    for (int i = 0; i < BOX_KEYS / 32; i++) {
        uint32_t m[4];
        ldmatrix_x4_trans(m, piece + w.tile * HEAD_PIECE<T> + (32 * i + row) * 64 + (w.warp ^ (row >> 1 & 3)) * 16);
        for (int k = 0; k < 4; k++)
            storage<T>::unpack(m[k], &x[2 * i + k / 2][k % 2 * 2]);
    }
}

/* Scores of a stage, of whose keys `count` are the block's; query: the tile's matrix, unit: of its scores. */
template <typename T, int WIDTH, int PARTS>
DEVICE void score_stage(group_keys &s, uint32_t stage, int count, const group_place &w, uint32_t query, float unit)
{
    constexpr int pieces = WIDTH / 16, last = (PARTS - 1) * pieces - 1;
    const matrix_descriptor a(query, 16), b(stage, 16);
    float dot[BOX_KEYS / 2];
    wgmma_fence();
#pragma unroll
    for (int i = last; i >= 0; i--) { /* third parts first, as they are small */
        const int piece = i % pieces, column = piece % 4 * 32;
        wgmma_abt(dot, a.at(i / 4 * QUERY_PIECE + column), b.at(piece / 4 * FEATURE_PIECE + column), i < last, T{});
    }
    group_keys k;
    read_coefficients<T>(k, w, stage + stage_layout<T, WIDTH, false>::RANK);
    wgmma_commit_and_wait(dot);
#pragma unroll
    for (int i = 0; i < BOX_KEYS / 4; i++) {
        const float sum = dot[i / 2 * 4 + i % 2] + dot[i / 2 * 4 + 2 + i % 2];
        s[i / 4][i % 4] = (is_half<T> ? sum * unit : sum) * k[i / 4][i % 4];
    }
    if (count < BOX_KEYS) {
#pragma unroll
        for (int i = 0; i < BOX_KEYS / 4; i++)
            if (i / 2 * 8 + 2 * w.t + i % 2 >= count)
                s[i / 4][i % 4] = -INFINITY;
    }
}

/* o += weights, in two parts, times the stage's rows of bv. */
template <typename T, int WIDTH>
DEVICE void multiply_values(float (&o)[WIDTH / 2], const group_keys &weights, uint32_t values)
{
    uint32_t a[BOX_KEYS / 16][4];
#pragma unroll
    for (int i = 0; i < BOX_KEYS / 8; i++) {
        float pair[2] = {weights[i / 2][i % 2 * 2], weights[i / 2][i % 2 * 2 + 1]};
        a[i / 2][i % 2 * 2] = take_pair<T>(pair);
        a[i / 2][i % 2 * 2 + 1] = take_pair<T>(pair);
    }
    const matrix_descriptor b(values, FEATURE_PIECE);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < BOX_KEYS / 16; i++)
        wgmma_ab(o, a[i], b.at(i * 2048), T{});
    wgmma_commit_and_wait(o);
}

/* Attention of the group's heads over a stage, of whose keys `count` are the block's; the next one is `next` slots on. */
template <typename T, int WIDTH, int PARTS>
DEVICE void attend_stage(slot_reader &reader, int next, int tiles, int count, const group_place &w, uint32_t query,
                         float unit, float weight_unit, group_outputs<T, WIDTH> &out)
{
    const stage_layout<T, WIDTH, false> layout = {tiles};
    group_keys s, v;
    float by[1];
    const uint32_t keys = reader.enter(), values = keys + layout.half();
    score_stage<T, WIDTH, PARTS>(s, keys, count, w, query, unit);
    if (out.weights.raise(s, by))
        out.shrink(by);
    read_coefficients<T>(v, w, values + layout.heads());
    if (is_half<T>) {
        float top = 0;
#pragma unroll
        for (int i = 0; i < BOX_KEYS / 4; i++)
            top = fmaxf(top, fabsf(v[i / 4][i % 4]));
        if (out.weights.make_room(top, by))
            out.shrink(by);
    }
    out.weights.exponentiate(s, weight_unit);
#pragma unroll
    for (int i = 0; i < BOX_KEYS / 4; i++)
        v[i / 4][i % 4] *= s[i / 4][i % 4];
    multiply_values<T, WIDTH>(out.o, v, values);
    reader.leave(next);
}

} // namespace COPES_GPU::tpa::wgmma

#endif

#endif
