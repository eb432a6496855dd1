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
        wait_for_block(shared_address(&block_memory<U>::get()->prepared[walk.slab % 2]), walk.slab / 2 % 2);
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
    __device__ __forceinline__ void read(step_place at, int ahead)
    {
        uint4 words[U::BATCH];
#pragma unroll
        for (int t = 0; t < U::BATCH; t++)
            words[t] = read_unit<U>(w.mine + kept_piece<U>(at.slot, t));
        columns.look(words);
#pragma unroll
        for (int t = 0; t < U::BATCH; t++) {
            float g[2][U::V];
            if (U::BACKWARD) {
                uint4 wide[U::WIDE];
                read_gradient<U>(gradient_piece(w, w.mine, at, t, false), wide);
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
        columns.publish(w);
        step = 0;
        walk.next();
    }
};

/* A thread's columns while it writes. */
template <typename U> struct finished_columns {
    float shift[U::N], scale[U::N], offset[U::N];

    __device__ __forceinline__ void read(const worker<U> &w)
    {
        const block_memory<U> &memory = *block_memory<U>::get();
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            shift[i] = memory.finished[0][w.lane * U::N + i];
            scale[i] = memory.finished[1][w.lane * U::N + i];
            offset[i] = U::BACKWARD ? -memory.finished[2][w.lane * U::N + i] : 0;
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

template <typename U> struct writer {
    typedef typename U::T T;
    const worker<U> w;
    slab_walk walk;
    int step = 0, begun = 0; /* of the slab; slabs */
    uint32_t round = 0;      /* of what is agreed on */
    bool exact = false;
    T *to = nullptr; /* the next token's */
    finished_columns<U> columns;
    unit_turns<U> turns;

    __device__ __forceinline__ explicit writer(const worker<U> &w) : w(w), walk(w.tiling), turns(w)
    {
    }
    /* Waits until the cluster has agreed. True if something is to be given to the exchange again. */
    __device__ __forceinline__ bool obtain()
    {
        const block_memory<U> &memory = *block_memory<U>::get();
        wait_for_block(shared_address(&memory.agreed), round++ % 2);
        columns.read(w);
        return U::R != role::given && memory.repeat;
    }
    __device__ __forceinline__ void open()
    {
        exact = obtain();
        if (exact)
            repeat();
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
        return w.tokens - step * U::BATCH;
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
    /* The step that is `ahead` of the last advance, as far as it is of `tokens`. EXACTLY: terms need care. */
    template <bool EXACTLY> __device__ __forceinline__ void write(step_place at, int ahead, int tokens)
    {
#pragma unroll
        for (int t = 0; t < U::BATCH; t++) {
            float x[2][U::V], g[2][U::V];
            unpack16<T>(read_unit<U>(w.mine + kept_piece<U>(at.slot, t)), x[0]);
            if (U::BACKWARD) {
                uint4 wide[U::WIDE];
                read_gradient<U>(gradient_piece(w, w.mine, at, t, true), wide);
                unpack_gradient(wide, turns, step + ahead, t, g);
            }
            columns.template apply<EXACTLY>(x, g);
            if (!U::BACKWARD && U::TURNED) {
                turn here[U::V];
                turns.at(step + ahead, t, here);
                encode<U::E>(x, here, true);
            }
            write_token(x, t < tokens);
            to += w.tiling.to_step;
        }
    }
    __device__ __forceinline__ void write_token(const float (&x)[2][U::V], bool there) const
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

    /* Takes the slab's statistics once more, from memory: first the largest elements, then the sums relative to
     * those. */
    __device__ __forceinline__ void repeat()
    {
        open_columns<U> c;
        if (!w.kept()) {
            fill(c, -INFINITY);
            for_tokens([&](int, const uint4 &words) {
                float x[U::N];
                unpack16<T>(words, x);
#pragma unroll
                for (int i = 0; i < U::N; i++)
                    c.sum[i] = fmaxf(c.sum[i], x[i]);
            });
            c.publish_most();
            obtain();
        }
        fill(c, 0);
#pragma unroll
        for (int i = 0; i < U::N; i++)
            c.reference[i] = w.kept() ? read_scalar(w.lse(walk, w.lane, i)) : shift_of(columns.shift[i]);
        turns.open(walk);
        for_tokens([&](int token, const uint4 &words) { add_exactly(c, token, words); });
        c.publish(w);
        obtain();
    }
    __device__ __forceinline__ void fill(open_columns<U> &c, float value) const
    {
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            c.sum[i] = value;
            c.dot[i] = 0;
        }
        c.beyond = 0;
    }
    __device__ __forceinline__ uint4 read_memory(const T *from) const
    {
        const uint2 a = *reinterpret_cast<const uint2 *>(from);
        const uint2 b = *reinterpret_cast<const uint2 *>(from + (U::C == coding::half ? w.problem.k : U::N / 2));
        return make_uint4(a.x, a.y, b.x, b.y);
    }
    template <typename Take> __device__ __forceinline__ void for_tokens(Take take) const
    {
        const copes_view &view = U::BACKWARD ? w.problem.x : w.problem.src;
        const T *from = w.unit(view, walk);
#pragma unroll 1
        for (int token = 0; token < w.tokens; token++, from += U::BACKWARD ? w.tiling.x_step : w.tiling.g_step)
            take(token, read_memory(from));
    }
    __device__ __forceinline__ void add_exactly(open_columns<U> &c, int token, const uint4 &words)
    {
        float g[2][U::V];
        if (U::BACKWARD) {
            const T *from = w.unit(w.problem.src, walk) + token * w.tiling.g_step;
            uint4 wide[U::WIDE];
#pragma unroll
            for (int i = 0; i < U::WIDE; i++)
                wide[i] = read_memory(from + i * w.problem.d);
            unpack_gradient(wide, turns, token / U::BATCH, token % U::BATCH, g);
        }
        c.template add<true>(words, g);
    }
};

} // namespace COPES_GPU

#endif
