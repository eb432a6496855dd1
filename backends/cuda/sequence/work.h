/* What a block's threads with tokens do in the resident kernel: they read a slab's steps from the ring, and some steps
 * after its last, when the cluster has agreed on its columns, they write it, while the next one's steps are read. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_WORK_H
#define COPES_BACKENDS_CUDA_SEQUENCE_WORK_H

#include "backends/cuda/sequence/copies.h"
#include "backends/cuda/sequence/rotations.h"
#include "backends/cuda/sequence/sums.h"

namespace COPES_GPU::sequence
{

/* A token's gradient. */
template <typename U> DEVICE void read_gradient(const worker<U> &w, uint32_t pieces, float (&g)[2][U::V])
{
    unpack16<typename U::T>(read_unit<U>(w, pieces), g[0]);
    if (U::WIDE == 2)
        unpack16<typename U::T>(read_unit<U>(w, pieces + U::PIECE), g[1]);
}

/* A decoded one, where it was. */
template <typename U> DEVICE void write_decoded(const worker<U> &w, uint32_t pieces, const float (&g)[2][U::V])
{
#pragma unroll
    for (int i = 0; i < U::N; i += 4)
        st_shared_128(w.mine + pieces + i / 4 * U::PIECE, pack16<f32>(g[0] + i));
}

template <typename U> DEVICE void read_decoded(const worker<U> &w, uint32_t pieces, float (&g)[2][U::V])
{
#pragma unroll
    for (int i = 0; i < U::N; i += 4)
        unpack16<f32>(ld_shared_128(w.mine + pieces + i / 4 * U::PIECE), g[0] + i);
}

template <typename U> struct reader {
    const worker<U> w;
    slab_walk walk;
    int left; /* steps of the slab */
    open_columns<U> columns;
    unit_rotations<U> rotations;

    __device__ __forceinline__ explicit reader(const worker<U> &w)
        : w(w), walk(w.walk()), left(w.tiling.steps), rotations(w)
    {
    }
    __device__ __forceinline__ bool more() const
    {
        return walk.slab < w.count;
    }
    __device__ __forceinline__ void open()
    {
        wait_for_slab(block_memory<U>::get()->prepared, walk.slab);
        columns.open(w, walk.slab);
        if (U::BACKWARD)
            rotations.open(walk);
    }
    __device__ __forceinline__ void read(uint32_t slot)
    {
        uint4 words[U::BATCH];
#pragma unroll
        for (int t = 0; t < U::BATCH; t++)
            words[t] = read_unit<U>(w, kept_piece<U>(slot, t));
        columns.look(words);
#pragma unroll
        for (int t = 0; t < U::BATCH; t++) {
            float g[2][U::V];
            if (U::BACKWARD)
                take_gradient(gradient_piece<U>(slot, t), t, g);
            columns.template add<false>(words[t], g);
        }
    }
    __device__ __forceinline__ void take_gradient(uint32_t pieces, int t, float (&g)[2][U::V])
    {
        read_gradient(w, pieces, g);
        if (U::PAIRED)
            rotations.rotate_back(g);
        if (U::DECODED) {
            rotation here[U::V];
            rotations.at(t, here);
            decode<U::E>(g, here, true);
            write_decoded(w, pieces, g);
        }
    }
    __device__ __forceinline__ void advance(int steps)
    {
        left -= steps;
        if (left > 0)
            return;
        columns.rotate_back(rotations.first[0]);
        columns.publish(w, walk.slab);
        walk.next();
        left = more() ? w.tiling.steps : INT32_MAX;
        if (more())
            open();
    }
};

/* A thread's columns while it writes. */
template <typename U> struct finished_columns {
    float shift[U::N], scale[U::N], offset[U::N];
    float across[U::PAIRED ? U::N : 1]; /* what scales the partner's gradient */

    /* Waits until the blocks have agreed. */
    __device__ __forceinline__ void obtain(const worker<U> &w, int slab)
    {
        const block_memory<U> &memory = *block_memory<U>::get();
        wait_for_slab(memory.agreed, slab);
        const auto &finished = memory.finished[(uint32_t)slab % block_memory<U>::OPEN];
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            const int column = w.lane * U::N + i;
            shift[i] = U::TERMS ? memory.reference[(uint32_t)slab % block_memory<U>::SETS][column] : 0;
            scale[i] = U::TERMS ? finished[U::SCALE][column] : 1;
            offset[i] = U::BACKWARD ? finished[U::OFFSET][column] : 0;
        }
    }
    /* From here on gradients are to be turned back from the thread's first token. */
    __device__ __forceinline__ void rotate_back(const rotation (&first)[U::V])
    {
        typedef rotated_column<U> column;
#pragma unroll
        for (int i = 0; i < U::N && U::PAIRED; i++) {
            const rotation by = first[column::angle(i)];
            across[i] = scale[i] * column::sine(i, by);
            scale[i] *= by.cosine;
        }
    }
    /* From a token to its softmax, or backward to what is that but for the scale. */
    template <bool EXACT> __device__ __forceinline__ void find(float (&x)[2][U::V]) const
    {
#pragma unroll
        for (int i = 0; i < U::N && U::TERMS; i++) {
            float &value = x[i / U::V][i % U::V];
            value = term<EXACT>(value, shift[i]) * (U::BACKWARD ? 1 : scale[i]);
        }
    }
    /* From that and the softmax's gradient to that of its argument. TURN: the gradient is still to be turned back. */
    template <bool TURN> __device__ __forceinline__ void pass(float (&y)[2][U::V], const float (&g)[2][U::V]) const
    {
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            const int partner = rotated_column<U>::partner(i);
            float past = offset[i];
            if constexpr (TURN)
                past = fmaf(g[partner / U::V][partner % U::V], across[i], past);
            y[i / U::V][i % U::V] *= fmaf(g[i / U::V][i % U::V], scale[i], past);
        }
    }
};

template <typename U, typename T>
DEVICE void write_token(const worker<U> &w, T *to, const float (&x)[2][U::V], bool there)
{
    const uint4 words = pack16<T>(x[0]);
    if (U::C == coding::half) {
        st_global_if(there, to, words.x, words.y);
        st_global_if(there, to + w.problem.k, words.z, words.w);
    } else {
        st_global_if(there, to, words);
    }
    if (!U::BACKWARD && U::C == coding::cosine)
        st_global_if(there, to + w.problem.d, pack16<T>(x[1]));
}

template <typename U> struct writer {
    typedef typename U::T T;
    const worker<U> w;
    slab_walk walk;
    int left;           /* steps to the first slab, then of the slab */
    bool begun = false; /* has it come to the first? */
    int there = 0;      /* the thread's tokens of the slab, from the next step on */
    char *to = nullptr; /* the next token's */
    finished_columns<U> columns;
    unit_rotations<U> rotations;

    __device__ __forceinline__ explicit writer(const worker<U> &w)
        : w(w), walk(w.walk()), left(w.tiling.steps + w.tiling.skew), rotations(w)
    {
        find();
    }
    __device__ __forceinline__ bool more() const
    {
        return walk.slab < w.count;
    }
    __device__ __forceinline__ void find()
    {
        to = reinterpret_cast<char *>(w.unit(w.problem.dst, walk));
    }
    __device__ __forceinline__ void open()
    {
        columns.obtain(w, walk.slab);
        const bool skips =
            U::RECOMPUTES && block_memory<U>::get()->skipped[(uint32_t)walk.slab % block_memory<U>::OPEN];
        there = skips ? 0 : w.tokens; /* if it is to be recomputed */
        if (!U::DECODED)
            rotations.open(walk);
        columns.rotate_back(rotations.first[0]);
    }
    __device__ __forceinline__ void write(uint32_t slot)
    {
#pragma unroll
        for (int t = 0; t < U::BATCH; t++) {
            float x[2][U::V];
            unpack16<T>(read_unit<U>(w, kept_piece<U>(slot, t)), x[0]);
            columns.template find<false>(x);
            if (U::BACKWARD)
                pass(slot, t, x);
            if (!U::BACKWARD && U::ROTATED) {
                rotation here[U::V];
                rotations.at(t, here);
                encode<U::E>(x, here, true);
            }
            write_token(w, reinterpret_cast<T *>(to), x, t < there);
            to += w.tiling.to.token;
        }
        there -= U::BATCH;
    }
    __device__ __forceinline__ void pass(uint32_t slot, int t, float (&y)[2][U::V])
    {
        const uint32_t pieces = gradient_piece<U>(slot, t);
        float g[2][U::V];
        if constexpr (U::DECODED)
            read_decoded(w, pieces, g);
        else
            read_gradient(w, pieces, g);
        if (U::PAIRED)
            rotations.rotate_back(g);
        columns.template pass<U::PAIRED>(y, g);
    }
    __device__ __forceinline__ void advance(int steps)
    {
        left -= steps;
        if (left > 0)
            return;
        left = w.tiling.steps;
        if (begun)
            leave();
        begun = true;
        if (more())
            open();
    }
    __device__ __forceinline__ void leave()
    {
        const bool follows = walk.next();
        to += w.tiling.to.entry;
        if (__builtin_expect(!follows && more(), 0))
            find();
    }
};

} // namespace COPES_GPU::sequence

#endif
