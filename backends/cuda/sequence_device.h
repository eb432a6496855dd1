/* Agreeing across all blocks of the device: of every block one warp adds what it found to the totals, and one takes those
 * when they are complete. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_DEVICE_H
#define COPES_BACKENDS_CUDA_SEQUENCE_DEVICE_H

#include "backends/cuda/sequence_exchange.h"
#include "backends/cuda/sequence_preparation.h"
#include "backends/cuda/sequence_totals.h"

namespace COPES_GPU
{

template <typename U> struct device_exchange {
    typedef exchange<U> agreeing;
    agreeing slabs;
    const device_totals<U> totals;

    __device__ __forceinline__ explicit device_exchange(const worker<U> &w) : slabs(w), totals(w)
    {
    }
    __device__ __forceinline__ void give()
    {
        slabs.for_slabs([&](int slab) {
            typename agreeing::found all[agreeing::EACH];
            slabs.gather(all);
#pragma unroll
            for (int j = 0; j < agreeing::EACH; j++)
                totals.add(slab, slabs.lane + 32 * j, all[j]);
            slabs.release();
        });
    }
    __device__ __forceinline__ void take()
    {
        slabs.for_slabs([&](int slab) {
            typename agreeing::found all[agreeing::EACH];
            slabs.expect();
            const bool told = totals.wait(slab, slabs.lane, slabs.w.tiling.ranks, all);
            slabs.finish(all, !told);
            arrive(shared_address(&slabs.memory.done[slab % agreeing::OPEN]));
        });
    }
};

/* One of the warps that have no tokens. */
template <typename U> DEVICE void run_other(const worker<U> &w)
{
    if constexpr (!U::WHOLE) {
        preparation<U> preparing(w);
        preparing.prepare();
        preparing.prepare();
        exchange<U>(w).run_in_cluster([&] { preparing.prepare(); });
    } else {
        switch ((threadIdx.x - U::THREADS) / 32) {
        case 0: device_exchange<U>(w).give(); break;
        case 1: device_exchange<U>(w).take(); break;
        default: preparation<U>(w).run();
        }
    }
}

} // namespace COPES_GPU

#endif
