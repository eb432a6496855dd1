/* A token thread's steps through all slabs: which tokens it copies, reads and writes in each. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_STREAM_H
#define COPES_BACKENDS_CUDA_SEQUENCE_STREAM_H

#include "backends/cuda/sequence/work.h"

namespace COPES_GPU::sequence
{

/* Number the steps of all slabs from 0 on: slab i / tiling.steps has step i. In iteration i of its loop a thread
 *
 *   writes           step i - tiling.steps - skew     from stage (i + AHEAD) % stages, `oldest`
 *   starts copying   step i + AHEAD                   to the same stage: stages = tiling.steps + skew + AHEAD
 *   reads            step i                           from stage i % stages, `newest`
 *
 * The copies of a step have nearly AHEAD iterations to arrive. Iterations form runs. A run ends where the thread
 * begins to read or to write a slab, or to copy a slab of another tile. So a run that both reads and writes has no
 * branch at which a warp could wait. */
template <typename K> struct stream {
    const worker<K> w;
    loader<K> &load;
    reader<K> reading;
    writer<K> writing;
    uint32_t newest = 0, oldest = K::AHEAD * K::STAGE_BYTES; /* stages, in bytes from the ring's start */

    __device__ __forceinline__ stream(const worker<K> &w, loader<K> &load) : w(w), load(load), reading(w), writing(w)
    {
    }
    __device__ __forceinline__ void run()
    {
        reading.open();
        if (K::C != coding::half || !K::BACKWARD || w.tiling.prefetch_128)
            run<true>();
        else
            run<false>();
    }
    template <bool PREFETCH_128> __device__ __forceinline__ void run()
    {
        while (writing.more()) {
            take<false, PREFETCH_128>(reading.more(), writing.begun);
            if (reading.more() && writing.begun)
                do
                    take<true, PREFETCH_128>(true, true);
                while (reading.more());
        }
    }
    /* One run. BOTH: it reads and writes, as nearly all runs do. */
    template <bool BOTH, bool PREFETCH_128> __device__ __forceinline__ void take(bool reads, bool writes)
    {
        const int steps = min(load.until, min(reading.left, writing.left));
        int i = steps; /* at least 1 */
#pragma unroll 1
        do {
            if (BOTH || writes)
                writing.write(oldest);
            neighbour_sync<K>(); /* neighbours have read the step that the copies overwrite */
            load.template copy<PREFETCH_128>(oldest);
            cp_async_wait<K::AHEAD>();
            neighbour_sync<K>(); /* neighbours' copies have arrived */
            if (BOTH || reads)
                reading.read(newest);
            newest = next_stage<K>(w.tiling, newest);
            oldest = next_stage<K>(w.tiling, oldest);
        } while (--i > 0);
        load.advance(steps);
        reading.advance(steps);
        writing.advance(steps);
    }
};

} // namespace COPES_GPU::sequence

#endif
