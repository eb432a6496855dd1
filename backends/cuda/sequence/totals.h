/* Sums over all blocks of a group, in fixed point: each block adds what it found to totals in global memory, as integers,
 * whose sum is the same in any order. A total is one word that also counts the blocks that have added to it, so that a reader
 * knows whether it is complete: from one block to all others it takes one write and one read. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_TOTALS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_TOTALS_H

#include "backends/cuda/ptx/atomic.h"
#include "backends/cuda/sequence/sums.h"

namespace COPES_GPU::sequence
{

/*   bits of a total
 *   0 .. 7     blocks that have added
 *   8 .. 15    blocks whose number the digits do not hold exactly
 *   16 .. 63   the sum of their digits, signed */
enum { MOST_BLOCKS = 255 };

DEVICE void add_digit(uint64_t *total, int64_t digit, bool inexact)
{
    red_add_relaxed(total, (uint64_t)digit << 16 | (uint64_t)inexact << 8 | 1);
}

DEVICE int blocks_of(uint64_t total)
{
    return (int)(total & 0xff);
}

/* A number in fixed point: in words whose digits are of 39 bits and signed, the first before the point. A number may be too
 * large for them, or none; or have a rest below the last, which matters where the whole sum is not much more. */
template <int WORDS> struct fixed_point {
    static constexpr float DIGIT = 0x1p+39f; /* 255 of them are less than 2^47 */

    DEVICE void add(uint64_t *totals, int64_t apart, float x)
    {
        const bool held = fabsf(x) < DIGIT;
        float rest = held ? x : 0;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            const float digit = truncf(rest);
            add_digit(totals + i * apart, __float2ll_rz(digit), i == WORDS - 1 ? rest != digit : i == 0 && !held);
            rest = (rest - digit) * DIGIT;
        }
    }
    DEVICE float read(const uint64_t *words, bool *inexact)
    {
        double sum = 0, last = 0x1p+25; /* the last digit's place, and a float's rounding */
#pragma unroll
        for (int i = WORDS - 1; i >= 0; i--) {
            sum = sum / DIGIT + (double)((int64_t)words[i] >> 16);
            last = i > 0 ? last / DIGIT : last;
        }
        const int cut = (int)(words[WORDS - 1] >> 8 & 0xff); /* blocks that cut their sum off there, all towards 0 */
        const bool rough = fabs(sum) < last * cut;
        *inexact = *inexact || (words[0] >> 8 & 0xff) != 0 || rough;
        return (float)sum;
    }
};

/* The totals of all slabs, in words of their columns. */
template <typename U> struct group_totals {
    /* Sums of terms are about 1 at least, the term of the reference; products with gradients may have any magnitude. */
    static constexpr int WORDS = U::BACKWARD ? 3 : 2;
    typedef fixed_point<WORDS> fixed;
    const slab_tiling &tiling;
    const int group;

    __device__ __forceinline__ explicit group_totals(const worker<U> &w) : tiling(w.tiling), group(w.block.cluster)
    {
    }
    /* In words: of slabs of all groups, in turn, and before any. */
    __host__ __device__ static int64_t count(const slab_tiling &t, int64_t slab, int64_t group)
    {
        return t.clusters + (slab * t.clusters + group) * WORDS * U::COLUMNS;
    }
    __host__ __device__ static int64_t count(const slab_tiling &t)
    {
        return count(t, ((int64_t)t.pairs * t.batch + t.clusters - 1) / t.clusters, 0);
    }
    __host__ static size_t bytes(const slab_tiling &t)
    {
        return count(t) * sizeof(uint64_t) + t.clusters * t.ranks * U::COLUMNS * sizeof(float);
    }
    /* After the totals: what a block found of a column of a slab that is recomputed. */
    __device__ __forceinline__ float *block_found(int rank, int column) const
    {
        return reinterpret_cast<float *>(tiling.totals + count(tiling)) + (group * tiling.ranks + rank) * U::COLUMNS +
               column;
    }
    __device__ __forceinline__ uint64_t *of(int slab, int column) const
    {
        return tiling.totals + count(tiling, slab, group) + column;
    }
    /* Waits until most of the blocks have added to a slab's totals. One lane does, and looks at one of them: looking
     * keeps blocks from adding. */
    __device__ __forceinline__ void wait_for_most(int slab) const
    {
        while (threadIdx.x % 32 == 0 && blocks_of(ld_relaxed(of(slab, 0))) < tiling.ranks - tiling.ranks / 8)
            ;
        __syncwarp();
    }
    /* Empties them all, by all blocks. */
    __device__ __forceinline__ void open() const
    {
        const int64_t threads = (int64_t)gridDim.x * U::BLOCK, all = count(tiling);
        for (int64_t i = (int64_t)blockIdx.x * U::BLOCK + threadIdx.x; i < all; i += threads)
            tiling.totals[i] = 0;
    }
    /* Waits for all threads of the group. */
    __device__ __forceinline__ void group_sync(uint64_t *rounds) const
    {
        uint64_t *counter = tiling.totals + group;
        __syncthreads();
        *rounds += tiling.ranks;
        if (threadIdx.x == 0) {
            red_increment_release(counter);
            while (ld_acquire(counter) < *rounds)
                ;
        }
        __syncthreads();
    }
    __device__ __forceinline__ void add(int slab, int column, float sum) const
    {
        if (column >= U::COLUMNS)
            return;
        fixed::add(of(slab, column), U::COLUMNS, sum);
    }
    /* Waits until the totals of a lane's columns, 32 apart, are complete, and sees whether all blocks have given theirs exactly. */
    template <int EACH> __device__ __forceinline__ bool wait(int slab, int column, float (&all)[EACH]) const
    {
        uint64_t words[EACH][WORDS];
        bool complete, inexact = false;
        wait_for_most(slab);
        if (column >= U::COLUMNS)
            return true;
        do {
            complete = true;
#pragma unroll
            for (int j = 0; j < EACH; j++)
#pragma unroll
                for (int i = 0; i < WORDS; i++)
                    words[j][i] = ld_relaxed(of(slab, column + 32 * j) + i * U::COLUMNS);
#pragma unroll
            for (int j = 0; j < EACH; j++)
#pragma unroll
                for (int i = 0; i < WORDS; i++)
                    complete = complete && blocks_of(words[j][i]) == tiling.ranks;
        } while (!complete);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            all[j] = fixed::read(words[j], &inexact);
        return !inexact;
    }
};

} // namespace COPES_GPU::sequence

#endif
