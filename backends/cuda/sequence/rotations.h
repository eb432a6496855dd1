/* The rotations of a thread's unit in the resident kernel. Token j of a thread is in span j / SPAN:
 *
 *   where                 what
 *   registers             first[t]: the rotation of the thread's token t of span 0
 *   shared: rotations     the advance of span s, by s SPAN token_stride positions, for each angle of the tile
 *   shared: angle_steps   the angle of one position, for each angle of the tile
 *
 * The rotation of token s SPAN + t is the product of advance s and first[t]. Both factors are exact, so errors do
 * not add up. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_ROTATIONS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_ROTATIONS_H

#include "backends/cuda/sequence/worker.h"

namespace COPES_GPU::sequence
{

/* Column i of a unit's gradient, rotated back, is the element itself times the cosine, plus its partner times the
 * sine or minus that. */
template <typename K> struct rotated_column {
    __host__ __device__ static constexpr int partner(int i)
    {
        return K::C == coding::interleaved ? i ^ 1 : (i + K::V) % K::N;
    }
    __host__ __device__ static constexpr int angle(int i)
    {
        return K::C == coding::interleaved ? i / 2 : i % K::V;
    }
    DEVICE float sine(int i, const rotation &by)
    {
        const bool opposite = K::C == coding::interleaved ? i % 2 != 0 : i >= K::V;
        return opposite ? -by.sine : by.sine;
    }
};

template <typename K> DEVICE int rotation_place(int span, int tile_unit, int i)
{
    return unit_place<K::V, 2, int>(K::UNITS, span, tile_unit, i);
}

/* One warp finds the angle steps and the advances of a slab's tile. */
template <typename K> DEVICE void prepare_rotations(const worker<K> &w, const slab_walk &at, int set)
{
    const int lane = (int)threadIdx.x % 32;
    angle_step *steps = block_memory<K>::angle_steps(w.tiling, set);
    for (int i = lane; i < K::ANGLES; i += 32) {
        const head_unit u = w.find(at.tile, i / K::V);
        const int64_t k = (int64_t)u.unit * K::V + i % K::V;
        steps[i] = step_of(w.problem, u.head, k, dimension_of(w.problem, k));
    }
    __syncwarp();
    rotation *rotations = block_memory<K>::rotations(w.tiling, set);
    for (int i = lane; i < block_memory<K>::rotations_of(w.tiling); i += 32) {
        const int span = i / K::ANGLES, angle = i % K::ANGLES;
        rotations[rotation_place<K>(span, angle / K::V, angle % K::V)] =
            rotation_at<true>(steps[angle], span * K::SPAN * w.token_stride());
    }
}

/* The set of rotations that a slab uses: one set after another goes to the group's next tile, and all slabs of a
 * tile use one set. */
struct rotation_set {
    int tile = -1, set = -1;

    /* Goes to the next slab. True where it is of another tile. */
    __device__ __forceinline__ bool follow(int next, int sets)
    {
        const bool other = next != tile;
        tile = next;
        set = !other ? set : set + 1 < sets ? set + 1 : 0;
        return other;
    }
};

template <typename K> struct unit_rotations {
    const worker<K> w;
    rotation_set now;
    rotation first[K::SPAN][K::V], advances[K::V];
    uint32_t next = 0; /* the shared address of the next span's advances */

    __device__ __forceinline__ explicit unit_rotations(const worker<K> &w) : w(w)
    {
    }
    __device__ __forceinline__ void open(const slab_walk &at)
    {
        if (!K::ROTATED)
            return;
        const bool other = now.follow(at.tile, w.tiling.sets);
        next = shared_address(block_memory<K>::rotations(w.tiling, now.set) + rotation_place<K>(0, w.tile_unit, 0));
        if (!other)
            return;
        const angle_step *steps = block_memory<K>::angle_steps(w.tiling, now.set) + w.tile_unit * K::V;
#pragma unroll
        for (int i = 0; i < K::V; i++) {
            const angle_step step = steps[i];
#pragma unroll
            for (int t = 0; t < K::SPAN; t++)
                first[t][i] =
                    rotation_at<true>(step, (int32_t)(w.problem.offset[0] + w.first_token() + t * w.token_stride()));
        }
    }
    /* The rotations of token t of a step. Callers ask in order of tokens. */
    __device__ __forceinline__ void at(int t, rotation (&rotations)[K::V])
    {
        if (t % K::SPAN == 0)
            read_advances();
#pragma unroll
        for (int i = 0; i < K::V; i++)
            rotations[i] = advances[i] * first[t % K::SPAN][i];
    }
    /* Rotates a token's gradient back as far as the thread's first token. Callers ask in order of tokens, with SPAN
     * = 1. */
    __device__ __forceinline__ void rotate_back(float (&g)[2][K::V])
    {
        read_advances();
        rotate<K::E>(g, advances, -1);
    }
    __device__ __forceinline__ void read_advances()
    {
#pragma unroll
        for (int i = 0; i < K::V; i += 2) {
            const uint4 words = ld_shared_128(next + (uint32_t)sizeof(rotation) * rotation_place<K>(0, 0, i));
            advances[i] = {__uint_as_float(words.x), __uint_as_float(words.y)};
            advances[i + 1] = {__uint_as_float(words.z), __uint_as_float(words.w)};
        }
        next += (uint32_t)sizeof(rotation) * rotation_place<K>(1, 0, 0);
    }
};

} // namespace COPES_GPU::sequence

#endif
