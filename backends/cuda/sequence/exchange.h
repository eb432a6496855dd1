/* The warps of each block that have no tokens: they take the others' sums of a slab, tell them to the other blocks, and
 * finish the slab's columns from what those tell. So no thread waits for all others, and while one slab is agreed on the
 * rest of the block goes on with the next. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_EXCHANGE_H
#define COPES_BACKENDS_CUDA_SEQUENCE_EXCHANGE_H

#include "backends/cuda/sequence/sums.h"

namespace COPES_GPU::sequence
{

/* One of those warps, or the only one. A lane has some columns, 32 apart. */
template <typename U> struct exchange {
    static constexpr int EACH = U::COLUMNS > 32 ? U::COLUMNS / 32 : 1;
    const worker<U> w;
    block_memory<U> &memory;
    const int lane = (int)threadIdx.x % 32;
    slab_walk current;
    float reference[EACH], scale[EACH]; /* of the lane's columns */
    bool unfit = false;                 /* was a slab? */

    __device__ __forceinline__ explicit exchange(const worker<U> &w)
        : w(w), memory(*block_memory<U>::get()), current(w.walk())
    {
    }
    template <typename Take> __device__ __forceinline__ void for_slabs(Take take)
    {
        for (; current.slab < w.count; current.next())
            take(current.slab);
    }
    /* What this block's threads found of the lane's columns. */
    __device__ __forceinline__ void gather(float (&all)[EACH]) const
    {
        wait_for_slab(memory.summed, current.slab);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i >= U::COLUMNS)
                continue;
            all[j] = memory.partial[0][i];
#pragma unroll
            for (int warp = 1; warp < U::WARPS; warp++)
                all[j] += memory.partial[warp][i];
        }
    }
    /* What all blocks of the cluster found. The mbarriers alternate: a block sends its third message only when every other has
     * read its first, since each has to have sent its second by then. */
    __device__ __forceinline__ void send_all(const float (&all)[EACH]) const
    {
        const int ranks = w.tiling.ranks, set = current.slab % 2;
        const uint32_t received = shared_address(&memory.received[set]);
        const float *sums_of_ranks = block_memory<U>::ranks(w.tiling, set);
        if (lane == 0)
            mbarrier_arrive_expect_tx(received, ranks * U::COLUMNS * sizeof(float));
#pragma unroll
        for (int j = 0; j < EACH; j++)
            for (int rank = 0, i = lane + 32 * j; rank < ranks && i < U::COLUMNS; rank++)
                st_async(shared_address(sums_of_ranks + w.block.rank * U::COLUMNS + i), received, rank, all[j]);
    }
    __device__ __forceinline__ void merge_received(float (&all)[EACH]) const
    {
        const int ranks = w.tiling.ranks, set = current.slab % 2;
        const float *sums_of_ranks = block_memory<U>::ranks(w.tiling, set);
        mbarrier_wait_cluster(shared_address(&memory.received[set]), current.slab / 2 % 2);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i >= U::COLUMNS)
                continue;
            all[j] = sums_of_ranks[i];
#pragma unroll 4
            for (int rank = 1; rank < ranks; rank++)
                all[j] += sums_of_ranks[rank * U::COLUMNS + i];
        }
    }

    /* What is known of the lane's columns, now or soon, before the blocks agree: what terms are relative to, and with a
     * logarithm given the factor, of a sum of 1, but for what rounding took from the logarithm. */
    __device__ __forceinline__ void expect()
    {
        if (!U::TERMS)
            return;
        wait_for_slab(memory.prepared, current.slab);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i >= U::COLUMNS)
                continue;
            reference[j] = memory.reference[(uint32_t)current.slab % block_memory<U>::SETS][i];
            if (U::R == role::kept)
                scale[j] = exp2_term(-fmaf(read_scalar(w.lse(current, i / U::N, i % U::N)), LOG2_E, -reference[j]));
        }
    }
    /* Finishes the lane's columns from what all blocks found, and lets this one see it. */
    __device__ __forceinline__ void finish(const float (&all)[EACH], bool inexact)
    {
        bool bad = inexact;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (lane + 32 * j >= U::COLUMNS)
                continue;
            if (U::SUMMED) {
                bad = bad || !(fabsf(all[j]) < INFINITY); /* a NaN may hide one */
                scale[j] = 1 / all[j];
            }
            if (U::TERMS)
                bad = bad || !(fabsf(reference[j]) < WILD);
            finish_column(lane + 32 * j, j, all[j]);
        }
        if (U::RECOMPUTES)
            skip_if(__any_sync(0xffffffffu, bad));
        arrive_for_slab(memory.agreed, current.slab);
        if (U::R == role::forward && w.problem.lse.data != nullptr && w.block.rank == 0)
            write_lse(all);
    }
    __device__ __forceinline__ void finish_column(int i, int j, float dot)
    {
        auto &finished = memory.finished[(uint32_t)current.slab % block_memory<U>::OPEN];
        if (U::TERMS)
            finished[U::SCALE][i] = scale[j];
        if (U::BACKWARD)
            finished[U::OFFSET][i] = U::TERMS ? -dot * scale[j] * scale[j] : -dot;
    }
    __device__ __forceinline__ void write_lse(const float (&all)[EACH]) const
    {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i < U::COLUMNS)
                write_scalar(w.lse(current, i / U::N, i % U::N), (reference[j] + log2f(all[j])) * (1 / LOG2_E));
        }
    }
    __device__ __forceinline__ void skip_if(bool bad)
    {
        unfit = unfit || bad;
        if (lane != 0)
            return;
        memory.skipped[(uint32_t)current.slab % block_memory<U>::OPEN] = bad;
        if (bad)
            memory.unfit[current.slab / 32] |= 1u << current.slab % 32;
    }

    /* In a cluster one warp does it all, and calls `next` after each slab. Each access to shared memory waits in the queues of a
     * busy block, some 0.3 us: so what can be done before the others' sums are there is done before, or after. */
    template <typename Next> __device__ __forceinline__ void run_in_cluster(Next next)
    {
        for_slabs([&](int) {
            float all[EACH];
            expect();
            gather(all);
            if (w.tiling.ranks > 1) {
                send_all(all);
                merge_received(all);
            }
            finish(all, false);
            next();
        });
    }
};

} // namespace COPES_GPU::sequence

#endif
