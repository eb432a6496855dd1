/* A thread's way through the steps of all slabs: what is copied, read and written in each. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_STREAM_H
#define COPES_BACKENDS_CUDA_SEQUENCE_STREAM_H

#include "backends/cuda/sequence_work.h"

namespace COPES_GPU
{

/* What the threads with tokens do. Between what begins and ends slabs, and what their last tokens ask for, steps are all
 * alike: those are taken in runs, in which there is no branch for a warp to wait at. */
template <typename U> struct stream {
    const worker<U> &w;
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
            const int alike = U::STRAIGHT ? length_of_run() : 0;
            if (alike > 0)
                take(alike);
            else
                take_one();
        }
    }
    /* Steps to come that read and write and copy all tokens. */
    __device__ __forceinline__ int length_of_run()
    {
        if (unwritten > 0 || !reading.more())
            return 0;
        writing.begin();
        reading.begin();
        const int all = w.tiling.steps, left = min(all - reading.step, all - writing.step);
        return writing.exact ? 0 : min(load.alike(), left);
    }
    __device__ __forceinline__ void take(int steps)
    {
        const int tokens = writing.tokens();
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            wait_for_copies<U::AHEAD - 1>();
            meet<U>(); /* what neighbours copied is there */
            writing.template write<false>(oldest, i, tokens - i * U::BATCH);
            reading.read(newest, i);
            meet<U>(); /* neighbours have read what is to be copied over */
            load.template copy<true>(oldest, true, i);
            next_place();
        }
        writing.advance(steps);
        reading.advance(steps);
        load.advance(true, steps);
    }
    __device__ __forceinline__ void take_one()
    {
        wait_for_copies<U::AHEAD - 1>();
        meet<U>();
        if (unwritten > 0) {
            unwritten--;
        } else {
            writing.begin();
            if (writing.exact)
                writing.template write<true>(oldest, 0, writing.tokens());
            else
                writing.template write<false>(oldest, 0, writing.tokens());
            writing.advance(1);
        }
        if (reading.more()) {
            reading.begin();
            reading.read(newest, 0);
            reading.advance(1);
        }
        meet<U>();
        const bool written = unwritten < U::AHEAD; /* what is copied now */
        load.template copy<false>(oldest, written, 0);
        load.advance(written, 1);
        next_place();
    }
    __device__ __forceinline__ void next_place()
    {
        newest.next<U>(w.tiling);
        oldest.next<U>(w.tiling);
    }
};

} // namespace COPES_GPU

#endif
