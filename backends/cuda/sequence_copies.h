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
    int step = 0;
    const T *x = nullptr, *g = nullptr; /* the next token's */

    __device__ __forceinline__ explicit loader(const worker<U> &w) : w(w), walk(w.tiling)
    {
        open();
    }
    __device__ __forceinline__ bool more() const
    {
        return walk.slab < w.count;
    }
    __device__ __forceinline__ void open()
    {
        if (U::BACKWARD)
            x = w.piece(w.problem.x, walk);
        g = w.piece(w.problem.src, walk);
    }
    /* The thread's, from the next step on. */
    __device__ __forceinline__ int tokens() const
    {
        return more() ? w.tokens - step * U::BATCH : 0;
    }
    /* Starts a step's copies, of so many tokens at most. */
    __device__ __forceinline__ void copy(uint32_t slot, int tokens)
    {
#pragma unroll
        for (int t = 0; t < U::BATCH; t++) {
            copy_token(w.copied + kept_piece<U>(slot, t), w.copied + gradient_piece<U>(slot, t), t < tokens);
            if (U::BACKWARD)
                x += w.tiling.x_step;
            g += w.tiling.g_step;
        }
        if (tokens < U::BATCH)
            fill(slot, tokens);
        end_copies();
    }
    __device__ __forceinline__ void copy_token(uint32_t first, uint32_t gradient, bool there) const
    {
        copy_ahead<U::AROUND>(first, U::BACKWARD ? x : g, there);
        if (U::BACKWARD)
            copy_ahead<U::AROUND>(gradient, g, there);
        if (U::BACKWARD && U::WIDE == 2)
            copy_ahead<U::AROUND>(gradient + U::PIECE, g + w.problem.d, there);
    }
    /* What a token past the end has adds nothing to a column. */
    __device__ __forceinline__ void fill(uint32_t slot, int tokens) const
    {
        const float masked[2] = {-INFINITY, -INFINITY};
        const uint32_t word = U::R == role::given ? 0 : storage<T>::pack(masked);
#pragma unroll 1
        for (int t = max(tokens, 0); t < U::BATCH; t++) {
            write_shared(w.copied + kept_piece<U>(slot, t), make_uint4(word, word, word, word));
            for (int i = 0; U::BACKWARD && i < U::WIDE; i++)
                write_shared(w.copied + gradient_piece<U>(slot, t) + i * U::PIECE, make_uint4(0, 0, 0, 0));
        }
    }
    __device__ __forceinline__ void advance(int steps)
    {
        if (!more())
            return;
        step += steps;
        if (step < w.tiling.steps)
            return;
        step = 0;
        walk.next();
        if (more())
            open();
    }
};

} // namespace COPES_GPU

#endif
