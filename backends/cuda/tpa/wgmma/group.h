/* A warpgroup of tpa_wgmma in 16-bit storage: 32 heads, a stage at a time. A product has 64 rows, two for each head.
 * A lane has both, so that it adds them without an exchange. Tensor cores read keys and values from shared memory
 * once for all heads. Registers of lane 4 g + t of warp w (h, i: 0 or 1):
 *   product   row 16 w + g + 8 h of the result             c[4 j + 2 h + i]
 *   scores    slice h of the query of head 8 w + g         key 8 j + 2t + i
 *   outputs   slice h of the weights of head 8 w + g       feature 8 j + 2t + i
 * A third slice of the query has rows of its own in a second matrix (query.h), whose products are added to the same
 * registers. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_GROUP_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_GROUP_H

#include "backends/cuda/tpa/weights.h"
#include "backends/cuda/tpa/wgmma/query.h"

#if COPES_SM90A

namespace COPES_GPU::tpa::wgmma
{

/* The outputs so far of a lane's head. o[4 j + i] + o[4 j + 2 + i] is feature 8 j + 2t + i. */
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

/* Numbers of a lane's head, [m][2 k + i] of key 16 m + 8 k + 2t + i. */
typedef float group_keys[BOX_KEYS / 16][4];

/* Reads the coefficients of the lane's head for the keys of a stage. A row of 32 heads has 64 bytes, and its chunks
 * are permuted (CU_TENSOR_MAP_SWIZZLE_64B). Each 8 x 8 matrix has 8 keys and the warp's 8 heads, and comes
 * transposed. */
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

/* Computes the scores of a stage. `count` of its keys are the block's; scores of the others are -infinity. query:
 * the tile's matrix. descale: the factor of f16's scores. */
template <typename T, int WIDTH, int SLICES>
DEVICE void score_stage(group_keys &s, uint32_t stage, int count, const group_place &w, uint32_t query, float descale)
{
    constexpr int pieces = WIDTH / 16, last = (SLICES - 1) * pieces - 1;
    const matrix_descriptor a(query, 16), b(stage, 16);
    float dot[BOX_KEYS / 2];
    wgmma_fence();
#pragma unroll
    for (int i = last; i >= 0; i--) { /* third slices first */
        const int piece = i % pieces, column = piece % 4 * 32;
        wgmma_abt(dot, a.at(i / 4 * QUERY_PIECE + column), b.at(piece / 4 * FEATURE_PIECE + column), i < last, T{});
    }
    group_keys k;
    read_coefficients<T>(k, w, stage + stage_layout<T, WIDTH, false>::RANK);
    wgmma_commit_and_wait(dot);
#pragma unroll
    for (int i = 0; i < BOX_KEYS / 4; i++) {
        const float sum = dot[i / 2 * 4 + i % 2] + dot[i / 2 * 4 + 2 + i % 2];
        s[i / 4][i % 4] = (is_f16<T> ? sum * descale : sum) * k[i / 4][i % 4];
    }
    if (count < BOX_KEYS) {
#pragma unroll
        for (int i = 0; i < BOX_KEYS / 4; i++)
            if (i / 2 * 8 + 2 * w.t + i % 2 >= count)
                s[i / 4][i % 4] = -INFINITY;
    }
}

/* o += the weights, in two slices, times the stage's rows of bv. Slice h of key 16 m + 8 k + 2t + i is in word 2 k +
 * h of a[m]. */
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

/* Attends with the group's heads to a stage. count: keys of the stage that are the block's. next: slots to the
 * group's next stage. */
template <typename T, int WIDTH, int SLICES>
DEVICE void attend_stage(slot_reader &reader, int next, int tiles, int count, const group_place &w, uint32_t query,
                         float descale, float weight_scale, group_outputs<T, WIDTH> &out)
{
    const stage_layout<T, WIDTH, false> layout = {tiles};
    group_keys s, v;
    float by[1];
    const uint32_t keys = reader.enter(), values = keys + layout.half();
    score_stage<T, WIDTH, SLICES>(s, keys, count, w, query, descale);
    if (out.weights.raise(s, by))
        out.shrink(by);
    read_coefficients<T>(v, w, values + layout.heads());
    if (is_f16<T>) {
        float top = 0;
#pragma unroll
        for (int i = 0; i < BOX_KEYS / 4; i++)
            top = fmaxf(top, fabsf(v[i / 4][i % 4]));
        if (out.weights.make_room(top, by))
            out.shrink(by);
    }
    out.weights.exponentiate(s, weight_scale);
#pragma unroll
    for (int i = 0; i < BOX_KEYS / 4; i++)
        v[i / 4][i % 4] *= s[i / 4][i % 4];
    multiply_values<T, WIDTH>(out.o, v, values);
    reader.leave(next);
}

} // namespace COPES_GPU::tpa::wgmma

#endif

#endif
