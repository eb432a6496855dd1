/* The work of a block's exchange warps on sums, in the roles of shared.h: summing adds the sums of the block's warps
 * and sends them to the other blocks; finishing merges the sums of all blocks and finishes the slab's columns. So no
 * token thread waits for all the others. While the blocks agree on one slab, their token threads go on with the
 * next. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_EXCHANGE_H
#define COPES_BACKENDS_CUDA_SEQUENCE_EXCHANGE_H

#include "backends/cuda/sequence/sums.h"

namespace COPES_GPU::sequence
{

/* One exchange warp, in either role or in both. Its lanes share out the columns of a slab: element j of an array is
 * column lane + 32 j. */
template <typename K> struct exchange {
    static constexpr int EACH = K::COLUMNS > 32 ? K::COLUMNS / 32 : 1;
    const worker<K> w;
    block_memory<K> &memory;
    const int lane = (int)threadIdx.x % 32;
    slab_walk current;
    float reference[EACH], scale[EACH];
    bool unfit = false; /* is any slab so far to be recomputed? */

    __device__ __forceinline__ explicit exchange(const worker<K> &w)
        : w(w), memory(*block_memory<K>::get()), current(w.walk())
    {
    }
    template <typename Take> __device__ __forceinline__ void for_slabs(Take take)
    {
        for (; current.slab < w.count; current.next())
            take(current.slab);
    }
    /* Summing: the block's sums. */
    __device__ __forceinline__ void gather(float (&all)[EACH]) const
    {
        wait_for_slab(memory.summed, current.slab);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i >= K::COLUMNS)
                continue;
            all[j] = memory.partial[0][i];
#pragma unroll
            for (int warp = 1; warp < K::WARPS; warp++)
                all[j] += memory.partial[warp][i];
        }
    }
    /* Summing, in a cluster: sends the block's sums to all blocks. Two copies of received_sums are enough. A block
     * sends its sums of slab s + 2 after it has received the sums of slab s + 1 from every block, and each block sends
     * its sums of slab s + 1 after it has read the sums of slab s. */
    __device__ __forceinline__ void send_all(const float (&all)[EACH]) const
    {
        const int blocks = w.tiling.blocks, set = current.slab % 2;
        const uint32_t received = shared_address(&memory.received[set]);
        const float *received_sums = block_memory<K>::received_sums(w.tiling, set);
        if (lane == 0)
            mbarrier_arrive_expect_tx(received, blocks * K::COLUMNS * sizeof(float));
#pragma unroll
        for (int j = 0; j < EACH; j++)
            for (int rank = 0, i = lane + 32 * j; rank < blocks && i < K::COLUMNS; rank++)
                st_async(shared_address(received_sums + w.block.rank * K::COLUMNS + i), received, rank, all[j]);
    }
    /* Finishing, in a cluster: the sums of all blocks. */
    __device__ __forceinline__ void merge_received(float (&all)[EACH]) const
    {
        const int blocks = w.tiling.blocks, set = current.slab % 2;
        const float *received_sums = block_memory<K>::received_sums(w.tiling, set);
        mbarrier_wait_cluster(shared_address(&memory.received[set]), current.slab / 2 % 2);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i >= K::COLUMNS)
                continue;
            all[j] = received_sums[i];
#pragma unroll 4
            for (int rank = 1; rank < blocks; rank++)
                all[j] += received_sums[rank * K::COLUMNS + i];
        }
    }

    /* Finishing, before the blocks agree: the reference of each column. If the caller gave the lse, then the factor
     * of the terms too: the sum of terms relative to the lse is 1, except that the reference is a rounded product. */
    __device__ __forceinline__ void expect()
    {
        if (!K::TERMS)
            return;
        wait_for_slab(memory.prepared, current.slab);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i >= K::COLUMNS)
                continue;
            reference[j] = memory.reference[(uint32_t)current.slab % block_memory<K>::SETS][i];
            if (K::SPLIT)
                reference[j] = TO_WHOLE - reference[j];
            if (K::R == role::kept) {
                const float lse = read_scalar(w.lse(current, i / K::N, i % K::N));
                scale[j] = exp2_term(-(K::SPLIT ? rest_of_power(lse, reference[j]) : fmaf(lse, LOG2_E, -reference[j])));
            }
        }
    }
    /* Finishing: from the sums of all blocks to the factors of token threads. Every block finishes every slab for
     * itself, from the same sums. inexact: fixed point did not hold the sums. */
    __device__ __forceinline__ void finish(const float (&all)[EACH], bool inexact)
    {
        bool bad = inexact;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (lane + 32 * j >= K::COLUMNS)
                continue;
            if (!K::BACKWARD) {
                /* infinity: an element was too large; NaN: it may hide one */
                bad = bad || !(fabsf(all[j]) < INFINITY);
                scale[j] = 1 / all[j];
            }
            if (K::TERMS)
                bad = bad || !(fabsf(reference[j]) < WILD);
            finish_column(lane + 32 * j, j, all[j]);
        }
        if (K::RECOMPUTES)
            skip_if(__any_sync(0xffffffffu, bad));
        arrive_for_slab(memory.agreed, current.slab);
        if (K::R == role::forward && w.problem.lse.data != nullptr && w.block.rank == 0)
            write_lse(all);
    }
    __device__ __forceinline__ void finish_column(int i, int j, float dot)
    {
        auto &finished = memory.finished[(uint32_t)current.slab % block_memory<K>::OPEN];
        if (K::TERMS)
            finished[block_memory<K>::SCALE][i] = scale[j];
        if (K::BACKWARD)
            finished[block_memory<K>::OFFSET][i] = K::TERMS ? -dot * scale[j] * scale[j] : -dot;
    }
    __device__ __forceinline__ void write_lse(const float (&all)[EACH]) const
    {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i < K::COLUMNS)
                write_scalar(w.lse(current, i / K::N, i % K::N), (reference[j] + log2f(all[j])) * (1 / LOG2_E));
        }
    }
    __device__ __forceinline__ void skip_if(bool bad)
    {
        unfit = unfit || bad;
        if (lane != 0)
            return;
        memory.skipped[(uint32_t)current.slab % block_memory<K>::OPEN] = bad;
        if (bad)
            memory.unfit[current.slab / 32] |= 1u << current.slab % 32;
    }

    /* In a cluster one warp has both roles, and calls `next` after each slab. An access to shared memory waits about
     * 0.3 us in a busy block. So all work that does not need the other blocks' sums is done before they arrive, or
     * after the slab is finished. */
    template <typename Next> __device__ __forceinline__ void run_in_cluster(Next next)
    {
        for_slabs([&](int) {
            float all[EACH];
            expect();
            gather(all);
            if (w.tiling.blocks > 1) {
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
