/* The copies of the cluster kernel, from memory to the ring, some steps ahead. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_COPIES_H
#define COPES_BACKENDS_CUDA_SEQUENCE_COPIES_H

#include "backends/cuda/sequence_pieces.h"
#include "backends/cuda/sequence_unit.h"

namespace COPES_GPU
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
    int left;                              /* steps of the slab */
    const char *x = nullptr, *g = nullptr; /* the next token's */

    __device__ __forceinline__ explicit loader(const worker<U> &w) : w(w), walk(w.tiling), left(w.tiling.steps)
    {
        find();
    }
    __device__ __forceinline__ bool more() const
    {
        return walk.slab < w.count;
    }
    __device__ __forceinline__ void find()
    {
        if (U::BACKWARD)
            x = reinterpret_cast<const char *>(w.piece(w.problem.x, walk));
        g = reinterpret_cast<const char *>(w.piece(w.problem.src, walk));
    }
    /* The thread's, from the next step on. */
    __device__ __forceinline__ int tokens() const
    {
        return more() ? w.tokens_from(left) : 0;
    }
    /* Starts a step's copies, of so many tokens at most. What a token past the end has adds nothing to a column. */
    template <bool AROUND> __device__ __forceinline__ void copy(uint32_t slot, int tokens)
    {
        if (tokens < U::BATCH) {
            copy_some(slot, tokens);
        } else {
#pragma unroll
            for (int t = 0; t < U::BATCH; t++)
                copy_token<AROUND>(slot, t);
        }
        end_copies();
    }
    __device__ __forceinline__ void copy_some(uint32_t slot, int tokens)
    {
#pragma unroll 1
        for (int t = 0; t < U::BATCH; t++)
            if (t < tokens)
                copy_token<true>(slot, t);
            else
                fill_token(slot, t);
    }
    template <bool AROUND> __device__ __forceinline__ void copy_token(uint32_t slot, int t)
    {
        const uint32_t first = w.copied + kept_piece<U>(slot, t), gradient = w.copied + gradient_piece<U>(slot, t);
        copy_ahead<AROUND>(first, U::BACKWARD ? x : g);
        if (U::BACKWARD)
            copy_ahead<AROUND>(gradient, g);
        if (U::BACKWARD && U::WIDE == 2)
            copy_ahead<AROUND>(gradient + U::PIECE, g + w.problem.d * sizeof(T));
        advance_token();
    }
    __device__ __forceinline__ void fill_token(uint32_t slot, int t)
    {
        const float masked[2] = {-INFINITY, -INFINITY};
        const uint32_t word = U::TERMS ? storage<T>::pack(masked) : 0;
        write_shared(w.copied + kept_piece<U>(slot, t), make_uint4(word, word, word, word));
        for (int i = 0; U::BACKWARD && i < U::WIDE; i++)
            write_shared(w.copied + gradient_piece<U>(slot, t) + i * U::PIECE, make_uint4(0, 0, 0, 0));
        advance_token();
    }
    __device__ __forceinline__ void advance_token()
    {
        if (U::BACKWARD)
            x += w.tiling.x.token;
        g += w.tiling.g.token;
    }
    __device__ __forceinline__ void advance(int steps)
    {
        left -= steps;
        if (left > 0)
            return;
        const bool follows = walk.next();
        left = more() ? w.tiling.steps : INT32_MAX;
        x += w.tiling.x.entry;
        g += w.tiling.g.entry;
        if (!follows && more())
            find();
    }
};

} // namespace COPES_GPU

#endif
