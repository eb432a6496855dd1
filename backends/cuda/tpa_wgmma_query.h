/* The query of tpa_decode as a matrix in shared memory for Hopper's tensor cores: two rows a head, of its high and its low
 * parts; and, for bfloat16 where lse is wanted, a second matrix of third parts and zeros. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_QUERY_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_QUERY_H

#include "backends/cuda/tpa_parts.h"
#include "backends/cuda/tpa_wgmma_box.h"

#if COPES_SM90A

namespace COPES_GPU
{

/* Lane 4 g + t of a warpgroup's warp w has head 8 w + g of a tile. */
struct group_place {
    int lane, g, t, warp, tile;

    __device__ __forceinline__ int head() const /* of the block's */
    {
        return tile * TILE_HEADS + warp * 8 + g;
    }
};

/* Eight neighbours that may lie at any element's address. */
DEVICE uint4 gather(const char *from)
{
    const uint16_t *x = reinterpret_cast<const uint16_t *>(from);
    uint32_t words[4];
    for (int i = 0; i < 4; i++)
        words[i] = (uint32_t)x[2 * i] | (uint32_t)x[2 * i + 1] << 16;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Starts to copy bq, of which shared memory has rows of FEATURE_ROW bytes, so that chunks spread over the banks; ranks up
 * to a multiple of 16, those past the last 0. The work of the block's first so many threads. */
template <int WIDTH> DEVICE void copy_features(const query_source &query, int b, int n, uint32_t to, int threads)
{
    constexpr int chunks = WIDTH / 8;
    const char *from = query.bq + (int64_t)b * query.bq_batch + (int64_t)n * query.bq_token;
    const int rows = (query.ranks + 15) / 16 * 16;
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * chunks; i += threads) {
        const int rank = i / chunks, chunk = i % chunks;
        const bool exists = rank < query.ranks && chunk * 8 < query.features;
        const char *source = from + (exists ? (int64_t)rank * query.bq_rank + chunk * 16 : 0);
        const uint32_t place = to + rank * FEATURE_ROW<WIDTH> + chunk * 16;
        if (query.vectors)
            copy_async(place, source, exists ? 16 : 0);
        else
            write_shared(place, exists ? gather(source) : make_uint4(0, 0, 0, 0));
    }
}

/* What a lane has of aq, of its head: ranks 2t, 2t + 1, 2t + 8, 2t + 9 of the 16 from `rank` on. */
struct query_ranks {
    uint32_t low, high;

    __device__ __forceinline__ query_ranks(const query_source &query, int b, int n, int head, int t, int rank)
    {
        const int own = head < query.heads ? head : query.heads - 1;
        const char *from =
            query.aq + (int64_t)b * query.aq_batch + (int64_t)n * query.aq_token + (int64_t)own * query.aq_head;
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) { /* always at a rank that exists, so that no read waits for a branch */
            const int r = rank + 2 * t + i / 2 * 8 + i % 2;
            const int64_t place = (int64_t)(r < query.ranks ? r : query.ranks - 1) * query.aq_rank;
            x[i] = *reinterpret_cast<const uint16_t *>(from + place);
            x[i] = r < query.ranks ? x[i] : 0;
        }
        low = x[0] | x[1] << 16, high = x[2] | x[3] << 16;
    }
};

/* Forms a lane's head from aq's ranks, the first 16 of which have come to it, and bq in shared memory. */
template <typename T, int WIDTH, int PARTS> struct query_former {
    static constexpr int PIECES = WIDTH / 32; /* of 16 features, of half a row */
    typedef float features[2 * PIECES][4];    /* of them 2t, 2t + 1 of each 8 */
    const query_source &query;
    const int b, n;
    const group_place &w;
    const query_ranks first;
    const uint32_t bq, to; /* where the tile's matrix is to be, in shared memory */

    /* Half of a row, in units of log 2. */
    __device__ __forceinline__ void form(features &q, int half) const
    {
        const uint32_t row = bq + w.lane % 16 * FEATURE_ROW<WIDTH> + w.lane / 16 * 16 + half * WIDTH;
        query_ranks ranks = first;
#pragma unroll
        for (int i = 0; i < 2 * PIECES; i++)
            q[i][0] = q[i][1] = q[i][2] = q[i][3] = 0;
        for (int rank = 0;;) {
            const uint32_t a[4] = {ranks.low, 0, ranks.high, 0};
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                uint32_t m[4];
                load_transposed(m, row + rank * FEATURE_ROW<WIDTH> + i * 32);
                multiply(q[2 * i], a, m[0], m[1], T{});
                multiply(q[2 * i + 1], a, m[2], m[3], T{});
            }
            rank += 16;
            if (rank >= query.ranks)
                break;
            ranks = query_ranks(query, b, n, w.head(), w.t, rank);
        }
#pragma unroll
        for (int i = 0; i < 2 * PIECES; i++)
            for (int k = 0; k < 2; k++)
                q[i][k] = query.scale.apply(q[i][k]);
    }

    /* Leaves half of a row, times `factor`, in parts. */
    __device__ __forceinline__ void store(features &q, int half, float factor) const
    {
        constexpr int chunks = 2 * PIECES, halves = 8 / chunks; /* of a half; in a piece */
        const uint32_t row = to + half / halves * QUERY_PIECE + (16 * w.warp + w.g) * 128 + w.t * 4;
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            const uint32_t at = row + ((half % halves * chunks + i) ^ w.g) * 16;
            float pair[2] = {q[i][0], q[i][1]};
            for (int k = 0; is_half<T> && k < 2; k++)
                pair[k] *= factor;
            write_shared_32(at, take_pair<T>(pair));
            write_shared_32(at + 1024, take_pair<T>(pair));
            if (PARTS > 2) {
                write_shared_32(at + WIDTH / 64 * QUERY_PIECE, take_pair<T>(pair));
                write_shared_32(at + WIDTH / 64 * QUERY_PIECE + 1024, 0);
            }
        }
    }

    /* Forms halves from `begin` on, before `end`. Returns the unit of the scores that come of them. */
    __device__ __forceinline__ float run(int begin, int end) const
    {
        features q;
        float unit = 1, inverse = 1;
        if (is_half<T>) { /* brings the row into its range */
            float top = 0;
#pragma unroll 1
            for (int half = 0; half < 2; half++) {
                form(q, half);
#pragma unroll
                for (int i = 0; i < 2 * PIECES; i++)
                    top = fmaxf(top, fmaxf(fabsf(q[i][0]), fabsf(q[i][1])));
            }
            top = fmaxf(top, shuffle_xor(top, 1));
            top = fmaxf(top, shuffle_xor(top, 2));
            const uint32_t exponent = query_exponent(top);
            unit = __uint_as_float(exponent << 23);
            inverse = __uint_as_float((254 - exponent) << 23);
        }
#pragma unroll 1
        for (int half = begin; half < end; half++) {
            form(q, half);
            store(q, half, inverse);
        }
        return unit;
    }
};

} // namespace COPES_GPU

#endif

#endif
