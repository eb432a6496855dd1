/* The stages of tpa_mma: a stage is the factors of 16 or 32 keys in shared memory. Asynchronous copies fill it.
 *   what      in a stage                           layout
 *   ak, av    keys x heads x ranks, contiguous     as in memory; where ldmatrix reads them (as_matrices), chunks of 16
 *                                                  bytes are permuted (scattered)
 *   bk, bv    for each rank: keys rows of WIDTH    the chunks of a row are permuted by its key (swizzle_of), so that
 *             features                             the lanes of a read meet in no bank
 * Places past the last key, and features past D or E, are filled with zeros. */
#ifndef COPES_BACKENDS_CUDA_TPA_MMA_STAGE_H
#define COPES_BACKENDS_CUDA_TPA_MMA_STAGE_H

#include "backends/cuda/ptx/barrier.h"
#include "backends/cuda/ptx/copies.h"
#include "backends/cuda/ptx/mbarrier.h"
#include "backends/cuda/ptx/memory.h"
#include "backends/cuda/ptx/mma.h"

namespace COPES_GPU::tpa::mma
{

using namespace ptx;

enum { WARP_HEADS = 16 };

/* Keys of a stage whose rows have `row` bytes. A warp multiplies all of them at once. */
__host__ __device__ constexpr int keys_of_stage(int row)
{
    return row <= 256 ? 32 : 16;
}

/* The number that a key's chunk numbers are XORed with. It differs among 8 keys. In a quarter of a warp it also
 * separates the reads of 4 chunks of 2 keys, and of 2 chunks of every second key. */
DEVICE int swizzle_of(int key)
{
    return (key ^ (key & 1) << 2) & 7;
}

/* A ring of `stages` slots, a power of 2, and the offsets of its contents in bytes. ak begins at 0. */
struct stage_ring {
    int stages, bytes;
    int av, bk, bv;
};

/* Can ldmatrix read the coefficients? They must be of 16 bits and rank 1, and the heads whole eights. */
template <typename T> DEVICE bool as_matrices(int heads, int rank)
{
    return sizeof(T) == 2 && rank == 1 && heads % 8 == 0;
}

/* The place of a chunk of coefficients, where a key has 4 chunks or more. It spreads the chunks of one head over the
 * banks. */
DEVICE int scattered(int chunk)
{
    return chunk ^ (chunk >> 3 & 7) ^ (chunk >> 6 & 1);
}

/* Copies the coefficients of a stage, `row` bytes a key. Only `count` of the keys exist. */
DEVICE void copy_coefficients(uint32_t to, const char *from, int row, int keys, int count, bool scatter)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 4
    for (int chunk = lane; chunk < keys * row / 16; chunk += 32) {
        const int left = count * row - chunk * 16;
        cp_async_16_zfill(to + 16 * (scatter ? scattered(chunk) : chunk), from + chunk * 16,
                          left < 0    ? 0
                          : left < 16 ? left
                                      : 16);
    }
}

/* Copies a stage's rows of one rank. A lane copies the same chunk of all its rows. */
template <int ROW, int KEYS>
DEVICE void copy_features(uint32_t to, const char *from, int64_t key_stride, int width, int count)
{
    constexpr int chunks = ROW / 16, rows = chunks < 32 ? 32 / chunks : 1;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int chunk = lane % chunks; chunk < chunks; chunk += 32) {
        const int first = lane / chunks;
        const char *row = from + first * key_stride + chunk * 16;
        const bool whole = count == KEYS && chunk * 16 < width;
        const int last = chunk * 16 < width ? count : 0;
#pragma unroll 8
        for (int i = 0; i < KEYS / rows; i++) {
            const int key = first + i * rows;
            const uint32_t place = to + key * ROW + 16 * (chunk ^ swizzle_of(key));
            if (whole)
                cp_async_16<true>(place, row);
            else
                cp_async_16_zfill(place, row, key < last ? 16 : 0);
            row += rows * key_stride;
        }
    }
}

/* Copies the cache, stage after stage: the work of one warp, or of several alternately. */
template <typename T, int WIDTH> struct cache_producer {
    const char *ak, *av, *bk, *bv; /* of the next key */

    __device__ __forceinline__ cache_producer(const copes_tpa_problem &problem, int64_t b, int64_t key)
    {
        const auto at = [=](const copes_view &view) {
            return static_cast<const char *>(view.data) + (b * view.stride[0] + key * view.stride[1]) * (int)sizeof(T);
        };
        ak = at(problem.ak), av = at(problem.av), bk = at(problem.bk), bv = at(problem.bv);
    }

    /* Fills a slot with the next `count` keys, and goes on by `stages` stages. */
    __device__ __forceinline__ void fill(const copes_tpa_problem &problem, const stage_ring &ring, uint32_t stage,
                                         int count, int stages)
    {
        constexpr int size = (int)sizeof(T), row = WIDTH * size, keys = keys_of_stage(row);
        const int heads = (int)problem.h, rk = (int)problem.rk, rv = (int)problem.rv;
        copy_coefficients(stage, ak, heads * rk * size, keys, count, as_matrices<T>(heads, rk));
        for (int r = 0; r < rk; r++)
            copy_features<row, keys>(stage + ring.bk + r * keys * row, bk + r * problem.bk.stride[2] * size,
                                     problem.bk.stride[1] * size, (int)problem.d * size, count);
        copy_coefficients(stage + ring.av, av, heads * rv * size, keys, count, as_matrices<T>(heads, rv));
        for (int r = 0; r < rv; r++)
            copy_features<row, keys>(stage + ring.bv + r * keys * row, bv + r * problem.bv.stride[2] * size,
                                     problem.bv.stride[1] * size, (int)problem.e * size, count);
        const int64_t ahead = stages * keys * size;
        ak += ahead * problem.ak.stride[1], av += ahead * problem.av.stride[1];
        bk += ahead * problem.bk.stride[1], bv += ahead * problem.bv.stride[1];
    }
};

} // namespace COPES_GPU::tpa::mma

#endif
