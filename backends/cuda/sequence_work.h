/* What a block's threads with tokens do in the cluster kernel: they read a slab's steps from the ring, and some steps
 * after its last, when the cluster has agreed on its columns, they write it, while the next one's steps are read. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_WORK_H
#define COPES_BACKENDS_CUDA_SEQUENCE_WORK_H

#include "backends/cuda/sequence_copies.h"
#include "backends/cuda/sequence_sums.h"
#include "backends/cuda/sequence_turns.h"

namespace COPES_GPU
{

/* The gradient of the softmax: that of the output with the encoding undone. */
template <typename U>
DEVICE void unpack_gradient(const uint4 (&words)[U::WIDE], unit_turns<U> &turns, int step, int t, float (&g)[2][U::V])
{
    unpack16<typename U::T>(words[0], g[0]);
    if (U::WIDE == 2)
        unpack16<typename U::T>(words[U::WIDE - 1], g[1]);
    if (U::TURNED) {
        turn here[U::V];
        turns.at(step, t, here);
        decode<U::E>(g, here, true);
    }
}

template <typename U> DEVICE void read_gradient(uint32_t place, uint4 (&words)[U::WIDE])
{
#pragma unroll
    for (int i = 0; i < U::WIDE; i++)
        words[i] = read_unit<U>(place + i * U::PIECE);
}

template <typename U> struct reader {
    const worker<U> w;
    slab_walk walk;
    int step = 0, begun = 0; /* of the slab; slabs */
    open_columns<U> columns;
    unit_turns<U> turns;

    __device__ __forceinline__ explicit reader(const worker<U> &w) : w(w), walk(w.tiling), turns(w)
    {
    }
    __device__ __forceinline__ void open()
    {
        wait_for_block(shared_address(&block_memory<U>::get()->prepared[walk.slab % block_memory<U>::SETS]),
                       walk.slab / block_memory<U>::SETS % 2);
        columns.open(w, walk.slab);
        if (U::BACKWARD)
            turns.open(walk);
    }
    __device__ __forceinline__ bool more() const
    {
        return walk.slab < w.count;
    }
    __device__ __forceinline__ void begin()
    {
        if (walk.slab == begun) {
            begun++;
            open();
        }
    }
    /* The step that is `ahead` of the last advance. */
    __device__ __forceinline__ void read(uint32_t slot, int ahead)
    {
        uint4 words[U::BATCH];
#pragma unroll
        for (int t = 0; t < U::BATCH; t++)
            words[t] = read_unit<U>(w.mine + kept_piece<U>(slot, t));
        columns.look(words);
#pragma unroll
        for (int t = 0; t < U::BATCH; t++) {
            float g[2][U::V];
            if (U::BACKWARD) {
                uint4 wide[U::WIDE];
                read_gradient<U>(w.mine + gradient_piece<U>(slot, t), wide);
                unpack_gradient(wide, turns, step + ahead, t, g);
            }
            columns.template add<false>(words[t], g);
        }
    }
    __device__ __forceinline__ void advance(int steps)
    {
        step += steps;
        if (step < w.tiling.steps)
            return;
        columns.publish(w, walk.slab);
        step = 0;
        walk.next();
    }
};

/* A thread's columns while it writes. */
template <typename U> struct finished_columns {
    float shift[U::N], scale[U::N], offset[U::N];

    /* Waits until the blocks have agreed. */
    __device__ __forceinline__ void obtain(const worker<U> &w, int slab)
    {
        constexpr int OPEN = block_memory<U>::OPEN;
        const block_memory<U> &memory = *block_memory<U>::get();
        wait_for_block(shared_address(&memory.agreed[slab % OPEN]), slab / OPEN % 2);
        const float *reference = memory.reference[slab % block_memory<U>::SETS];
        const auto &finished = memory.finished[slab % OPEN];
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            const int column = w.lane * U::N + i;
            shift[i] = U::R == role::given ? 0 : reference[column];
            scale[i] = U::R == role::given ? 1 : finished[0][column];
            offset[i] = U::BACKWARD ? finished[U::FINISHED - 1][column] : 0;
        }
    }
    /* From a token, and the gradient of its softmax, to what is written. */
    template <bool EXACTLY> __device__ __forceinline__ void apply(float (&x)[2][U::V], const float (&g)[2][U::V]) const
    {
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            float &value = x[i / U::V][i % U::V];
            const float factor = U::BACKWARD ? fmaf(g[i / U::V][i % U::V], scale[i], offset[i]) : scale[i];
            const float e = term<EXACTLY>(value, shift[i]);
            value = (U::R == role::given ? value : e) * factor;
        }
    }
};

template <typename U, typename T>
DEVICE void write_token(const worker<U> &w, T *to, const float (&x)[2][U::V], bool there)
{
    const uint4 words = pack16<T>(x[0]);
    if (U::C == coding::half) {
        write_if(there, to, words.x, words.y);
        write_if(there, to + w.problem.k, words.z, words.w);
    } else {
        write_if(there, to, words);
    }
    if (!U::BACKWARD && U::C == coding::cosine)
        write_if(there, to + w.problem.d, pack16<T>(x[1]));
}

template <typename U> struct writer {
    typedef typename U::T T;
    const worker<U> w;
    slab_walk walk;
    int step = 0, begun = 0; /* of the slab; slabs */
    bool skips = false;      /* this slab, which is to be done over */
    T *to = nullptr;         /* the next token's */
    finished_columns<U> columns;
    unit_turns<U> turns;

    __device__ __forceinline__ explicit writer(const worker<U> &w) : w(w), walk(w.tiling), turns(w)
    {
    }
    __device__ __forceinline__ void open()
    {
        columns.obtain(w, walk.slab);
        skips = U::MAY_REDO && block_memory<U>::get()->skipped[walk.slab % block_memory<U>::OPEN];
        turns.open(walk);
        to = w.unit(w.problem.dst, walk);
    }
    __device__ __forceinline__ bool more() const
    {
        return walk.slab < w.count;
    }
    /* The thread's, from the next step on. */
    __device__ __forceinline__ int tokens() const
    {
        return skips ? 0 : w.tokens - step * U::BATCH;
    }
    __device__ __forceinline__ void begin()
    {
        if (walk.slab == begun) {
            begun++;
            open();
        }
    }
    __device__ __forceinline__ void advance(int steps)
    {
        step += steps;
        if (step < w.tiling.steps)
            return;
        step = 0;
        walk.next();
    }
    /* The step that is `ahead` of the last advance, as far as it is of `tokens`. */
    __device__ __forceinline__ void write(uint32_t slot, int ahead, int tokens)
    {
#pragma unroll
        for (int t = 0; t < U::BATCH; t++) {
            float x[2][U::V], g[2][U::V];
            unpack16<T>(read_unit<U>(w.mine + kept_piece<U>(slot, t)), x[0]);
            if (U::BACKWARD) {
                uint4 wide[U::WIDE];
                read_gradient<U>(w.mine + gradient_piece<U>(slot, t), wide);
                unpack_gradient(wide, turns, step + ahead, t, g);
            }
            columns.template apply<false>(x, g);
            if (!U::BACKWARD && U::TURNED) {
                turn here[U::V];
                turns.at(step + ahead, t, here);
                encode<U::E>(x, here, true);
            }
            write_token(w, to, x, t < tokens);
            to += w.tiling.to_step;
        }
    }
};

} // namespace COPES_GPU

#endif
