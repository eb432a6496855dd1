/* A thread's way through the steps of all slabs: what is copied, read and written in each. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_STREAM_H
#define COPES_BACKENDS_CUDA_SEQUENCE_STREAM_H

#include "backends/cuda/sequence_work.h"

namespace COPES_GPU
{

/* What the threads with tokens do. Steps are taken in runs, from one beginning of a slab to the next, be it copied, read
 * or written. A run of steps that are both read and written has no branch for a warp to wait at. */
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
            const bool reads = reading.more();
            if (reads && writing.begun)
                take<true, AROUND>(true, true);
            else
                take<false, AROUND>(reads, writing.begun);
        }
    }
    /* One run. BOTH: of steps that are read and written, as nearly all are. */
    template <bool BOTH, bool AROUND> __device__ __forceinline__ void take(bool reads, bool writes)
    {
        const int steps = min(load.left, min(reading.left, writing.left));
        const int written = writing.tokens(), copied = load.tokens();
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            wait_for_copies<U::AHEAD - 1>();
            meet<U>(); /* what neighbours copied is there */
            if (BOTH || writes)
                writing.write(oldest, written - i * U::BATCH);
            if (BOTH || reads)
                reading.read(newest);
            meet<U>(); /* neighbours have read what is to be copied over */
            load.template copy<AROUND>(oldest, copied - i * U::BATCH);
            newest = next_slot<U>(w.tiling, newest);
            oldest = next_slot<U>(w.tiling, oldest);
        }
        load.advance(steps);
        reading.advance(steps);
        writing.advance(steps);
    }
};

} // namespace COPES_GPU

#endif
