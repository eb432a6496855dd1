/* A thread's way through the steps of all slabs: what is copied, read and written in each. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_STREAM_H
#define COPES_BACKENDS_CUDA_SEQUENCE_STREAM_H

#include "backends/cuda/sequence/work.h"

namespace COPES_GPU::sequence
{

/* What the threads with tokens do. Steps are taken in runs, from where a slab begins to be read or written, or one of
 * another pair to be copied, to the next such place. A run of steps that are both read and written has no branch for a warp
 * to wait at. In each step what is written leaves its place to a copy at once, and copies are waited for only when they are
 * read: so they have nearly AHEAD steps to come. */
template <typename U> struct stream {
    const worker<U> w;
    loader<U> &load;
    reader<U> reading;
    writer<U> writing;
    uint32_t newest = 0, oldest = U::AHEAD * U::SLOT; /* places in the ring */

    __device__ __forceinline__ stream(const worker<U> &w, loader<U> &load) : w(w), load(load), reading(w), writing(w)
    {
    }
    __device__ __forceinline__ void run()
    {
        reading.open();
        if (U::C != coding::half || !U::BACKWARD || w.tiling.around)
            run<true>();
        else
            run<false>();
    }
    template <bool AROUND> __device__ __forceinline__ void run()
    {
        while (writing.more()) {
            take<false, AROUND>(reading.more(), writing.begun);
            if (reading.more() && writing.begun)
                do
                    take<true, AROUND>(true, true);
                while (reading.more());
        }
    }
    /* One run. BOTH: of steps that are read and written, as nearly all are. */
    template <bool BOTH, bool AROUND> __device__ __forceinline__ void take(bool reads, bool writes)
    {
        const int steps = min(load.until, min(reading.left, writing.left));
        int i = steps; /* one at least */
#pragma unroll 1
        do {
            if (BOTH || writes)
                writing.write(oldest);
            pair_sync<U>(); /* neighbours have read what is to be copied over */
            load.template copy<AROUND>(oldest);
            cp_async_wait<U::AHEAD>();
            pair_sync<U>(); /* what neighbours copied is there */
            if (BOTH || reads)
                reading.read(newest);
            newest = next_slot<U>(w.tiling, newest);
            oldest = next_slot<U>(w.tiling, oldest);
        } while (--i > 0);
        load.advance(steps);
        reading.advance(steps);
        writing.advance(steps);
    }
};

} // namespace COPES_GPU::sequence

#endif
