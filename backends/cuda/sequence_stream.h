/* A thread's way through the steps of all slabs: what is copied, read and written in each. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_STREAM_H
#define COPES_BACKENDS_CUDA_SEQUENCE_STREAM_H

#include "backends/cuda/sequence_work.h"

namespace COPES_GPU
{

/* What the threads with tokens do. Steps are taken in runs, from one beginning of a slab to the next, be it copied, read
 * or written. A run of steps that are both read and written has no branch for a warp to wait at, where that is faster. */
template <typename U> struct stream {
    const worker<U> w;
    loader<U> &load;
    reader<U> reading;
    writer<U> writing;
    int unwritten;                                    /* steps before the first that is written */
    uint32_t newest = 0, oldest = U::AHEAD * U::SLOT; /* places in the ring */

    __device__ __forceinline__ stream(const worker<U> &w, loader<U> &load)
        : w(w), load(load), reading(w), writing(w), unwritten(w.tiling.steps + w.tiling.skew)
    {
    }
    __device__ __forceinline__ void run()
    {
        while (writing.more()) {
            const bool reads = reading.more(), writes = unwritten == 0;
            if (writes)
                writing.begin();
            if (reads)
                reading.begin();
            if (U::STRAIGHT && reads && writes)
                take<true>(true, true);
            else
                take<false>(reads, writes);
        }
    }
    __device__ __forceinline__ int length_of_run() const
    {
        int length = w.tiling.steps - (unwritten == 0 ? writing.step : 0);
        if (unwritten > 0)
            length = min(length, unwritten);
        return min(length, w.tiling.steps - max(reading.step, load.step));
    }
    /* One run. BOTH: of steps that are read and written, as nearly all are. */
    template <bool BOTH> __device__ __forceinline__ void take(bool reads, bool writes)
    {
        const int steps = length_of_run(), written = writing.tokens(), copied = load.tokens();
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            wait_for_copies<U::AHEAD - 1>();
            meet<U>(); /* what neighbours copied is there */
            if (BOTH || writes)
                writing.write(oldest, i, written - i * U::BATCH);
            if (BOTH || reads)
                reading.read(newest, i);
            meet<U>(); /* neighbours have read what is to be copied over */
            load.copy(oldest, copied - i * U::BATCH);
            newest = next_slot<U>(w.tiling, newest);
            oldest = next_slot<U>(w.tiling, oldest);
        }
        load.advance(steps);
        if (reads)
            reading.advance(steps);
        if (writes)
            writing.advance(steps);
        else
            unwritten -= steps;
    }
};

} // namespace COPES_GPU

#endif
