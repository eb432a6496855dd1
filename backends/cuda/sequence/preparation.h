/* The preparing role (shared.h): one warp finds a slab's references and rotations before token threads read the slab.
 *
 *   role      reference                                limit
 *   forward   the largest element of some tokens       the largest element whose term is not too large
 *   kept      the caller's lse                         none
 *   given     none: there are no terms                 none */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_PREPARATION_H
#define COPES_BACKENDS_CUDA_SEQUENCE_PREPARATION_H

#include "backends/cuda/sequence/pieces.h"
#include "backends/cuda/sequence/rotations.h"
#include "backends/cuda/sequence/sums.h"

namespace COPES_GPU::sequence
{

template <typename K> struct preparation {
    typedef typename K::T T;
    const worker<K> w;
    block_memory<K> &memory;
    const int lane = (int)threadIdx.x % 32;
    slab_walk prepared;
    uint32_t set; /* of references */
    rotation_set rotations;

    __device__ __forceinline__ explicit preparation(const worker<K> &w)
        : w(w), memory(*block_memory<K>::get()), prepared(w.walk())
    {
    }
    /* All slabs, in a warp of its own. */
    __device__ __forceinline__ void run()
    {
        constexpr int OPEN = block_memory<K>::OPEN;
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
        set = (uint32_t)prepared.slab % block_memory<K>::SETS;
        if constexpr (K::R == role::kept)
            take_lse();
        else if constexpr (!K::BACKWARD)
            sample();
        if (K::ROTATED && rotations.follow(prepared.tile, w.tiling.sets))
            prepare_rotations(w, prepared, rotations.set);
        arrive_for_slab(memory.prepared, prepared.slab);
        prepared.next();
    }
    __device__ __forceinline__ void take_lse()
    {
        for (int i = lane; i < K::COLUMNS; i += 32) {
            const float power = read_scalar(w.lse(prepared, i / K::N, i % K::N)) * LOG2_E;
            memory.reference[set][i] = K::SPLIT ? TO_WHOLE - rintf(power) : power;
        }
    }
    __device__ __forceinline__ const copes_view &view() const
    {
        return K::BACKWARD ? w.problem.x : w.problem.src;
    }
    /* The largest element of each column in 16 tokens or more, which are the same in every block. In normal data
     * hardly any other element exceeds them by more than a reference allows. The tokens' distance is hardly ever a
     * power of two, since data often repeats at such distances.
     *   lane     tile_unit = lane % UNITS, token lane / UNITS + AT_ONCE round
     *   words    half a unit: two words for each round */
    __device__ __forceinline__ void sample()
    {
        constexpr int AT_ONCE = 32 / K::UNITS, ROUNDS = 16 / AT_ONCE > 1 ? 16 / AT_ONCE : 1;
        const int tile_unit = lane % K::UNITS;
        const int64_t apart = (w.problem.n - 1) / (AT_ONCE * ROUNDS - 1);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const T *const from = w.column(view(), prepared, tile_unit, half * K::N / 2);
            uint2 words[ROUNDS];
#pragma unroll
            for (int round = 0; round < ROUNDS; round++)
                words[round] = *reinterpret_cast<const uint2 *>(from + (lane / K::UNITS + round * AT_ONCE) * apart *
                                                                           view().stride[1]);
            uint4 most = {words[0].x, words[0].y, words[0].x, words[0].y};
#pragma unroll
            for (int round = 1; round < ROUNDS; round++)
                most = larger16<T>(most, {words[round].x, words[round].y, words[round].x, words[round].y});
            keep(most, tile_unit * K::N + half * K::N / 2);
        }
    }
    /* Writes the references and limits of half a unit, whose first column is `column`. Its elements are in the first
     * half of `words`. Lanes with the same unit merge their elements first. */
    __device__ __forceinline__ void keep(uint4 words, int column)
    {
        float x[K::N], limits[2];
        unpack16<T>(words, x);
#pragma unroll
        for (int i = 0; i < K::N / 2; i++) {
#pragma unroll
            for (int mask = 16; mask >= K::UNITS; mask /= 2)
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
