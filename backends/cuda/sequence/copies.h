/* The copies of a token thread from memory to the ring, AHEAD steps before it reads them. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_COPIES_H
#define COPES_BACKENDS_CUDA_SEQUENCE_COPIES_H

#include "backends/cuda/ptx/copies.h"
#include "backends/cuda/sequence/pieces.h"
#include "backends/cuda/sequence/worker.h"

namespace COPES_GPU::sequence
{

/* A thread's stage of the ring, for BATCH tokens: PIECES pieces each, PIECE_STRIDE bytes apart.
 *   piece       forward                   backward
 *   0           the argument of softmax   x: the argument, or the softmax itself (given)
 *   1           -                         the gradient, or its first half (cosine)
 *   2           -                         its second half (cosine)
 * Where token t of a step has piece 0, and piece 1: */
template <typename K> DEVICE uint32_t x_piece(uint32_t stage, int t)
{
    return stage + t * K::PIECES * K::PIECE_STRIDE;
}

template <typename K> DEVICE uint32_t gradient_piece(uint32_t stage, int t)
{
    return x_piece<K>(stage, t) + K::PIECE_STRIDE;
}

/* The ring's next stage. */
template <typename K> DEVICE uint32_t next_stage(const slab_tiling &t, uint32_t stage)
{
    return stage + K::STAGE_BYTES == t.stages * K::STAGE_BYTES ? 0 : stage + K::STAGE_BYTES;
}

/* Goes through a thread's tokens in memory, slab after slab. */
template <typename K> struct loader {
    typedef typename K::T T;
    const worker<K> w;
    slab_walk walk;
    int until;                             /* steps until the next slab may be of another tile */
    int left;                              /* steps left of the slab */
    int tokens_left;                       /* of the thread, in the slab */
    const char *x = nullptr, *g = nullptr; /* the next token's piece: thread_strides says which tensors */

    __device__ __forceinline__ explicit loader(const worker<K> &w) : w(w), walk(w.walk())
    {
        find();
    }
    __device__ __forceinline__ void find()
    {
        if (K::BACKWARD)
            x = reinterpret_cast<const char *>(w.first_piece(w.problem.x, walk));
        g = reinterpret_cast<const char *>(w.first_piece(w.problem.src, walk));
        until = walk.following() * w.tiling.steps;
        left = w.tiling.steps;
        tokens_left = w.tokens;
    }
    /* Starts the next step's copies. A token past the end is filled with values that add nothing to a column. */
    template <bool PREFETCH_128> __device__ __forceinline__ void copy(uint32_t stage)
    {
        if (__builtin_expect(tokens_left < K::BATCH, 0)) {
            copy_some(stage);
        } else {
#pragma unroll
            for (int t = 0; t < K::BATCH; t++)
                copy_token<PREFETCH_128>(stage, t);
        }
        cp_async_commit();
        tokens_left -= K::BATCH;
        if (--left == 0) {
            left = w.tiling.steps;
            tokens_left = w.tokens;
            x += w.tiling.x.entry;
            g += w.tiling.g.entry;
        }
    }
    __device__ __forceinline__ void copy_some(uint32_t stage)
    {
#pragma unroll 1
        for (int t = 0; t < K::BATCH; t++)
            if (t < tokens_left)
                copy_token<true>(stage, t);
            else
                fill_token(stage, t);
    }
    template <bool PREFETCH_128> __device__ __forceinline__ void copy_token(uint32_t stage, int t)
    {
        const uint32_t first = w.copied + x_piece<K>(stage, t), gradient = w.copied + gradient_piece<K>(stage, t);
        cp_async_16<PREFETCH_128>(first, K::BACKWARD ? x : g);
        if (K::BACKWARD)
            cp_async_16<PREFETCH_128>(gradient, g);
        if (K::BACKWARD && K::GRADIENT_PIECES == 2)
            cp_async_16<PREFETCH_128>(gradient + K::PIECE_STRIDE, g + w.problem.d * sizeof(T));
        advance_token();
    }
    __device__ __forceinline__ void fill_token(uint32_t stage, int t)
    {
        const float masked[2] = {-INFINITY, -INFINITY};
        const uint32_t word = K::TERMS ? storage<T>::pack(masked) : 0;
        st_shared_128(w.copied + x_piece<K>(stage, t), make_uint4(word, word, word, word));
        for (int i = 0; K::BACKWARD && i < K::GRADIENT_PIECES; i++)
            st_shared_128(w.copied + gradient_piece<K>(stage, t) + i * K::PIECE_STRIDE, make_uint4(0, 0, 0, 0));
        advance_token();
    }
    __device__ __forceinline__ void advance_token()
    {
        if (K::BACKWARD)
            x += w.tiling.x.token;
        g += w.tiling.g.token;
    }
    /* Counts steps whose copies are started: `until` at most. */
    __device__ __forceinline__ void advance(int steps)
    {
        until -= steps;
        if (__builtin_expect(until > 0, 1))
            return;
        walk.leave_tile();
        if (walk.slab < w.count) {
            find();
        } else {
            until = left = INT32_MAX;
            tokens_left = 0;
        }
    }
};

} // namespace COPES_GPU::sequence

#endif
