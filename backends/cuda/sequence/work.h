/* The work of a token thread on a step in the ring. It reads the step for the sums of the slab's columns. It writes the
 * step later, when the blocks have agreed on the columns. stream.h has the order. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_WORK_H
#define COPES_BACKENDS_CUDA_SEQUENCE_WORK_H

#include "backends/cuda/sequence/copies.h"
#include "backends/cuda/sequence/rotations.h"
#include "backends/cuda/sequence/sums.h"

namespace COPES_GPU::sequence
{

/* A token's gradient from the ring. */
template <typename K> DEVICE void read_gradient(const worker<K> &w, uint32_t pieces, float (&g)[2][K::V])
{
    unpack16<typename K::T>(read_unit<K>(w, pieces), g[0]);
    if (K::GRADIENT_PIECES == 2)
        unpack16<typename K::T>(read_unit<K>(w, pieces + K::PIECE_STRIDE), g[1]);
}

/* A decoded gradient, to the places that the gradient had and back. Its columns 4 i .. are in piece i. */
template <typename K> DEVICE void write_decoded(const worker<K> &w, uint32_t pieces, const float (&g)[2][K::V])
{
#pragma unroll
    for (int i = 0; i < K::N; i += 4)
        st_shared_128(w.mine + pieces + i / 4 * K::PIECE_STRIDE, pack16<f32>(g[0] + i));
}

template <typename K> DEVICE void read_decoded(const worker<K> &w, uint32_t pieces, float (&g)[2][K::V])
{
#pragma unroll
    for (int i = 0; i < K::N; i += 4)
        unpack16<f32>(ld_shared_128(w.mine + pieces + i / 4 * K::PIECE_STRIDE), g[0] + i);
}

/* Reads slabs. */
template <typename K> struct reader {
    const worker<K> w;
    slab_walk walk;
    int left; /* steps left of the slab */
    open_columns<K> columns;
    unit_rotations<K> rotations;

    __device__ __forceinline__ explicit reader(const worker<K> &w)
        : w(w), walk(w.walk()), left(w.tiling.steps), rotations(w)
    {
    }
    __device__ __forceinline__ bool more() const
    {
        return walk.slab < w.count;
    }
    __device__ __forceinline__ void open()
    {
        wait_for_slab(block_memory<K>::get()->prepared, walk.slab);
        columns.open(w, walk.slab);
        if (K::BACKWARD)
            rotations.open(walk);
    }
    __device__ __forceinline__ void read(uint32_t stage)
    {
        uint4 words[K::BATCH];
#pragma unroll
        for (int t = 0; t < K::BATCH; t++)
            words[t] = read_unit<K>(w, x_piece<K>(stage, t));
        columns.look(words);
#pragma unroll
        for (int t = 0; t < K::BATCH; t++) {
            float g[2][K::V];
            if (K::BACKWARD)
                take_gradient(gradient_piece<K>(stage, t), t, g);
            columns.template add<false>(words[t], g);
        }
    }
    __device__ __forceinline__ void take_gradient(uint32_t pieces, int t, float (&g)[2][K::V])
    {
        read_gradient(w, pieces, g);
        if (K::GRADIENT == gradient_form::relative)
            rotations.rotate_back(g);
        if (K::GRADIENT == gradient_form::decoded) {
            rotation here[K::V];
            rotations.at(t, here);
            decode<K::E>(g, here, true);
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

/* A thread's columns while it writes a slab. Element i is column i of its unit. */
template <typename K> struct finished_columns {
    float shift[K::N], scale[K::N], offset[K::N];
    /* Relative gradients: the factor of the partner's gradient. */
    float across[K::GRADIENT == gradient_form::relative ? K::N : 1];

    /* Waits until the blocks have agreed. */
    __device__ __forceinline__ void obtain(const worker<K> &w, int slab)
    {
        const block_memory<K> &memory = *block_memory<K>::get();
        wait_for_slab(memory.agreed, slab);
        const auto &finished = memory.finished[(uint32_t)slab % block_memory<K>::OPEN];
#pragma unroll
        for (int i = 0; i < K::N; i++) {
            const int column = w.tile_unit * K::N + i;
            shift[i] = K::TERMS ? memory.reference[(uint32_t)slab % block_memory<K>::SETS][column] : 0;
            scale[i] = K::TERMS ? finished[block_memory<K>::SCALE][column] : 1;
            offset[i] = K::BACKWARD ? finished[block_memory<K>::OFFSET][column] : 0;
        }
    }
    /* Puts the rotation of the thread's first token into the factors. From here on they suit relative gradients. */
    __device__ __forceinline__ void rotate_back(const rotation (&first)[K::V])
    {
        typedef rotated_column<K> column;
#pragma unroll
        for (int i = 0; i < K::N && K::GRADIENT == gradient_form::relative; i++) {
            const rotation by = first[column::angle(i)];
            across[i] = scale[i] * column::sine(i, by);
            scale[i] *= by.cosine;
        }
    }
    /* From a token to its softmax; backward without the scale, which `pass` has. */
    template <bool EXACT> __device__ __forceinline__ void find(float (&x)[2][K::V]) const
    {
#pragma unroll
        for (int i = 0; i < K::N && K::TERMS; i++) {
            float &value = x[i / K::V][i % K::V];
            value = term<K, EXACT>(value, shift[i]) * (K::BACKWARD ? 1 : scale[i]);
        }
    }
    /* From the softmax and its gradient to the gradient of its argument. RELATIVE: the gradient's form. */
    template <bool RELATIVE> __device__ __forceinline__ void pass(float (&y)[2][K::V], const float (&g)[2][K::V]) const
    {
#pragma unroll
        for (int i = 0; i < K::N; i++) {
            const int partner = rotated_column<K>::partner(i);
            float past = offset[i];
            if constexpr (RELATIVE)
                past = fmaf(g[partner / K::V][partner % K::V], across[i], past);
            y[i / K::V][i % K::V] *= fmaf(g[i / K::V][i % K::V], scale[i], past);
        }
    }
};

/* Writes the thread's unit of a token to memory, if the token exists. */
template <typename K, typename T>
DEVICE void write_token(const worker<K> &w, T *result, const float (&x)[2][K::V], bool exists)
{
    const uint4 words = pack16<T>(x[0]);
    if (K::C == coding::half) {
        st_global_if(exists, result, words.x, words.y);
        st_global_if(exists, result + w.problem.k, words.z, words.w);
    } else {
        st_global_if(exists, result, words);
    }
    if (!K::BACKWARD && K::C == coding::cosine)
        st_global_if(exists, result + w.problem.d, pack16<T>(x[1]));
}

/* Writes slabs. */
template <typename K> struct writer {
    typedef typename K::T T;
    const worker<K> w;
    slab_walk walk;
    int left;               /* steps left of the slab; at first, steps until the first slab */
    bool begun = false;     /* has it come to the first slab? */
    int tokens_left = 0;    /* of the thread, in the slab; none where the slab is to be recomputed */
    char *result = nullptr; /* where the thread's next unit goes */
    finished_columns<K> columns;
    unit_rotations<K> rotations;

    __device__ __forceinline__ explicit writer(const worker<K> &w)
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
        result = reinterpret_cast<char *>(w.first_unit(w.problem.dst, walk));
    }
    __device__ __forceinline__ void open()
    {
        columns.obtain(w, walk.slab);
        const bool skips =
            K::RECOMPUTES && block_memory<K>::get()->skipped[(uint32_t)walk.slab % block_memory<K>::OPEN];
        tokens_left = skips ? 0 : w.tokens;
        if (K::GRADIENT != gradient_form::decoded)
            rotations.open(walk);
        columns.rotate_back(rotations.first[0]);
    }
    __device__ __forceinline__ void write(uint32_t stage)
    {
#pragma unroll
        for (int t = 0; t < K::BATCH; t++) {
            float x[2][K::V];
            unpack16<T>(read_unit<K>(w, x_piece<K>(stage, t)), x[0]);
            columns.template find<false>(x);
            if (K::BACKWARD)
                pass(stage, t, x);
            if (!K::BACKWARD && K::ROTATED) {
                rotation here[K::V];
                rotations.at(t, here);
                encode<K::E>(x, here, true);
            }
            write_token(w, reinterpret_cast<T *>(result), x, t < tokens_left);
            result += w.tiling.result.token;
        }
        tokens_left -= K::BATCH;
    }
    __device__ __forceinline__ void pass(uint32_t stage, int t, float (&y)[2][K::V])
    {
        const uint32_t pieces = gradient_piece<K>(stage, t);
        float g[2][K::V];
        if constexpr (K::GRADIENT == gradient_form::decoded)
            read_decoded(w, pieces, g);
        else
            read_gradient(w, pieces, g);
        if (K::GRADIENT == gradient_form::relative)
            rotations.rotate_back(g);
        columns.template pass<K::GRADIENT == gradient_form::relative>(y, g);
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
        result += w.tiling.result.entry;
        if (__builtin_expect(!follows && more(), 0))
            find();
    }
};

} // namespace COPES_GPU::sequence

#endif
