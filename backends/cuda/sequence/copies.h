/* The copies of the resident kernel, from memory to the ring, some steps ahead. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_COPIES_H
#define COPES_BACKENDS_CUDA_SEQUENCE_COPIES_H

#include "backends/cuda/sequence/pieces.h"
#include "backends/cuda/sequence/unit.h"

namespace COPES_GPU::sequence
{

/* Where token t of a step is: of x, or what is normalized, and then of the gradient. */
template <typename U> DEVICE uint32_t kept_piece(uint32_t slot, int t)
{
    return slot + t * U::KEPT * U::PIECE;
}

template <typename U> DEVICE uint32_t gradient_piece(uint32_t slot, int t)
{
    return kept_piece<U>(slot, t) + U::PIECE;
}

/* A thread's pieces of one tensor or two, token by token and slab after slab. */
template <typename U> struct loader {
    typedef typename U::T T;
    const worker<U> w;
    slab_walk walk;
    int until;                             /* steps to the first slab that does not follow on in memory */
    int left;                              /* steps of the slab */
    int there;                             /* the thread's tokens of it, from the next step on */
    const char *x = nullptr, *g = nullptr; /* the next token's */

    __device__ __forceinline__ explicit loader(const worker<U> &w) : w(w), walk(w.walk())
    {
        find();
    }
    __device__ __forceinline__ void find()
    {
        if (U::BACKWARD)
            x = reinterpret_cast<const char *>(w.piece(w.problem.x, walk));
        g = reinterpret_cast<const char *>(w.piece(w.problem.src, walk));
        until = walk.following() * w.tiling.steps;
        left = w.tiling.steps;
        there = w.tokens;
    }
    /* Starts the next step's copies. What a token past the end has adds nothing to a column. */
    template <bool AROUND> __device__ __forceinline__ void copy(uint32_t slot)
    {
        if (__builtin_expect(there < U::BATCH, 0)) {
            copy_some(slot);
        } else {
#pragma unroll
            for (int t = 0; t < U::BATCH; t++)
                copy_token<AROUND>(slot, t);
        }
        cp_async_commit();
        there -= U::BATCH;
        if (--left == 0) {
            left = w.tiling.steps;
            there = w.tokens;
            x += w.tiling.x.entry;
            g += w.tiling.g.entry;
        }
    }
    __device__ __forceinline__ void copy_some(uint32_t slot)
    {
#pragma unroll 1
        for (int t = 0; t < U::BATCH; t++)
            if (t < there)
                copy_token<true>(slot, t);
            else
                fill_token(slot, t);
    }
    template <bool AROUND> __device__ __forceinline__ void copy_token(uint32_t slot, int t)
    {
        const uint32_t first = w.copied + kept_piece<U>(slot, t), gradient = w.copied + gradient_piece<U>(slot, t);
        cp_async_16<AROUND>(first, U::BACKWARD ? x : g);
        if (U::BACKWARD)
            cp_async_16<AROUND>(gradient, g);
        if (U::BACKWARD && U::WIDE == 2)
            cp_async_16<AROUND>(gradient + U::PIECE, g + w.problem.d * sizeof(T));
        advance_token();
    }
    __device__ __forceinline__ void fill_token(uint32_t slot, int t)
    {
        const float masked[2] = {-INFINITY, -INFINITY};
        const uint32_t word = U::TERMS ? storage<T>::pack(masked) : 0;
        st_shared_128(w.copied + kept_piece<U>(slot, t), make_uint4(word, word, word, word));
        for (int i = 0; U::BACKWARD && i < U::WIDE; i++)
            st_shared_128(w.copied + gradient_piece<U>(slot, t) + i * U::PIECE, make_uint4(0, 0, 0, 0));
        advance_token();
    }
    __device__ __forceinline__ void advance_token()
    {
        if (U::BACKWARD)
            x += w.tiling.x.token;
        g += w.tiling.g.token;
    }
    /* After so many steps, `until` at most. */
    __device__ __forceinline__ void advance(int steps)
    {
        until -= steps;
        if (__builtin_expect(until > 0, 1))
            return;
        walk.leave_pair();
        if (walk.slab < w.count) {
            find();
        } else {
            until = left = INT32_MAX;
            there = 0;
        }
    }
};

} // namespace COPES_GPU::sequence

#endif
