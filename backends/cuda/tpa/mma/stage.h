/* The cache on its way through shared memory: stages of some keys' factors, filled by asynchronous copies a few stages
 * ahead.
 *
 * Rows of bk and bv become rows of WIDTH features in 16-byte chunks, permuted by the key, so that what a warp reads at
 * once never meets in a bank. ak and av are one piece in memory, and stay one; where a head's coefficients are read as
 * matrices their chunks are permuted too. What lies past the last key, or past D or E, is filled with zeros. */
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

/* Keys of a stage, which a warp takes at once, for rows of so many bytes. */
__host__ __device__ constexpr int keys_of_stage(int row)
{
    return row <= 256 ? 32 : 16;
}

/* What the chunks of a key's rows are permuted with: 8 keys' chunks differ, and so do those of a quarter of a warp that
 * reads 4 chunks of 2 keys in turn, or 2 chunks of every second key. */
DEVICE int swizzle_of(int key)
{
    return (key ^ (key & 1) << 2) & 7;
}

/* A ring of `stages` stages, a power of 2 of them, and where a stage's parts begin, in bytes; keys' coefficients are at
 * 0. */
struct stage_ring {
    int stages, bytes;
    int av, bk, bv;
};

/* Can coefficients be read as 8 x 8 matrices: of 16 bits, with whole eights of heads and one rank? */
template <typename T> DEVICE bool as_matrices(int heads, int rank)
{
    return sizeof(T) == 2 && rank == 1 && heads % 8 == 0;
}

/* Chunks of a piece of coefficients with 4 or more chunks a key, so that those of one head spread over the banks. */
DEVICE int scattered(int chunk)
{
    return chunk ^ (chunk >> 3 & 7) ^ (chunk >> 6 & 1);
}

/* Coefficients of a stage's keys, `row` bytes each, of which `count` keys exist. */
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

/* One rank's rows of a stage's keys. A lane has the same chunk of every row that it copies. */
template <int ROW, int KEYS>
DEVICE void copy_features(uint32_t to, const char *from, int64_t key_step, int width, int count)
{
    constexpr int chunks = ROW / 16, step = chunks < 32 ? 32 / chunks : 1;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int chunk = lane % chunks; chunk < chunks; chunk += 32) {
        const int first = lane / chunks;
        const char *row = from + first * key_step + chunk * 16;
        const bool whole = count == KEYS && chunk * 16 < width;
        const int last = chunk * 16 < width ? count : 0;
#pragma unroll 8
        for (int i = 0; i < KEYS / step; i++) {
            const int key = first + i * step;
            const uint32_t place = to + key * ROW + 16 * (chunk ^ swizzle_of(key));
            if (whole)
                cp_async_16<true>(place, row);
            else
                cp_async_16_zfill(place, row, key < last ? 16 : 0);
            row += step * key_step;
        }
    }
}

/* Copies the cache, a stage after another: the work of a warp, or of some in turn. */
template <typename T, int WIDTH> struct cache_producer {
    const char *ak, *av, *bk, *bv; /* the next key's */

    __device__ __forceinline__ cache_producer(const copes_tpa_problem &problem, int64_t b, int64_t key)
    {
        const auto at = [=](const copes_view &view) {
            return static_cast<const char *>(view.data) + (b * view.stride[0] + key * view.stride[1]) * (int)sizeof(T);
        };
        ak = at(problem.ak), av = at(problem.av), bk = at(problem.bk), bv = at(problem.bv);
    }

    /* Fills a stage with the next `count` keys and goes on by `stages` stages. */
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
        const int64_t step = stages * keys * size;
        ak += step * problem.ak.stride[1], av += step * problem.av.stride[1];
        bk += step * problem.bk.stride[1], bv += step * problem.bv.stride[1];
    }
};

} // namespace COPES_GPU::tpa::mma

#endif
