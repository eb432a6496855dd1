/* Sums over all blocks of a cooperative launch's group, in fixed point. Each block adds its sums to totals in global
 * memory, as integers: their total has the same bits in any order. A total is one word that also counts the blocks
 * that have added to it, so a finishing warp sees from the word itself that it is complete. From one block to all
 * others it takes one write and one read.
 *
 * The workspace, in order:
 *   what       count                             of       written by                     read by
 *   counters   groups                            uint64   group_sync                     group_sync
 *   totals     slabs of a group x groups x       uint64   summing, once a block and      finishing of all blocks
 *              WORDS x COLUMNS                            slab
 *   values     groups x blocks x COLUMNS         float    recompute.h                    recompute.h
 * Counters and totals are emptied at the start of the launch, before its grid_sync. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_TOTALS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_TOTALS_H

#include "backends/cuda/ptx/atomic.h"
#include "backends/cuda/sequence/sums.h"

namespace COPES_GPU::sequence
{

/*   bits of a total
 *   0 .. 7     blocks that have added: MOST_BLOCKS
 *   8 .. 15    blocks whose number its digits do not hold exactly
 *   16 .. 63   the sum of their digits, signed */
static_assert(MOST_BLOCKS == 0xff);

DEVICE void add_digit(uint64_t *total, int64_t digit, bool inexact)
{
    red_add_relaxed(total, (uint64_t)digit << 16 | (uint64_t)inexact << 8 | 1);
}

DEVICE int blocks_of(uint64_t total)
{
    return (int)(total & 0xff);
}

/* A number in fixed point: a signed digit of 39 bits in each word, the first one before the point. Two kinds of
 * numbers are inexact: one that is too large or no number, which word 0 counts; and one with a rest below the last
 * digit, which the last word counts. The rest matters where the whole sum is not much larger. */
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
        double sum = 0, last = 0x1p+25; /* the value of a last digit's 1, over a float's rounding */
#pragma unroll
        for (int i = WORDS - 1; i >= 0; i--) {
            sum = sum / DIGIT + (double)((int64_t)words[i] >> 16);
            last = i > 0 ? last / DIGIT : last;
        }
        const int cut = (int)(words[WORDS - 1] >> 8 & 0xff); /* blocks that cut their rest off, all towards 0 */
        const bool rough = fabs(sum) < last * cut;
        *inexact = *inexact || (words[0] >> 8 & 0xff) != 0 || rough;
        return (float)sum;
    }
};

/* The totals of all slabs of a group. */
template <typename K> struct group_totals {
    /* Sums of terms are about 1 at least, since the reference's own term is 1. Products with gradients may have any
     * magnitude. */
    static constexpr int WORDS = K::BACKWARD ? 3 : 2;
    static constexpr int OF_SLAB = WORDS * K::COLUMNS;
    typedef fixed_point<WORDS> fixed;
    const slab_tiling &tiling;
    const int group;

    __device__ __forceinline__ explicit group_totals(const worker<K> &w) : tiling(w.tiling), group(w.block.group)
    {
    }
    /* A block's value of a column, while a slab is recomputed. */
    __device__ __forceinline__ float *block_found(int rank, int column) const
    {
        return reinterpret_cast<float *>(tiling.totals + tiling.words) + (group * tiling.blocks + rank) * K::COLUMNS +
               column;
    }
    __device__ __forceinline__ uint64_t *of(int slab, int column) const
    {
        return tiling.totals + words_before(tiling, OF_SLAB, slab, group) + column;
    }
    /* Waits until seven in eight blocks have added to a slab's totals. Only one lane polls, and only one total:
     * polls keep blocks from adding. */
    __device__ __forceinline__ void wait_for_most(int slab) const
    {
        while (threadIdx.x % 32 == 0 && blocks_of(ld_relaxed(of(slab, 0))) < tiling.blocks - tiling.blocks / 8)
            ;
        __syncwarp();
    }
    /* Empties the counters and all totals. All blocks of the launch share the work. */
    __device__ __forceinline__ void empty() const
    {
        const int64_t threads = (int64_t)gridDim.x * K::BLOCK;
#pragma unroll 1
        for (int64_t i = (int64_t)blockIdx.x * K::BLOCK + threadIdx.x; i < tiling.words; i += threads)
            tiling.totals[i] = 0;
    }
    /* Waits for all threads of the group. `arrivals` counts arrivals of all calls; each block calls equally often. */
    __device__ __forceinline__ void group_sync(uint64_t *arrivals) const
    {
        uint64_t *counter = tiling.totals + group;
        __syncthreads();
        *arrivals += tiling.blocks;
        if (threadIdx.x == 0) {
            red_increment_release(counter);
            while (ld_acquire(counter) < *arrivals)
                ;
        }
        __syncthreads();
    }
    __device__ __forceinline__ void add(int slab, int column, float sum) const
    {
        if (column >= K::COLUMNS)
            return;
        fixed::add(of(slab, column), K::COLUMNS, sum);
    }
    /* Waits until the totals of a lane's columns are complete: column, column + 32, .. True where all sums are
     * exact. */
    template <int EACH> __device__ __forceinline__ bool wait(int slab, int column, float (&all)[EACH]) const
    {
        uint64_t words[EACH][WORDS];
        bool complete, inexact = false;
        wait_for_most(slab);
        if (column >= K::COLUMNS)
            return true;
        do {
            complete = true;
#pragma unroll
            for (int j = 0; j < EACH; j++)
#pragma unroll
                for (int i = 0; i < WORDS; i++)
                    words[j][i] = ld_relaxed(of(slab, column + 32 * j) + i * K::COLUMNS);
#pragma unroll
            for (int j = 0; j < EACH; j++)
#pragma unroll
                for (int i = 0; i < WORDS; i++)
                    complete = complete && blocks_of(words[j][i]) == tiling.blocks;
        } while (!complete);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            all[j] = fixed::read(words[j], &inexact);
        return !inexact;
    }
};

} // namespace COPES_GPU::sequence

#endif
