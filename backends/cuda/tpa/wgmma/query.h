/* The query of 16-bit storage as a matrix in shared memory for Hopper's tensor cores. For float32 see
 * float32/query.h.
 * A piece is 64 rows of 64 features, of 128 bytes each. Row 16 w + g + 8 h is slice h of head 8 w + g of the tile
 * (w: 0 to 3). The 16-byte chunks of a row are permuted as CU_TENSOR_MAP_SWIZZLE_128B permutes them. bf16 with lse
 * has as many pieces again after these. They have the third slice where h is 0, and zeros where h is 1. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_QUERY_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_QUERY_H

#include "backends/cuda/tpa/wgmma/box.h"

namespace COPES_GPU::tpa::wgmma
{

inline constexpr int GROUPS = 2, CONSUMERS = GROUPS * 128;
inline constexpr int EXCHANGE = 4 * TILE_HEADS * 4; /* bytes where a group's warps exchange numbers */
inline constexpr int QUERY_PIECE = 64 * 128;        /* bytes of 64 rows of 64 features */
template <typename T, int WIDTH> inline constexpr int FEATURE_ROW = WIDTH * (int)sizeof(T) + 16; /* of a rank of bq */

/* The query's factors aq (B, N, H, R) and bq (B, N, R, D), with strides in bytes. A block reads no other argument
 * before it asks for them. */
struct query_source {
    const char *aq, *bq;
    int32_t aq_batch, aq_token, aq_head, aq_rank, bq_batch, bq_token, bq_rank;
    int32_t ranks, features, heads;
    score_scale scale;
    bool vectors; /* bq can be read in whole vectors */

    /* aq of head `head`. Heads past the last read the last head's. */
    __device__ __forceinline__ const char *of_head(int b, int n, int head) const
    {
        const int own = head < heads ? head : heads - 1;
        return aq + (int64_t)b * aq_batch + (int64_t)n * aq_token + (int64_t)own * aq_head;
    }
};

#if COPES_SM90A

/* A lane's place in its warpgroup: it is lane 4 g + t of its warp. In 16-bit storage its head is 8 warp + g of the
 * tile. `exchange` and, in float32, `weights` are the group's places in shared memory. */
struct group_place {
    int lane, g, t, warp, group, tile;
    uint32_t exchange, weights;

    __device__ __forceinline__ int head() const /* among the block's */
    {
        return tile * TILE_HEADS + warp * 8 + g;
    }
};

/* Reads 16 bytes of neighbours at an address that is aligned to an element alone. */
template <typename T> DEVICE uint4 gather(const char *from)
{
    uint32_t words[4];
    for (int i = 0; i < 4; i++) {
        if constexpr (is_f32<T>) {
            words[i] = reinterpret_cast<const uint32_t *>(from)[i];
        } else {
            const uint16_t *x = reinterpret_cast<const uint16_t *>(from);
            words[i] = (uint32_t)x[2 * i] | (uint32_t)x[2 * i + 1] << 16;
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Starts to copy bq to shared memory: a row of FEATURE_ROW bytes a rank. The padding of rows spreads chunks over the
 * banks. Zeros fill the ranks up to a multiple of 16. All consumers take part. */
template <typename T, int WIDTH> DEVICE void copy_features(const query_source &query, int b, int n, uint32_t to)
{
    constexpr int length = vector_length<T>, chunks = WIDTH / length;
    const char *from = query.bq + (int64_t)b * query.bq_batch + (int64_t)n * query.bq_token;
    const int rows = (query.ranks + 15) / 16 * 16;
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * chunks; i += CONSUMERS) {
        const int rank = i / chunks, chunk = i % chunks;
        const bool exists = rank < query.ranks && chunk * length < query.features;
        const char *source = from + (exists ? (int64_t)rank * query.bq_rank + chunk * 16 : 0);
        const uint32_t place = to + rank * FEATURE_ROW<T, WIDTH> + chunk * 16;
        if (query.vectors)
            cp_async_16_zfill(place, source, exists ? 16 : 0);
        else
            st_shared_128(place, exists ? gather<T>(source) : make_uint4(0, 0, 0, 0));
    }
}

/* A lane's aq of its head, as words of the operand A: ranks 2t and 2t + 1, and 2t + 8 and 2t + 9, of the 16 from
 * `rank` on. */
struct query_ranks {
    uint32_t low, high;

    query_ranks() = default;
    __device__ __forceinline__ query_ranks(const query_source &query, int b, int n, int head, int t, int rank)
    {
        const char *from = query.of_head(b, n, head);
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) { /* at a rank that exists, so that no read waits for a branch */
            const int r = rank + 2 * t + i / 2 * 8 + i % 2;
            const int64_t place = (int64_t)(r < query.ranks ? r : query.ranks - 1) * query.aq_rank;
            x[i] = *reinterpret_cast<const uint16_t *>(from + place);
            x[i] = r < query.ranks ? x[i] : 0;
        }
        low = x[0] | x[1] << 16, high = x[2] | x[3] << 16;
    }
};

/* Forms the query of a lane's head from aq and from bq in shared memory. The constructor reads the first 16 ranks of
 * aq. */
template <typename T, int WIDTH, int SLICES> struct query_former {
    static constexpr int PIECES = WIDTH / 32; /* of 16 features, in half a row */
    typedef float features[2 * PIECES][4];    /* [j][i]: feature 8 j + 2t + i of a half, if i < 2 */
    const query_source &query;
    const int b, n, head;
    const group_place &w;
    const uint32_t bq, to; /* `to`: the tile's matrix, in shared memory */
    query_ranks first;

    /* Starts to read the factors. */
    __device__ __forceinline__ query_former(const query_source &source, int batch, int token, int block_head, int,
                                            const group_place &place, uint32_t factors, uint32_t matrix)
        : query(source), b(batch), n(token), head(block_head + place.head()), w(place), bq(factors), to(matrix)
    {
        copy_features<T, WIDTH>(query, b, n, bq);
        first = query_ranks(query, b, n, head, w.t, 0);
    }

    /* Forms half of a row. Scores are then logarithms to base 2. */
    __device__ __forceinline__ void form(features &q, int half) const
    {
        const uint32_t row = bq + w.lane % 16 * FEATURE_ROW<T, WIDTH> + w.lane / 16 * 16 + half * WIDTH;
        query_ranks ranks = first;
#pragma unroll
        for (int i = 0; i < 2 * PIECES; i++)
            q[i][0] = q[i][1] = q[i][2] = q[i][3] = 0;
        for (int rank = 0;;) {
            const uint32_t a[4] = {ranks.low, 0, ranks.high, 0};
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                uint32_t m[4];
                ldmatrix_x4_trans(m, row + rank * FEATURE_ROW<T, WIDTH> + i * 32);
                mma_m16n8k16(q[2 * i], a, m[0], m[1], T{});
                mma_m16n8k16(q[2 * i + 1], a, m[2], m[3], T{});
            }
            rank += 16;
            if (rank >= query.ranks)
                break;
            ranks = query_ranks(query, b, n, head, w.t, rank);
        }
#pragma unroll
        for (int i = 0; i < 2 * PIECES; i++)
            for (int k = 0; k < 2; k++) /* past the last feature, bq's zeros times an infinity are NaN */
                q[i][k] = half * (WIDTH / 2) + 8 * i < query.features ? query.scale.apply(q[i][k]) : 0;
    }

    /* Stores half of a row, times `factor`, in slices. */
    __device__ __forceinline__ void store(features &q, int half, float factor) const
    {
        constexpr int chunks = 2 * PIECES, halves = 8 / chunks; /* chunks of a half of a row; such halves in a piece */
        const uint32_t row = to + half / halves * QUERY_PIECE + (16 * w.warp + w.g) * 128 + w.t * 4;
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            const uint32_t at = row + ((half % halves * chunks + i) ^ w.g) * 16;
            float pair[2] = {q[i][0], q[i][1]};
            for (int k = 0; is_f16<T> && k < 2; k++)
                pair[k] *= factor;
            st_shared_32(at, take_pair<T>(pair));
            st_shared_32(at + 1024, take_pair<T>(pair));
            if (SLICES > 2) {
                st_shared_32(at + WIDTH / 64 * QUERY_PIECE, take_pair<T>(pair));
                st_shared_32(at + WIDTH / 64 * QUERY_PIECE + 1024, 0);
            }
        }
    }

    /* The lane's largest magnitude. */
    static __device__ __forceinline__ float largest_of(const features &q)
    {
        float top = 0;
#pragma unroll
        for (int i = 0; i < 2 * PIECES; i++)
            top = fmaxf(top, fmaxf(fabsf(q[i][0]), fabsf(q[i][1])));
        return top;
    }

    /* The row's largest. The quad has formed a row or, where groups have the same heads, half of one. */
    __device__ __forceinline__ float largest_of_row(float top, bool same_heads) const
    {
        top = fmaxf(top, shuffle_xor(top, 1));
        top = fmaxf(top, shuffle_xor(top, 2));
        if (!same_heads)
            return top;
        const uint32_t place = w.exchange + (8 * w.warp + w.g) * 4;
        st_shared_32(place, __float_as_uint(top));
        barrier_sync(CONSUMERS);
        return fmaxf(top, __uint_as_float(ld_shared_32(place + (w.group == 0 ? EXCHANGE : -EXCHANGE))));
    }

    /* Forms the tile, or half of its features if the other group has the same heads. Returns the factor of its
     * scores. */
    __device__ __forceinline__ float run(bool same_heads) const
    {
        const int begin = same_heads ? w.group : 0, end = same_heads ? w.group + 1 : 2;
        features q;
        float descale = 1, inverse = 1;
        if (is_f16<T>) { /* divides the row by a power of 2, so that f16 holds it */
            float top = 0;
#pragma unroll 1
            for (int half = begin; half < end; half++) {
                form(q, half);
                top = fmaxf(top, largest_of(q));
            }
            const uint32_t exponent = query_exponent(largest_of_row(top, same_heads));
            descale = __uint_as_float(exponent << 23);
            inverse = __uint_as_float((254 - exponent) << 23);
        }
#pragma unroll 1
        for (int half = begin; half < end; half++) {
            if (!is_f16<T> || !same_heads) /* else q still has it */
                form(q, half);
            store(q, half, inverse);
        }
        return descale;
    }
};

#endif

} // namespace COPES_GPU::tpa::wgmma

#endif
