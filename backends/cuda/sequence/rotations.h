/* The rotations of a thread's unit in the resident kernel. Those of its first tokens, a span of them, are in registers, and
 * the advances from there to other spans in shared memory, all of them exact, so that each turn is one product of two. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_ROTATIONS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_ROTATIONS_H

#include "backends/cuda/sequence/unit.h"

namespace COPES_GPU::sequence
{

template <typename U> DEVICE int rotation_place(int span, int lane, int i)
{
    return unit_place<U::V, 2, int>(U::LANES, span, lane, i);
}

/* Makes a slab's, by one warp. */
template <typename U> DEVICE void prepare_rotations(const worker<U> &w, const slab_walk &at, int set)
{
    const int lane = (int)threadIdx.x % 32;
    angle_step *steps = block_memory<U>::steps(w.tiling, set);
    for (int i = lane; i < U::ANGLES; i += 32) {
        const head_unit u = w.find(at.pair, i / U::V);
        const int64_t k = (int64_t)u.unit * U::V + i % U::V;
        steps[i] = step_of(w.problem, u.head, k, dimension_of(w.problem, k));
    }
    __syncwarp();
    rotation *rotations = block_memory<U>::rotations(w.tiling, set);
    for (int i = lane; i < block_memory<U>::rotations_of(w.tiling); i += 32) {
        const int span = i / U::ANGLES, angle = i % U::ANGLES;
        rotations[rotation_place<U>(span, angle / U::V, angle % U::V)] =
            rotation_at<true>(steps[angle], span * U::SPAN * w.token_step());
    }
}

/* Sets are numbered by how many pairs the cluster has seen: a set serves as long as its pair. */
struct rotation_set {
    int pair = -1, set = -1;

    /* True where a slab of another pair begins. */
    __device__ __forceinline__ bool follow(int next, int sets)
    {
        const bool other = next != pair;
        pair = next;
        set = other ? (set + 1) % sets : set;
        return other;
    }
};

template <typename U> struct unit_rotations {
    const worker<U> w;
    rotation_set now;
    rotation first[U::SPAN][U::V], advances[U::V];
    uint32_t next = 0; /* where the next span's advances are */

    __device__ __forceinline__ explicit unit_rotations(const worker<U> &w) : w(w)
    {
    }
    __device__ __forceinline__ void open(const slab_walk &at)
    {
        if (!U::ROTATED)
            return;
        const bool other = now.follow(at.pair, w.tiling.sets);
        next = shared_address(block_memory<U>::rotations(w.tiling, now.set) + rotation_place<U>(0, w.lane, 0));
        if (!other)
            return;
        const angle_step *steps = block_memory<U>::steps(w.tiling, now.set) + w.lane * U::V;
#pragma unroll
        for (int i = 0; i < U::V; i++) {
            const angle_step step = steps[i];
#pragma unroll
            for (int t = 0; t < U::SPAN; t++)
                first[t][i] =
                    rotation_at<true>(step, (int32_t)(w.problem.offset[0] + w.first_token() + t * w.token_step()));
        }
    }
    /* To be asked for in order: the rotations of token t of a step. */
    __device__ __forceinline__ void at(int t, rotation (&rotations)[U::V])
    {
        if (t % U::SPAN == 0)
            read_advances();
#pragma unroll
        for (int i = 0; i < U::V; i++)
            rotations[i] = advances[i] * first[t % U::SPAN][i];
    }
    /* In order, too, for spans of one token: turns a token's gradient back to the thread's first. */
    __device__ __forceinline__ void rotate_back(float (&g)[2][U::V])
    {
        read_advances();
        rotate<U::E>(g, advances, -1);
    }
    __device__ __forceinline__ void read_advances()
    {
#pragma unroll
        for (int i = 0; i < U::V; i += 2) {
            const uint4 words = ld_shared_128(next + (uint32_t)sizeof(rotation) * rotation_place<U>(0, 0, i));
            advances[i] = {__uint_as_float(words.x), __uint_as_float(words.y)};
            advances[i + 1] = {__uint_as_float(words.z), __uint_as_float(words.w)};
        }
        next += (uint32_t)sizeof(rotation) * rotation_place<U>(1, 0, 0);
    }
};

} // namespace COPES_GPU::sequence

#endif
