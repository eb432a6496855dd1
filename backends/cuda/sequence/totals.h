/* Sums over all blocks of a group: each block adds what it found to totals in memory, as integers, whose sum is the
 * same in any order. A total is one word that also counts the blocks that have added to it, so that whoever reads it
 * knows whether it is complete: from one block to all others it is one write and one read. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_TOTALS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_TOTALS_H

#include "backends/cuda/ptx/atomic.h"
#include "backends/cuda/sequence/sums.h"

namespace COPES_GPU::sequence
{

/* From the lowest bit: 8 for how many blocks have added, 8 for how many of them had what a digit could not tell, and 48 for
 * the sum of the digits. */
enum { MOST_BLOCKS = 255 };

DEVICE void add_digit(uint64_t *total, int64_t digit, bool untold)
{
    red_add_relaxed(total, (uint64_t)digit << 16 | (uint64_t)untold << 8 | 1);
}

DEVICE int blocks_of(uint64_t total)
{
    return (int)(total & 0xff);
}

/* How a number is told: in words whose digits are of 39 bits and signed, the first before the point. A number may be too
 * large for them, or none; or have a rest below the last, which matters where the whole sum is not much more. */
template <int WORDS> struct told_in {
    static constexpr float DIGIT = 0x1p+39f; /* 255 of them are less than 2^47 */

    DEVICE void add(uint64_t *totals, int64_t apart, float x)
    {
        const bool told = fabsf(x) < DIGIT;
        float rest = told ? x : 0;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            const float digit = truncf(rest);
            add_digit(totals + i * apart, __float2ll_rz(digit), i == WORDS - 1 ? rest != digit : i == 0 && !told);
            rest = (rest - digit) * DIGIT;
        }
    }
    DEVICE float read(const uint64_t *words, bool *untold)
    {
        double sum = 0, last = 0x1p+25; /* the last digit's place, and a float's rounding */
#pragma unroll
        for (int i = WORDS - 1; i >= 0; i--) {
            sum = sum / DIGIT + (double)((int64_t)words[i] >> 16);
            last = i > 0 ? last / DIGIT : last;
        }
        const int cut = (int)(words[WORDS - 1] >> 8 & 0xff); /* blocks that cut their sum off there, all towards 0 */
        const bool rough = fabs(sum) < last * cut;
        *untold = *untold || (words[0] >> 8 & 0xff) != 0 || rough;
        return (float)sum;
    }
};

/* The totals of all slabs, in words of their columns. */
template <typename U> struct group_totals {
    typedef typename block_memory<U>::found found;
    static constexpr bool SUMS = U::SUMMED, DOTS = U::BACKWARD;
    /* Sums are about 1 at least, the term of the reference; products with gradients may have any magnitude. */
    typedef told_in<2> sum_told;
    typedef told_in<3> dot_told;
    static constexpr int DOT_AT = SUMS ? 2 : 0, WORDS = DOT_AT + (DOTS ? 3 : 0);
    const cluster_tiling &tiling;
    const int group;

    __device__ __forceinline__ explicit group_totals(const worker<U> &w) : tiling(w.tiling), group(w.block.cluster)
    {
    }
    /* In words: of slabs of all groups, in turn, and before any. */
    __host__ __device__ static int64_t count(const cluster_tiling &t, int64_t slab, int64_t group)
    {
        return t.clusters + (slab * t.clusters + group) * WORDS * U::COLUMNS;
    }
    __host__ __device__ static int64_t count(const cluster_tiling &t)
    {
        return count(t, ((int64_t)t.pairs * t.batch + t.clusters - 1) / t.clusters, 0);
    }
    __host__ static size_t bytes(const cluster_tiling &t)
    {
        return count(t) * sizeof(uint64_t) + t.clusters * t.ranks * U::COLUMNS * sizeof(found);
    }
    /* After the totals: what a block found of a column of a slab that is done over. */
    __device__ __forceinline__ found *block_found(int rank, int column) const
    {
        return reinterpret_cast<found *>(tiling.totals + count(tiling)) + (group * tiling.ranks + rank) * U::COLUMNS +
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
    __device__ __forceinline__ void meet(uint64_t *meetings) const
    {
        uint64_t *meeting = tiling.totals + group;
        __syncthreads();
        *meetings += tiling.ranks;
        if (threadIdx.x == 0) {
            red_increment_release(meeting);
            while (ld_acquire(meeting) < *meetings)
                ;
        }
        __syncthreads();
    }
    __device__ __forceinline__ void add(int slab, int column, found sums) const
    {
        if (column >= U::COLUMNS)
            return;
        if (SUMS)
            sum_told::add(of(slab, column), U::COLUMNS, first_of(sums));
        if (DOTS)
            dot_told::add(of(slab, column) + DOT_AT * U::COLUMNS, U::COLUMNS, last_of(sums));
    }
    /* Waits until the totals of a lane's columns, 32 apart, are complete, and sees whether all blocks could tell theirs. */
    template <int EACH> __device__ __forceinline__ bool wait(int slab, int column, found (&all)[EACH]) const
    {
        uint64_t words[EACH][WORDS];
        bool complete, untold = false;
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
            all[j] = read(words[j], &untold);
        return !untold;
    }
    __device__ __forceinline__ found read(const uint64_t (&words)[WORDS], bool *untold) const
    {
        float sum = 0, dot = 0;
        if constexpr (SUMS)
            sum = sum_told::read(words, untold);
        if constexpr (DOTS)
            dot = dot_told::read(words + DOT_AT, untold);
        return block_memory<U>::found_of(sum, dot);
    }
};

} // namespace COPES_GPU::sequence

#endif
