/* The copies of the cluster kernel, from memory to the ring and the stages, some steps ahead. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_COPIES_H
#define COPES_BACKENDS_CUDA_SEQUENCE_COPIES_H

#include "backends/cuda/sequence_pieces.h"
#include "backends/cuda/sequence_unit.h"

namespace COPES_GPU
{

/* A thread's pieces of one tensor or two, token by token and slab after slab. */
template <typename U> struct strand {
    typedef typename U::T T;
    const worker<U> w;
    slab_walk walk;
    int step = 0;
    const T *x = nullptr, *g = nullptr; /* the next token's */

    __device__ __forceinline__ explicit strand(const worker<U> &w) : w(w), walk(w.tiling)
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
    __device__ __forceinline__ void next_token()
    {
        if (U::BACKWARD)
            x += w.tiling.x_step;
        g += w.tiling.g_step;
    }
    __device__ __forceinline__ void advance(int steps)
    {
        step += steps;
        if (step < w.tiling.steps)
            return;
        step = 0;
        walk.next();
        if (more())
            open();
    }
    __device__ __forceinline__ void copy_gradient(bool there, uint32_t to) const
    {
        copy_ahead<U::AROUND>(to, g, there);
        if (U::WIDE == 2)
            copy_ahead<U::AROUND>(to + U::PIECE, g + w.problem.d, there);
    }
};

/* Pieces of token t of a step, as far as there are any. */
template <typename U> DEVICE uint32_t kept_piece(uint32_t slot, int t)
{
    return slot + t * U::KEPT * U::PIECE;
}

/* Where the gradient is for the statistics, or for what is written. */
template <typename U>
DEVICE uint32_t gradient_piece(const worker<U> &w, uint32_t base, step_place at, int t, bool writing)
{
    if (!U::AGAIN)
        return base + at.slot + (t * U::KEPT + 1) * U::PIECE;
    return base + w.staged + at.stage + (t * U::PASSING + (writing ? U::WIDE : 0)) * U::PIECE;
}

template <typename U> struct loader {
    const worker<U> w;
    strand<U> fresh, again;

    __device__ __forceinline__ explicit loader(const worker<U> &w) : w(w), fresh(w), again(w)
    {
    }
    /* What a token past the end has adds nothing to a column. */
    __device__ __forceinline__ void fill(step_place to, int tokens) const
    {
        const float masked[2] = {-INFINITY, -INFINITY};
        const uint32_t word = U::R == role::given ? 0 : storage<typename U::T>::pack(masked);
#pragma unroll 1
        for (int t = max(tokens, 0); t < U::BATCH; t++) {
            const uint32_t x = w.copied + kept_piece<U>(to.slot, t), g = gradient_piece(w, w.copied, to, t, false);
            write_shared(x, make_uint4(word, word, word, word));
            for (int i = 0; U::BACKWARD && i < U::WIDE; i++)
                write_shared(g + i * U::PIECE, make_uint4(0, 0, 0, 0));
        }
    }
    __device__ __forceinline__ void copy_fresh(step_place to, int tokens)
    {
#pragma unroll
        for (int t = 0; t < U::BATCH; t++) {
            const uint32_t x = w.copied + kept_piece<U>(to.slot, t), g = gradient_piece(w, w.copied, to, t, false);
            const bool there = t < tokens;
            if (U::BACKWARD) {
                copy_ahead<U::AROUND>(x, fresh.x, there);
                fresh.copy_gradient(there, g);
            } else {
                copy_ahead<U::AROUND>(x, fresh.g, there);
            }
            fresh.next_token();
        }
        if (tokens < U::BATCH)
            fill(to, tokens);
    }
    __device__ __forceinline__ void copy_again(step_place to, int tokens)
    {
#pragma unroll
        for (int t = 0; t < U::BATCH; t++) {
            again.copy_gradient(t < tokens, gradient_piece(w, w.copied, to, t, true));
            again.next_token();
        }
    }
    /* Starts a step's copies: of so many tokens at most what is read, and what is copied again to be written. */
    __device__ __forceinline__ void copy(step_place to, int fresh_tokens, int again_tokens)
    {
        copy_fresh(to, fresh_tokens);
        if (U::AGAIN)
            copy_again(to, again_tokens);
        end_copies();
    }
    __device__ __forceinline__ void advance(bool written, int steps)
    {
        if (fresh.more())
            fresh.advance(steps);
        if (U::AGAIN && written && again.more())
            again.advance(steps);
    }
};

} // namespace COPES_GPU

#endif
