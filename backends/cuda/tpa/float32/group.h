/* A warpgroup of tpa_wgmma in float32: 32 heads, 64 keys of a stage at a time. Numbers are split into three slices
 * of bf16.
 *   product    rows of the result   from                 columns of the result   from
 *   scores     64 keys              registers (bk)       32 heads                shared memory: slices of the query
 *   outputs    64 features          registers (bv)       32 heads                shared memory: slices of the weights
 * So one thread reads and splits each number of the cache, once, into registers that tensor cores read. */
#ifndef COPES_BACKENDS_CUDA_TPA_FLOAT32_GROUP_H
#define COPES_BACKENDS_CUDA_TPA_FLOAT32_GROUP_H

#include "backends/cuda/tpa/float32/query.h"
#include "backends/cuda/tpa/wgmma/group.h"

#if COPES_SM90A

namespace COPES_GPU::tpa::float32
{

/* The rows (heads) of a lane, and their reductions over keys. The lanes of a warpgroup with the same t have the same
 * 8 heads and different keys. Row 2 j + i is head 8 j + 2t + i. Score s[j][2 h + i] belongs to it, for two keys h. */
struct group_rows {
    static constexpr int COUNT = TILE_HEADS / 4;
    const group_place &w;

    static __device__ __forceinline__ constexpr int of(int i)
    {
        return i / 4 * 2 + i % 2;
    }

    __device__ __forceinline__ bool any(bool holds) const
    {
        return warpgroup_any(w.group, holds);
    }

    /* The place where a warp leaves its values for the lanes of the same t. */
    __device__ __forceinline__ uint32_t place(int warp) const
    {
        return w.exchange + (warp * 4 + w.t) * COUNT * 4;
    }

    /* Reduces values over all lanes of a row: by shuffles over a warp's, and through `exchange` over the four warps.
     * The group must have met since the last call, or a warp would overwrite values that others still read. */
    template <typename Join> __device__ __forceinline__ void reduce(float (&x)[COUNT], const Join &join) const
    {
        for (int lanes = 4; lanes < 32; lanes *= 2)
#pragma unroll
            for (int row = 0; row < COUNT; row++)
                x[row] = join(x[row], shuffle_xor(x[row], lanes));
        if (w.g == 0)
#pragma unroll
            for (int row = 0; row < COUNT; row++)
                st_shared_32(place(w.warp) + row * 4, __float_as_uint(x[row]));
        warpgroup_sync(w.group);
#pragma unroll
        for (int row = 0; row < COUNT; row++)
            for (int warp = 0; warp < 4; warp++) {
                const float other = __uint_as_float(ld_shared_32(place(warp) + row * 4));
                x[row] = warp == 0 ? other : join(x[row], other);
            }
    }

    __device__ __forceinline__ void raise(float (&top)[COUNT]) const
    {
        reduce(top, [](float x, float y) { return fmaxf(x, y); });
    }

    __device__ __forceinline__ void add(float (&sum)[COUNT]) const
    {
        reduce(sum, [](float x, float y) { return x + y; });
    }
};

/* The outputs so far of a lane. o[k][4 j + 2 h + i]: feature 64 k + 2 (8 warp + g) + h, head 8 j + 2t + i. */
template <int WIDTH> struct group_outputs {
    static constexpr int TILES = WIDTH / 64;
    float o[TILES][16];
    row_weights<f32, group_rows> weights;

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < TILES * 16; i++)
            o[i / 16][i % 16] = 0;
        weights.clear();
    }

    __device__ __forceinline__ void shrink(const float (&by)[group_rows::COUNT])
    {
#pragma unroll
        for (int i = 0; i < TILES * 16; i++)
            o[i / 16][i % 16] *= by[group_rows::of(i % 16)];
    }
};

typedef float group_scores[TILE_HEADS / 8][4];
typedef uint32_t split_rows[F32_SLICES][4]; /* a lane's words of the operand A, 64 x 16 */

/* Splits pairs of numbers. to[slice][i] has pair i. */
DEVICE void split(split_rows &to, float (&x)[8])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        for (int slice = 0; slice < F32_SLICES; slice++)
            to[slice][i] = take_finite_pair<bf16>(x + 2 * i);
}

/* c = a b^T. a is 64 x 64; `read` brings the lane's numbers of 16 columns. b is 32 x 64; its slices are in shared
 * memory. A step multiplies 16 columns, and STEPS of them are in flight.
 *   sums     slice of a   slices of b   registers
 *   first    0            0, 1, 2       first[0..15], [16..31], [32..47]
 *   second   1            0, 1          second[0..15], [16..31]
 *   third    2            0             third[0..15]
 * The products left out are below 2^-24. Products of different order have sums of their own, of at most 64 terms,
 * since tensor cores truncate sums instead of rounding them. */
template <int STEPS, typename Read> DEVICE void multiply_split(float (&c)[16], uint32_t b, const Read &read)
{
    const matrix_descriptor columns(b, 16);
    float first[48], second[32], third[16];
#pragma unroll
    for (int step = 0; step < 4; step += STEPS) {
        float x[STEPS][8];
        split_rows a[STEPS];
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            read(x[i], step + i);
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            split(a[i], x[i]);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            const uint64_t factors = columns.at((step + i) * 32);
            wgmma_abt(first, a[i][0], factors, step + i > 0);
            wgmma_abt(second, a[i][1], factors, step + i > 0);
            wgmma_abt(third, a[i][2], factors, step + i > 0);
        }
        wgmma_commit_and_wait(first, second, third);
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
        c[i] = first[i] + (first[16 + i] + second[i] + (first[32 + i] + second[16 + i] + third[i]));
}

/* The key of a lane among each 8: g with its three bits reversed, so that the eight lanes of a read meet in no bank. */
DEVICE int key_of_lane(const group_place &w)
{
    return (w.g & 1) << 2 | (w.g & 2) | w.g >> 2;
}

/* dot = 64 features of the query times the stage's keys. dot[4 j + 2 h + i]: key 16 warp + key_of_lane() + 8 h, head
 * 8 j + 2t + i.
 * The lane's x, for step s of 16 features (`half`: 0 or 1):
 *   x[2 half], x[2 half + 1]       key 16 warp + key_of_lane() + 8 half, features 16 s + 4t, 16 s + 4t + 1
 *   x[4 + 2 half], x[5 + 2 half]   the same key, features 16 s + 4t + 2, 16 s + 4t + 3 */
template <int STEPS> DEVICE void multiply_keys(float (&dot)[16], uint32_t keys, const group_place &w, uint32_t query)
{
    const int key = key_of_lane(w);
    const uint32_t row = keys + (16 * w.warp + key) * 128;
    multiply_split<STEPS>(dot, query, [=](float(&x)[8], int i) {
        const uint32_t at = row + i / 2 * FEATURE_PIECE + ((i % 2 * 4 + w.t) ^ key) * 16;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4 words = ld_shared_128(at + half * 1024);
            x[2 * half] = __uint_as_float(words.x), x[2 * half + 1] = __uint_as_float(words.y);
            x[4 + 2 * half] = __uint_as_float(words.z), x[5 + 2 * half] = __uint_as_float(words.w);
        }
    });
}

/* The coefficients of a half of a stage. Here they come in boxes of 32 heads; with FLAT they are as in memory. */
template <bool FLAT> struct half_coefficients {
    static constexpr int key_ranks = 1, value_ranks = 1;
    int place; /* offset in the half */

    __device__ __forceinline__ half_coefficients(int begin, int, const copes_tpa_problem &) : place(begin)
    {
    }

    /* Reads the lane's coefficients, in the order of its scores. */
    __device__ __forceinline__ void read(group_scores &x, const group_place &w, uint32_t half, int, int) const
    {
        const int key = key_of_lane(w);
        const uint32_t row = half + place + w.tile * HEAD_PIECE<f32> + (16 * w.warp + key) * 128;
#pragma unroll
        for (int j = 0; j < TILE_HEADS / 8; j++) {
            const uint32_t at = row + ((2 * j + w.t / 2) ^ key) * 16 + w.t % 2 * 8;
            const uint4 words = ld_shared_128(at, at + 1024);
            x[j][0] = __uint_as_float(words.x), x[j][1] = __uint_as_float(words.y);
            x[j][2] = __uint_as_float(words.z), x[j][3] = __uint_as_float(words.w);
        }
    }
};

template <> struct half_coefficients<true> {
    int place, head, heads, key_ranks, value_ranks;

    /* `first`: the block's first head. */
    __device__ __forceinline__ half_coefficients(int begin, int first, const copes_tpa_problem &problem)
        : place(begin), head(first), heads((int)problem.h), key_ranks((int)problem.rk), value_ranks((int)problem.rv)
    {
    }

    /* Reads the lane's coefficients of one rank. Heads past the last read the last head's. */
    __device__ __forceinline__ void read(group_scores &x, const group_place &w, uint32_t half, int rank,
                                         int ranks) const
    {
        const int row = heads * ranks * 4;
        int own = head + w.tile * TILE_HEADS + 2 * w.t;
        /* Hides `own` from the compiler. Otherwise it keeps eight addresses in registers, and the products need
         * those. */
        asm volatile("" : "+r"(own));
        const uint32_t first = half + place + (16 * w.warp + key_of_lane(w)) * row + rank * 4;
#pragma unroll
        for (int i = 0; i < TILE_HEADS / 4; i++) {
            const int which = own + i / 2 * 8 + i % 2, column = which < heads ? which : heads - 1;
            for (int key = 0; key < 2; key++)
                x[i / 2][2 * key + i % 2] = __uint_as_float(ld_shared_32(first + key * 8 * row + column * ranks * 4));
        }
    }
};

/* Stores a lane's weights in slices: a row of 128 bytes a head, a column a key. In each 16 keys the columns are:
 *   columns   2t    2t + 1    2t + 8    2t + 9
 *   keys      2t    2t + 8    2t + 1    2t + 9
 * so that a word is the pair of keys which a lane has. multiply_values reads bv in the same order. */
DEVICE void store_weights(const group_scores &s, const group_place &w)
{
    const int key = key_of_lane(w), column = key / 2 + key % 2 * 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = 2 * w.t + i;
        const uint32_t at = w.weights + row * 128 + ((2 * w.warp + column / 4) ^ row) * 16 + column % 4 * 4;
#pragma unroll
        for (int j = 0; j < TILE_HEADS / 8; j++) {
            float pair[2] = {s[j][i], s[j][2 + i]};
            for (int slice = 0; slice < F32_SLICES; slice++)
                st_shared_32(at + slice * SLICE_ROWS + j * 1024, take_finite_pair<bf16>(pair));
        }
    }
}

/* o += the stage's values times the weights. The lane's x, for step s of 16 keys (`half`: 0 or 1):
 *   x[4 half], x[4 half + 1]       feature 64 k + 2 (8 warp + g),       keys 16 s + 2t + half, 16 s + 2t + half + 8
 *   x[4 half + 2], x[4 half + 3]   feature 64 k + 2 (8 warp + g) + 1,   the same keys */
template <int WIDTH, int STEPS>
DEVICE void multiply_values(group_outputs<WIDTH> &out, uint32_t values, const group_place &w)
{
    const int chunk = w.warp % 2 * 4 + w.g / 2;
    const uint32_t column = values + w.warp / 2 * FEATURE_PIECE + w.g % 2 * 8;
    uint32_t row[2];
    for (int i = 0; i < 2; i++)
        row[i] = column + (2 * w.t + i) * 128 + (chunk ^ (2 * w.t + i)) * 16;
#pragma unroll
    for (int k = 0; k < WIDTH / 64; k++) {
        float sum[16];
        multiply_split<STEPS>(sum, w.weights, [=](float(&x)[8], int i) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t at = row[half] + 2 * k * FEATURE_PIECE + i * 2048;
                const uint4 words = ld_shared_128(at, at + 1024);
                x[4 * half] = __uint_as_float(words.x), x[4 * half + 1] = __uint_as_float(words.z);
                x[4 * half + 2] = __uint_as_float(words.y), x[4 * half + 3] = __uint_as_float(words.w);
            }
        });
        for (int i = 0; i < 16; i++)
            out.o[k][i] += sum[i];
    }
}

/* Attends with the group's heads to a stage: first to the half of the keys, then to the half of the values. count:
 * keys of the stage that are the block's. next: slots to the group's next stage. */
template <int WIDTH, bool FLAT>
DEVICE void attend_halves(slot_reader &reader, int next, int count, const group_place &w, uint32_t query,
                          const half_coefficients<FLAT> &of, float weight_scale, group_outputs<WIDTH> &out)
{
    constexpr int rank_bytes = stage_layout<f32, WIDTH, FLAT>::RANK;
    constexpr int steps = FLAT && WIDTH > 64 ? 1 : 4; /* as many as registers allow */
    const group_rows rows = {w};
    group_scores s, x;
    float by[group_rows::COUNT];
    const uint32_t keys = reader.enter();
#pragma unroll 1
    for (int rank = 0; rank < of.key_ranks; rank++) {
#pragma unroll
        for (int k = 0; k < WIDTH / 64; k++) {
            float dot[16];
            multiply_keys<steps>(dot, keys + rank * rank_bytes + 2 * k * FEATURE_PIECE, w, query + k * F32_PIECE);
            of.read(x, w, keys, rank, of.key_ranks);
#pragma unroll
            for (int i = 0; i < 16; i++)
                s[i / 4][i % 4] = fmaf(dot[i], x[i / 4][i % 4], rank + k > 0 ? s[i / 4][i % 4] : 0);
        }
    }
    reader.leave(1);
    const int key = 16 * w.warp + key_of_lane(w);
#pragma unroll
    for (int i = 0; i < 16; i++)
        s[i / 4][i % 4] = key + i % 4 / 2 * 8 < count ? s[i / 4][i % 4] : -INFINITY;
    if (out.weights.raise(s, by, rows))
        out.shrink(by);
    out.weights.exponentiate(s, weight_scale);
    const uint32_t values = reader.enter();
#pragma unroll 1
    for (int rank = 0; rank < of.value_ranks; rank++) {
        of.read(x, w, values, rank, of.value_ranks);
#pragma unroll
        for (int i = 0; i < 16; i++)
            x[i / 4][i % 4] *= s[i / 4][i % 4];
        if (rank > 0)
            warpgroup_sync(w.group); /* the tensor cores have read the weights of the rank before */
        store_weights(x, w);
        fence_proxy_async();
        warpgroup_sync(w.group);
        multiply_values<WIDTH, steps>(out, values + rank * rank_bytes, w);
    }
    reader.leave(next - 1);
}

} // namespace COPES_GPU::tpa::float32

#endif

#endif
