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
    int unwritten; /* steps before the first that is written */
    step_place newest = {0, 0}, oldest = {U::AHEAD * U::SLOT, 0};

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
            if (U::STRAIGHT && reads && writes && !writing.exact)
                take<true>(true, true);
            else
                take<false>(reads, writes);
        }
    }
    /* Is what is copied now to be written at once, when it has come? */
    __device__ __forceinline__ bool copies_again() const
    {
        return U::AGAIN && unwritten <= U::AHEAD;
    }
    __device__ __forceinline__ int length_of_run() const
    {
        int length = w.tiling.steps - (unwritten == 0 ? writing.step : 0);
        if (unwritten > 0)
            length = min(length, U::AGAIN && unwritten > U::AHEAD ? unwritten - U::AHEAD : unwritten);
        length = min(length, w.tiling.steps - max(reading.step, load.fresh.step));
        return copies_again() ? min(length, w.tiling.steps - load.again.step) : length;
    }
    /* One run. BOTH: of steps that are read and written, and not exactly, as nearly all are. */
    template <bool BOTH> __device__ __forceinline__ void take(bool reads, bool writes)
    {
        const int steps = length_of_run(), written = writing.tokens();
        const int fresh = load.fresh.tokens(), again = copies_again() ? load.again.tokens() : 0;
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            wait_for_copies<U::AHEAD - 1>();
            meet<U>(); /* what neighbours copied is there */
            if (!BOTH && writing.exact)
                writing.template write<true>(oldest, i, written - i * U::BATCH);
            else if (BOTH || writes)
                writing.template write<false>(oldest, i, written - i * U::BATCH);
            if (BOTH || reads)
                reading.read(newest, i);
            meet<U>(); /* neighbours have read what is to be copied over */
            load.copy(oldest, fresh - i * U::BATCH, again - i * U::BATCH);
            next_place();
        }
        load.advance(copies_again(), steps);
        if (reads)
            reading.advance(steps);
        if (writes)
            writing.advance(steps);
        else
            unwritten -= steps;
    }
    __device__ __forceinline__ void next_place()
    {
        newest.next<U>(w.tiling);
        oldest.next<U>(w.tiling);
    }
};

} // namespace COPES_GPU

#endif
