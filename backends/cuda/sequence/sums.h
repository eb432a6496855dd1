/* The statistics of a slab's columns in the resident kernel.
 *
 * A term is 2^(x log2 e - reference), one fused operation and one exponential, where the reference is about that of a
 * column's largest element and the same for all of its tokens, so that its rounding cancels and sums of terms can be
 * added as they are. It is found in a few tokens. Where one of the others turns out too large for it, or where log2 e
 * times the largest is near where a float's spacing is 1, the slab is recomputed at the end, exactly, by e^(x - most), and
 * slowly. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_SUMS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_SUMS_H

#include "backends/cuda/sequence/pieces.h"
#include "backends/cuda/sequence/rotations.h"

namespace COPES_GPU::sequence
{

constexpr float LEAST = -0x1p+126f, WILD = 0x1p+22f;
/* What a term may exceed 1 by, as a power of two: exponents round by 2^-22 or 2^-21 there. */
template <typename T> inline constexpr float SLACK = sizeof(T) == 2 ? 16 : 8;

/* e^x relative to what is subtracted. */
template <bool EXACT> DEVICE float term(float x, float shift)
{
    return EXACT ? softmax_term(x, shift) : exp2_term(fmaf(x, LOG2_E, -shift));
}

/* Adds the columns of a warp's rows: every exchange halves the columns that a thread still has, down to one. Returns
 * the first that is left to it. */
template <typename U, typename Merge> DEVICE int merge_warp(float (&values)[U::N], Merge merge)
{
    const int lane = (int)threadIdx.x % 32;
    int first = 0;
#pragma unroll
    for (int mask = 16, half = U::N / 2; mask >= U::LANES; mask /= 2, half /= 2) {
        const bool upper = (lane & mask) != 0;
        first += upper ? half : 0;
        if (half == 0)
            values[0] = merge(values[0], shuffle_xor(values[0], mask));
#pragma unroll
        for (int i = 0; i < half; i++) {
            const float kept = upper ? values[i + half] : values[i], sent = upper ? values[i] : values[i + half];
            values[i] = merge(kept, shuffle_xor(sent, mask));
        }
    }
    return first;
}

/* Columns that are left to each thread by merge_warp. */
template <typename U> inline constexpr int left_of = U::COLUMNS > 32 ? U::COLUMNS / 32 : 1;

/* A thread's columns while it reads, relative to `reference`. Of gradients that are turned back as far as the thread's first
 * token the rest, which is the same for all of its tokens, is left to the sums. */
template <typename U> struct open_columns {
    typedef typename U::T T;
    float reference[U::N], sum[U::N], dot[U::N];
    float across[U::N]; /* as dot, with the partners in the gradient */
    uint4 limit;        /* elements up to here are not too large */
    uint32_t beyond;    /* not 0: one was */

    /* Of a slab for which the references are there. */
    __device__ __forceinline__ void open(const worker<U> &w, int slab)
    {
        const block_memory<U> &memory = *block_memory<U>::get();
        const uint32_t set = (uint32_t)slab % block_memory<U>::SETS;
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            sum[i] = dot[i] = across[i] = 0;
            reference[i] = U::TERMS ? memory.reference[set][w.lane * U::N + i] : 0;
        }
        limit = *reinterpret_cast<const uint4 *>(memory.limit[set] + w.lane * U::N);
        beyond = 0;
    }
    __device__ __forceinline__ void look(const uint4 (&words)[U::BATCH])
    {
        if (!U::SUMMED)
            return;
        uint4 most = words[0];
#pragma unroll
        for (int t = 1; t < U::BATCH; t++)
            most = larger16<T>(most, words[t]);
        beyond |= exceeds16<T>(most, limit);
    }
    /* Takes a token and the gradient of its softmax. */
    template <bool EXACT> __device__ __forceinline__ void add(uint4 words, const float (&g)[2][U::V])
    {
        typedef rotated_column<U> column;
        float x[U::N];
        unpack16<T>(words, x);
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            const float e = U::TERMS ? term<EXACT>(x[i], reference[i]) : x[i];
            if (U::SUMMED)
                sum[i] += e;
            if (U::BACKWARD)
                dot[i] = fmaf(e, g[i / U::V][i % U::V], dot[i]);
            if (U::PAIRED && !EXACT)
                across[i] = fmaf(e, g[column::partner(i) / U::V][column::partner(i) % U::V], across[i]);
        }
    }
    __device__ __forceinline__ void rotate_back(const rotation (&first)[U::V])
    {
        typedef rotated_column<U> column;
#pragma unroll
        for (int i = 0; i < U::N && U::PAIRED; i++) {
            const rotation by = first[column::angle(i)];
            dot[i] = fmaf(dot[i], by.cosine, across[i] * column::sine(i, by));
        }
    }
    /* Puts the sums of the warp's rows where the block's are merged; infinity tells that an element was too large. */
    template <typename Merge> __device__ __forceinline__ void put(const worker<U> &w, Merge merge)
    {
        block_memory<U> &memory = *block_memory<U>::get();
        sum[0] = beyond != 0 ? -INFINITY : sum[0];
        int first = 0;
        if (U::SUMMED)
            first = merge_warp<U>(sum, merge);
        if (U::BACKWARD)
            first = merge_warp<U>(dot, merge);
#pragma unroll
        for (int i = 0; i < left_of<U>; i++)
            memory.partial[threadIdx.x / 32][w.lane * U::N + first + i] = U::BACKWARD ? dot[i] : sum[i];
    }
    /* Gives them to the warp that exchanges, once it has taken those of the slab before. In a cluster it has: the thread
     * began to write that slab, as the skew is less than a slab's steps. */
    __device__ __forceinline__ void publish(const worker<U> &w, int slab)
    {
        const block_memory<U> &memory = *block_memory<U>::get();
        if (U::GROUPED && slab > 0)
            wait_for_slab(memory.taken, slab - 1);
        put(w, [](float a, float b) { return a + b; });
        arrive_for_slab(memory.summed, slab);
    }
};

} // namespace COPES_GPU::sequence

#endif
