/* The work of each exchange warp of a block. shared.h defines the roles:
 *
 *                exchange warp   role          sums go by
 *   cluster      0               all three     received_sums in shared memory
 *   cooperative  0               summing       totals in global memory (totals.h)
 *                1               finishing
 *                2               preparing */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_GROUP_H
#define COPES_BACKENDS_CUDA_SEQUENCE_GROUP_H

#include "backends/cuda/sequence/exchange.h"
#include "backends/cuda/sequence/preparation.h"
#include "backends/cuda/sequence/totals.h"

namespace COPES_GPU::sequence
{

template <typename K> struct group_exchange {
    typedef exchange<K> agreeing;
    agreeing slabs;
    const group_totals<K> totals;

    __device__ __forceinline__ explicit group_exchange(const worker<K> &w) : slabs(w), totals(w)
    {
    }
    __device__ __forceinline__ void sum()
    {
        slabs.for_slabs([&](int slab) {
            float all[agreeing::EACH];
            slabs.gather(all);
#pragma unroll
            for (int j = 0; j < agreeing::EACH; j++)
                totals.add(slab, slabs.lane + 32 * j, all[j]);
            arrive_for_slab(slabs.memory.taken, slab);
        });
    }
    __device__ __forceinline__ void finish()
    {
        slabs.for_slabs([&](int slab) {
            float all[agreeing::EACH];
            slabs.expect();
            const bool exact = totals.wait(slab, slabs.lane, all);
            slabs.finish(all, !exact);
            arrive_for_slab(slabs.memory.done, slab);
        });
    }
};

/* An exchange warp, through all slabs. True where it found a slab that is to be recomputed. A cluster's warp
 * prepares two slabs ahead: while slab s is finished, token threads read slab s + 1. */
template <typename K> DEVICE bool run_exchange_warp(const worker<K> &w)
{
    group_exchange<K> agreeing(w);
    preparation<K> preparing(w);
    if constexpr (!K::COOPERATIVE) {
        preparing.prepare();
        preparing.prepare();
        agreeing.slabs.run_in_cluster([&] { preparing.prepare(); });
    } else {
        switch ((threadIdx.x - K::THREADS) / 32) {
        case 0: agreeing.sum(); break;
        case 1: agreeing.finish(); break;
        default: preparing.run();
        }
    }
    return agreeing.slabs.unfit;
}

} // namespace COPES_GPU::sequence

#endif
