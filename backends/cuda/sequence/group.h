/* Agreeing across all blocks of a group: of every block one warp adds what it found to the totals, and one takes those
 * when they are complete. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_GROUP_H
#define COPES_BACKENDS_CUDA_SEQUENCE_GROUP_H

#include "backends/cuda/sequence/exchange.h"
#include "backends/cuda/sequence/preparation.h"
#include "backends/cuda/sequence/totals.h"

namespace COPES_GPU::sequence
{

template <typename U> struct group_exchange {
    typedef exchange<U> agreeing;
    agreeing slabs;
    const group_totals<U> totals;

    __device__ __forceinline__ explicit group_exchange(const worker<U> &w) : slabs(w), totals(w)
    {
    }
    __device__ __forceinline__ void give()
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
    __device__ __forceinline__ void take()
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

/* One of the warps that have no tokens. Was a slab unfit, as far as it knows? */
template <typename U> DEVICE bool run_other(const worker<U> &w)
{
    group_exchange<U> agreeing(w);
    preparation<U> preparing(w);
    if constexpr (!U::GROUPED) {
        preparing.prepare();
        preparing.prepare();
        agreeing.slabs.run_in_cluster([&] { preparing.prepare(); });
    } else {
        switch ((threadIdx.x - U::THREADS) / 32) {
        case 0: agreeing.give(); break;
        case 1: agreeing.take(); break;
        default: preparing.run();
        }
    }
    return agreeing.slabs.unfit;
}

} // namespace COPES_GPU::sequence

#endif
