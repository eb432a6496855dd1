/* The statistics of a slab's columns in the resident kernel.
 *
 * A term is 2^(x log2 e - reference): one fused multiply-add and one exponential. The reference is about log2 e
 * times the column's largest element. It is the same for all tokens of the column, so its rounding cancels, and sums
 * of terms add up as they are. The reference is found in a few tokens before the others are read. Two things make it
 * unfit: an element that is too large for it (SLACK), and a size at which a float's spacing comes near 1 (WILD).
 * Such a slab is recomputed at the end by e^(x - most), exactly and slowly. A gradient in float32 has a whole reference, which is in
 * shared memory as TO_WHOLE - reference. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_SUMS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_SUMS_H

#include "backends/cuda/sequence/pieces.h"
#include "backends/cuda/sequence/rotations.h"

namespace COPES_GPU::sequence
{

constexpr float LEAST = -0x1p+126f; /* the smallest reference: a column of -inf alone has one, too */
constexpr float WILD = 0x1p+22f;    /* references are smaller than this */
/* A term may be 2^SLACK. Exponents round by 2^-22 or 2^-21 there. */
template <typename T> inline constexpr float SLACK = sizeof(T) == 2 ? 16 : 8;

constexpr float TO_WHOLE = 0x1.8p+23f; /* a sum with it is a whole number */

/* x log2 e - n, for a whole n close to it. */
DEVICE float rest_of_power(float x, float n)
{
    constexpr float LOG2_E_REST = 0x1.4ae0c0p-26f;
    return fmaf(x, LOG2_E_REST, fmaf(x, LOG2_E, -n));
}

/* 2^(x log2 e - n) from TO_WHOLE - n, for a whole n: of a gradient in float32, which restored_term explains. The power is split into a
 * whole number and a fraction, neither of which loses anything. */
DEVICE float split_term(float x, float shift)
{
    const float sum = __fmaf_rd(x, LOG2_E, shift), fraction = saturate(rest_of_power(x, sum - shift));
    return exp2_term(fraction) * exp2_term(sum - TO_WHOLE);
}

/* The term of x. `shift`: EXACT: the column's largest element, or the lse; else what open_columns has for a reference. */
template <typename K, bool EXACT> DEVICE float term(float x, float shift)
{
    if (K::SPLIT)
        return EXACT ? restored_term<typename K::T>(x, shift) : split_term(x, shift);
    return EXACT ? softmax_term(x, shift) : exp2_term(fmaf(x, LOG2_E, -shift));
}

/* Merges the columns of a warp's rows by butterflies. Lanes with the same tile_unit have the same columns; in each
 * exchange two of them halve the columns that both still have, down to one. Which columns are left, for N = 8:
 *   UNITS   exchanges with lane ^   left in values[0 ..]
 *   16      16                      4: 0 .. 3, or 4 .. 7 if lane & 16
 *   8       16, 8                   2: from 4 (lane >> 4 & 1) + 2 (lane >> 3 & 1) on
 *   4       16, 8, 4                1: 4 (lane >> 4 & 1) + 2 (lane >> 3 & 1) + (lane >> 2 & 1)
 * For N = 4 and UNITS = 4 the last exchange has no columns to halve: both lanes have the same column.
 * Returns the first column that is left. */
template <typename K, typename Merge> DEVICE int merge_warp(float (&values)[K::N], Merge merge)
{
    const int lane = (int)threadIdx.x % 32;
    int first = 0;
#pragma unroll
    for (int mask = 16, half = K::N / 2; mask >= K::UNITS; mask /= 2, half /= 2) {
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

/* How many columns merge_warp leaves to a thread. */
template <typename K> inline constexpr int left_of = K::COLUMNS > 32 ? K::COLUMNS / 32 : 1;

/* A thread's columns while it reads a slab. Element i is column i of its unit. Relative gradients lack the rotation
 * of the thread's first token (gradient_form); rotate_back puts it into the sums. */
template <typename K> struct open_columns {
    typedef typename K::T T;
    float reference[K::N], sum[K::N], dot[K::N];
    float across[K::N]; /* relative gradients: as dot, with the partner's gradient */
    uint4 limit;        /* the largest elements that suit the reference */
    uint32_t beyond;    /* not 0: an element was larger */

    /* Begins a slab that is prepared. */
    __device__ __forceinline__ void open(const worker<K> &w, int slab)
    {
        const block_memory<K> &memory = *block_memory<K>::get();
        const uint32_t set = (uint32_t)slab % block_memory<K>::SETS;
#pragma unroll
        for (int i = 0; i < K::N; i++) {
            sum[i] = dot[i] = across[i] = 0;
            reference[i] = K::TERMS ? memory.reference[set][w.tile_unit * K::N + i] : 0;
        }
        limit = *reinterpret_cast<const uint4 *>(memory.limit[set] + w.tile_unit * K::N);
        beyond = 0;
    }
    /* Compares the tokens of a step with the limit. */
    __device__ __forceinline__ void look(const uint4 (&words)[K::BATCH])
    {
        if (K::BACKWARD)
            return;
        uint4 most = words[0];
#pragma unroll
        for (int t = 1; t < K::BATCH; t++)
            most = larger16<T>(most, words[t]);
        beyond |= exceeds16<T>(most, limit);
    }
    /* Adds a token, backward with the gradient of its softmax. */
    template <bool EXACT> __device__ __forceinline__ void add(uint4 words, const float (&g)[2][K::V])
    {
        typedef rotated_column<K> column;
        float x[K::N];
        unpack16<T>(words, x);
#pragma unroll
        for (int i = 0; i < K::N; i++) {
            const float e = K::TERMS ? term<K, EXACT>(x[i], reference[i]) : x[i];
            if (!K::BACKWARD)
                sum[i] += e;
            if (K::BACKWARD)
                dot[i] = fmaf(e, g[i / K::V][i % K::V], dot[i]);
            if (K::GRADIENT == gradient_form::relative && !EXACT)
                across[i] = fmaf(e, g[column::partner(i) / K::V][column::partner(i) % K::V], across[i]);
        }
    }
    __device__ __forceinline__ void rotate_back(const rotation (&first)[K::V])
    {
        typedef rotated_column<K> column;
#pragma unroll
        for (int i = 0; i < K::N && K::GRADIENT == gradient_form::relative; i++) {
            const rotation by = first[column::angle(i)];
            dot[i] = fmaf(dot[i], by.cosine, across[i] * column::sine(i, by));
        }
    }
    /* Puts the warp's sums into its row of `partial`. Infinity says that an element was too large. */
    template <typename Merge> __device__ __forceinline__ void put(const worker<K> &w, Merge merge)
    {
        block_memory<K> &memory = *block_memory<K>::get();
        sum[0] = beyond != 0 ? -INFINITY : sum[0];
        int first = 0;
        if (!K::BACKWARD)
            first = merge_warp<K>(sum, merge);
        if (K::BACKWARD)
            first = merge_warp<K>(dot, merge);
#pragma unroll
        for (int i = 0; i < left_of<K>; i++)
            memory.partial[threadIdx.x / 32][w.tile_unit * K::N + first + i] = K::BACKWARD ? dot[i] : sum[i];
    }
    /* Gives the sums to the summing warp, after this warp has read the sums of the slab before. In a cluster it has:
     * the thread has begun to write that slab, since the skew is less than a slab's steps. */
    __device__ __forceinline__ void publish(const worker<K> &w, int slab)
    {
        const block_memory<K> &memory = *block_memory<K>::get();
        if (K::COOPERATIVE && slab > 0)
            wait_for_slab(memory.taken, slab - 1);
        put(w, [](float a, float b) { return a + b; });
        arrive_for_slab(memory.summed, slab);
    }
};

} // namespace COPES_GPU::sequence

#endif
