/* What the threads with tokens need before they read a slab: the references of its columns, and its rotations. The warp that
 * exchanges makes them, or one of its own where that has no time. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_PREPARATION_H
#define COPES_BACKENDS_CUDA_SEQUENCE_PREPARATION_H

#include "backends/cuda/sequence/pieces.h"
#include "backends/cuda/sequence/rotations.h"
#include "backends/cuda/sequence/sums.h"

namespace COPES_GPU::sequence
{

template <typename U> struct preparation {
    typedef typename U::T T;
    const worker<U> w;
    block_memory<U> &memory;
    const int lane = (int)threadIdx.x % 32;
    slab_walk prepared;
    uint32_t set; /* its place */
    rotation_set rotations;

    __device__ __forceinline__ explicit preparation(const worker<U> &w)
        : w(w), memory(*block_memory<U>::get()), prepared(w.walk())
    {
    }
    /* All of them, each when the one that many before it is done. */
    __device__ __forceinline__ void run()
    {
        constexpr int OPEN = block_memory<U>::OPEN;
        while (prepared.slab < w.count) {
            if (prepared.slab >= OPEN)
                wait_for_slab(memory.done, prepared.slab - OPEN);
            prepare();
        }
    }

    /* The next slab's references and rotations. */
    __device__ __forceinline__ void prepare()
    {
        if (prepared.slab >= w.count)
            return;
        set = (uint32_t)prepared.slab % block_memory<U>::SETS;
        if constexpr (U::R == role::kept)
            take_lse();
        else if constexpr (U::SUMMED)
            sample();
        if (U::ROTATED && rotations.follow(prepared.pair, w.tiling.sets))
            prepare_rotations(w, prepared, rotations.set);
        arrive_for_slab(memory.prepared, prepared.slab);
        prepared.next();
    }
    __device__ __forceinline__ void take_lse()
    {
        for (int i = lane; i < U::COLUMNS; i += 32)
            memory.reference[set][i] = read_scalar(w.lse(prepared, i / U::N, i % U::N)) * LOG2_E;
    }
    __device__ __forceinline__ const copes_view &view() const
    {
        return U::BACKWARD ? w.problem.x : w.problem.src;
    }
    /* The largest elements of some tokens, the same in every block: of 16 or more, so that hardly ever another element of
     * normal data exceeds them by what a reference allows; not a power of two apart, as data that repeats often does. */
    __device__ __forceinline__ void sample()
    {
        constexpr int AT_ONCE = 32 / U::LANES, ROUNDS = 16 / AT_ONCE > 1 ? 16 / AT_ONCE : 1;
        const int unit = lane % U::LANES;
        const int64_t apart = (w.problem.n - 1) / (AT_ONCE * ROUNDS - 1);
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const T *const from = w.column(view(), prepared, unit, part * U::N / 2);
            uint2 words[ROUNDS];
#pragma unroll
            for (int round = 0; round < ROUNDS; round++)
                words[round] = *reinterpret_cast<const uint2 *>(from + (lane / U::LANES + round * AT_ONCE) * apart *
                                                                           view().stride[1]);
            uint4 most = {words[0].x, words[0].y, words[0].x, words[0].y};
#pragma unroll
            for (int round = 1; round < ROUNDS; round++)
                most = larger16<T>(most, {words[round].x, words[round].y, words[round].x, words[round].y});
            keep(most, unit * U::N + part * U::N / 2);
        }
    }
    /* The first half of a unit, from a column on, of all lanes that have it. */
    __device__ __forceinline__ void keep(uint4 words, int column)
    {
        float x[U::N], limits[2];
        unpack16<T>(words, x);
#pragma unroll
        for (int i = 0; i < U::N / 2; i++) {
#pragma unroll
            for (int mask = 16; mask >= U::LANES; mask /= 2)
                x[i] = fmaxf(x[i], shuffle_xor(x[i], mask));
            x[i] = fmaxf(x[i] * LOG2_E, LEAST);
            memory.reference[set][column + i] = x[i];
            limits[i % storage<T>::per_word] = (SLACK<T> + x[i]) * (1 / LOG2_E);
            if ((i + 1) % storage<T>::per_word == 0)
                *reinterpret_cast<uint32_t *>(&memory.limit[set][column + i + 1 - storage<T>::per_word]) =
                    storage<T>::pack(limits);
        }
    }
};

} // namespace COPES_GPU::sequence

#endif
