/* The query of float32 for Hopper's tensor cores: for each slice a row a head, of bf16. Multiply-adds form it. */
#ifndef COPES_BACKENDS_CUDA_TPA_FLOAT32_QUERY_H
#define COPES_BACKENDS_CUDA_TPA_FLOAT32_QUERY_H

#include "backends/cuda/tpa/wgmma/query.h"

namespace COPES_GPU::tpa::float32
{

using namespace wgmma;

inline constexpr int F32_SLICES = 3;
inline constexpr int SLICE_ROWS = TILE_HEADS * 128;       /* bytes of a slice in a piece */
inline constexpr int F32_PIECE = F32_SLICES * SLICE_ROWS; /* bytes; 64 features of the query, or weights of 64 keys */

/* Bytes of a rank of aq in shared memory. The padding spreads ranks over the banks. */
__host__ __device__ constexpr int coefficient_row(int tiles)
{
    return (tiles * TILE_HEADS + 4) * 4;
}

#if COPES_SM90A

/* Forms a tile's query, or half of it where both groups have the same heads, from aq and bq in shared memory. bq has
 * rows as in 16-bit storage. After it lies aq of the block's heads, rank by rank.
 * The query in shared memory, for each 64 features: F32_SLICES slices of 32 rows of 128 bytes. Row r is head r of
 * the tile. Its 16-byte chunks are permuted as CU_TENSOR_MAP_SWIZZLE_128B permutes them. In each 16 features the
 * columns are:
 *   columns    2t    2t + 1    2t + 8    2t + 9
 *   features   4t    4t + 1    4t + 2    4t + 3
 * since a lane reads four features of a key at once (group.h). A lane forms a pair of features of four heads at a
 * time. */
template <int WIDTH, int SLICES> struct query_former {
    static constexpr int HEADS = 4;
    typedef float features[HEADS][2];
    const query_source &query;
    const group_place &w;
    const int tiles;
    const uint32_t bq, to;

    /* Starts to copy the factors to shared memory. */
    __device__ __forceinline__ query_former(const query_source &source, int b, int n, int head, int block_tiles,
                                            const group_place &place, uint32_t factors, uint32_t matrix)
        : query(source), w(place), tiles(block_tiles), bq(factors), to(matrix)
    {
        copy_features<f32, WIDTH>(query, b, n, bq);
        for (int first = 0; first < query.ranks; first += 16)
            for (int i = threadIdx.x; i < 16 * TILE_HEADS * tiles; i += CONSUMERS) {
                const int rank = first + i % 16, own = i / 16;
                if (rank < query.ranks)
                    cp_async_4(coefficient(rank, own), query.of_head(b, n, head + own) + (int64_t)rank * query.aq_rank);
            }
    }

    /* The place of aq for a rank and a head of the block. */
    __device__ __forceinline__ uint32_t coefficient(int rank, int head) const
    {
        return bq + (query.ranks + 15) / 16 * 16 * FEATURE_ROW<f32, WIDTH> + rank * coefficient_row(tiles) + head * 4;
    }

    /* Forms the lane's pair of the 64 features from 64 `piece` on, for the tile's heads from `head` on. Scores are
     * then logarithms to base 2. */
    __device__ __forceinline__ void form(features &q, int head, int piece) const
    {
        uint32_t row = bq + piece * 256 + w.lane * 8, of_heads = coefficient(0, w.tile * TILE_HEADS + head);
        for (int i = 0; i < 2 * HEADS; i++)
            q[i / 2][i % 2] = 0;
#pragma unroll 4
        for (int rank = 0; rank < query.ranks; rank++) {
            uint32_t x[2], a[HEADS];
            ld_shared(x, row);
            ld_shared(a, of_heads);
            for (int i = 0; i < 2 * HEADS; i++)
                q[i / 2][i % 2] = fmaf(__uint_as_float(a[i / 2]), __uint_as_float(x[i % 2]), q[i / 2][i % 2]);
            row += FEATURE_ROW<f32, WIDTH>, of_heads += coefficient_row(tiles);
        }
        const bool exists = piece * 64 + w.lane * 2 < query.features; /* else bq's zeros times an infinity are NaN */
        for (int i = 0; i < 2 * HEADS; i++)
            q[i / 2][i % 2] = exists ? query.scale.apply(q[i / 2][i % 2]) : 0;
    }

    /* Stores them in slices. */
    __device__ __forceinline__ void store(features &q, int head, int piece) const
    {
        const int chunk = w.lane / 8 * 2 + w.lane % 2, word = w.lane % 8 / 2;
#pragma unroll
        for (int i = 0; i < HEADS; i++) {
            const int row = head + i;
            const uint32_t at = to + piece * F32_PIECE + row * 128 + (chunk ^ (row & 7)) * 16 + word * 4;
            for (int slice = 0; slice < SLICES; slice++)
                st_shared_32(at + slice * SLICE_ROWS, take_query_pair(q[i], slice == SLICES - 1));
        }
    }

    /* Forms the tile, or half of it if the other group has the same heads. Returns 1: scores need no factor. */
    __device__ __forceinline__ float run(bool same_heads) const
    {
        const int warps = same_heads ? 8 : 4, warp = same_heads ? w.group * 4 + w.warp : w.warp;
#pragma unroll 1
        for (int i = warp; i < TILE_HEADS / HEADS * (WIDTH / 64); i += warps) {
            features q;
            form(q, i % 8 * HEADS, i / 8);
            store(q, i % 8 * HEADS, i / 8);
        }
        return 1;
    }
};

#endif

} // namespace COPES_GPU::tpa::float32

#endif
