/* The query of tpa_decode in float32 for Hopper's tensor cores: of each part of it a row a head, of bfloat16. It is formed
 * by multiply-adds. */
#ifndef COPES_BACKENDS_CUDA_TPA_FLOAT32_QUERY_H
#define COPES_BACKENDS_CUDA_TPA_FLOAT32_QUERY_H

#include "backends/cuda/tpa/wgmma/query.h"

namespace COPES_GPU::tpa::float32
{

using namespace wgmma;

inline constexpr int SINGLE_PARTS = 3;
inline constexpr int PART_ROWS = TILE_HEADS * 128;            /* bytes of a part's rows in a piece */
inline constexpr int SINGLE_PIECE = SINGLE_PARTS * PART_ROWS; /* of 64 features, or of weights for 64 keys */

/* Bytes of a rank of aq, so that ranks spread over the banks. */
__host__ __device__ constexpr int coefficient_row(int tiles)
{
    return (tiles * TILE_HEADS + 4) * 4;
}

#if COPES_SM90A

/* Forms the query of a tile, or of a block's share of one, from aq and bq in shared memory: of bq rows as in 16-bit storage,
 * and after them, rank by rank, aq of the block's heads. A lane has a pair of features of four heads at a time; features 4t to
 * 4t + 3 of each 16 stand for columns 2t, 2t + 1, 2t + 8 and 2t + 9 of the matrix. */
template <int WIDTH, int PARTS> struct query_former {
    static constexpr int HEADS = 4;
    typedef float features[HEADS][2];
    const query_source &query;
    const group_place &w;
    const int tiles;
    const uint32_t bq, to;

    /* Starts to copy the factors. */
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

    /* Where aq of a rank and a head of the block lies. */
    __device__ __forceinline__ uint32_t coefficient(int rank, int head) const
    {
        return bq + (query.ranks + 15) / 16 * 16 * FEATURE_ROW<f32, WIDTH> + rank * coefficient_row(tiles) + head * 4;
    }

    /* Heads from `head` on of the tile, and 64 features from 64 `piece` on, in units of log 2. */
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
        const bool exists = piece * 64 + w.lane * 2 < query.features; /* else an infinity has made NaN of bq's zeros */
        for (int i = 0; i < 2 * HEADS; i++)
            q[i / 2][i % 2] = exists ? query.scale.apply(q[i / 2][i % 2]) : 0;
    }

    /* Leaves them in parts. */
    __device__ __forceinline__ void store(features &q, int head, int piece) const
    {
        const int chunk = w.lane / 8 * 2 + w.lane % 2, word = w.lane % 8 / 2;
#pragma unroll
        for (int i = 0; i < HEADS; i++) {
            const int row = head + i;
            const uint32_t at = to + piece * SINGLE_PIECE + row * 128 + (chunk ^ (row & 7)) * 16 + word * 4;
            for (int part = 0; part < PARTS; part++)
                st_shared_32(at + part * PART_ROWS, take_query_pair(q[i], part == PARTS - 1));
        }
    }

    /* Forms the tile; `alike`: with the other group. Returns the unit of the scores that come of it. */
    __device__ __forceinline__ float run(bool alike) const
    {
        const int warps = alike ? 8 : 4, warp = alike ? w.group * 4 + w.warp : w.warp;
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
