/* The statistics of a slab's columns in the cluster kernel: taken token by token, merged over a warp, a block and a cluster.
 *
 * A term is 2^(x log2 e - most), one fused operation and one exponential, with `most` rounded once and the same wherever a
 * column's terms meet, so that its rounding cancels. That holds while log2 e times the largest element is far from where a
 * float's spacing is 1; a slab with a wilder column is done over EXACTly, by e^(x - most), and slowly. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_STATISTICS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_STATISTICS_H

#include "backends/cuda/sequence_ring.h"

namespace COPES_GPU
{

/* A thread's columns while it reads. */
template <typename U> struct open_columns {
    float most[U::N], sum[U::N], dot[U::N];
};

constexpr float LEAST = -0x1p+126f, WILD = 0x1p+22f;

/* float16 ends at 65504, and infinities come to NaN either way. */
template <typename U>
inline constexpr bool may_be_wild = U::R != role::given && storage<typename U::T>::dtype != COPES_F16;
enum { SLACK = 8 }; /* what a term may exceed 1 by, as a power of two */

/* e^x relative to what is subtracted. */
template <bool EXACT> DEVICE float term(float x, float shift)
{
    return EXACT ? softmax_term(x, shift) : exp2_term(fmaf(x, LOG2_E, -shift));
}

/* The same of another column's `most`. */
template <bool EXACT> DEVICE float weight(float other, float most)
{
    return EXACT ? softmax_term(other, shift_of(most)) : exp2_term(other - most);
}

template <typename U> DEVICE void open_slab(const worker<U> &w, int slab, bool kept, open_columns<U> &c)
{
#pragma unroll
    for (int i = 0; i < U::N; i++) {
        c.most[i] = U::R == role::given ? 0 : LEAST;
        if (kept)
            c.most[i] = read_scalar(w.lse_of(slab, w.lane, i)) * LOG2_E;
        c.sum[i] = c.dot[i] = 0;
    }
}

/* Any number near the largest will do to be relative to: it follows only when left well behind. */
template <typename U> DEVICE void follow(const float (&top)[U::N], open_columns<U> &c)
{
    bool behind = false;
#pragma unroll
    for (int i = 0; i < U::N; i++)
        behind |= fmaf(top[i], LOG2_E, -c.most[i]) > SLACK;
    if (!behind)
        return;
#pragma unroll
    for (int i = 0; i < U::N; i++) {
        const float most = fmaxf(top[i] * LOG2_E, c.most[i]), shrink = exp2_term(c.most[i] - most);
        c.sum[i] *= shrink;
        c.dot[i] *= shrink;
        c.most[i] = most;
    }
}

/* Takes a step's tokens: their words, and the gradients of their softmax. */
template <typename U>
DEVICE void add_tokens(const uint4 (&words)[U::BATCH], const float (&g)[U::BATCH][2][U::V], bool kept,
                       open_columns<U> &c)
{
    if (U::R != role::given && !kept) {
        uint4 largest = words[0];
        float top[U::N];
#pragma unroll
        for (int t = 1; t < U::BATCH; t++)
            largest = larger16<typename U::T>(largest, words[t]);
        unpack16<typename U::T>(largest, top);
        follow(top, c);
    }
#pragma unroll
    for (int t = 0; t < U::BATCH; t++) {
        float x[U::N];
        unpack16<typename U::T>(words[t], x);
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            const float e = U::R == role::given ? x[i] : term<false>(x[i], c.most[i]);
            c.sum[i] += e;
            if (U::BACKWARD)
                c.dot[i] = fmaf(e, g[t][i / U::V][i % U::V], c.dot[i]);
        }
    }
}

template <bool EXACT> DEVICE column merge_columns(const column &a, const column &b)
{
    const float most = fmaxf(a.most, b.most), left = weight<EXACT>(a.most, most), right = weight<EXACT>(b.most, most);
    return {most, a.sum * left + b.sum * right, a.dot * left + b.dot * right};
}

DEVICE column shuffle_column(const column &c, int mask)
{
    return {shuffle_xor(c.most, mask), shuffle_xor(c.sum, mask), shuffle_xor(c.dot, mask)};
}

/* Columns that are left to each thread by merge_warp. */
template <typename U> inline constexpr int left_of = U::COLUMNS > 32 ? U::COLUMNS / 32 : 1;

/* Merges the columns of a warp's rows: every exchange halves the columns that a thread still has, down to one. Returns the
 * first that is left to it. */
template <typename U> DEVICE int merge_warp(const open_columns<U> &c, column (&left)[U::N])
{
    const int lane = (int)threadIdx.x % 32;
    int first = 0;
#pragma unroll
    for (int i = 0; i < U::N; i++)
        left[i] = {c.most[i], c.sum[i], c.dot[i]};
#pragma unroll
    for (int mask = 16, half = U::N / 2; mask >= U::LANES; mask /= 2, half /= 2) {
        const bool upper = (lane & mask) != 0;
        first += upper ? half : 0;
        if (half == 0)
            left[0] = merge_columns<false>(left[0], shuffle_column(left[0], mask));
#pragma unroll
        for (int i = 0; i < half; i++) {
            const column kept = upper ? left[i + half] : left[i], sent = upper ? left[i] : left[i + half];
            left[i] = merge_columns<false>(kept, shuffle_column(sent, mask));
        }
    }
    return first;
}

DEVICE void pack_column(const column &c, float2 *to)
{
    *to = make_float2(c.most, c.sum);
}

DEVICE void pack_column(const column &c, float4 *to)
{
    *to = make_float4(c.most, c.sum, c.dot, 0);
}

DEVICE float dot_of(const float2 &)
{
    return 0;
}

DEVICE float dot_of(const float4 &message)
{
    return message.z;
}

/* `count` columns, `stride` apart, into one: the largest first, so that no sum waits for another. */
template <bool EXACT, typename Message> DEVICE column merge_all(const Message *from, int count, int stride)
{
    column all = {EXACT ? -INFINITY : LEAST, 0, 0};
#pragma unroll 4
    for (int i = 0; i < count; i++)
        all.most = fmaxf(all.most, from[i * stride].x);
#pragma unroll 2
    for (int i = 0; i < count; i++) {
        const Message part = from[i * stride];
        const float factor = weight<EXACT>(part.x, all.most);
        all.sum = fmaf(part.y, factor, all.sum);
        all.dot = fmaf(dot_of(part), factor, all.dot);
    }
    return all;
}

/* What the cluster's blocks tell each other. Exchanges alternate between two mailboxes: a block sends its third only when
 * every other has read its first, since each has to have sent its second by then. */
template <typename U> struct exchange {
    const worker<U> &w;
    uint32_t number = 0;

    __device__ __forceinline__ explicit exchange(const worker<U> &w) : w(w)
    {
    }
    __device__ __forceinline__ uint32_t mailbox() const
    {
        return shared_address(&block_memory<U>::get()->mailbox[number % 2]);
    }

    /* Sends the block's columns to every block of the cluster, from those of its threads. */
    __device__ __forceinline__ void publish(const open_columns<U> &c) const
    {
        column left[U::N];
        const int which = merge_warp<U>(c, left);
#pragma unroll
        for (int i = 0; i < left_of<U>; i++)
            keep(which + i, left[i]);
        send_all<false>();
    }

    /* A column of the thread's unit, merged over its warp. */
    __device__ __forceinline__ void keep(int i, const column &c) const
    {
        pack_column(c, &block_memory<U>::get()->warps[threadIdx.x / 32][w.lane * U::N + i]);
    }

    template <bool EXACT> __device__ __forceinline__ void send_all() const
    {
        const int ranks = w.tiling.ranks;
        if (threadIdx.x == 0)
            expect_mail(mailbox(), ranks * U::COLUMNS * sizeof(typename U::message));
        __syncthreads();
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < U::COLUMNS * ranks; i += U::THREADS) {
            const int at = i % U::COLUMNS;
            const column all = merge_all<EXACT>(&block_memory<U>::get()->warps[0][at], U::WARPS, U::COLUMNS);
            typename U::message words;
            pack_column(all, &words);
            send(shared_address(block_memory<U>::ranks(w.tiling, number % 2) + w.rank * U::COLUMNS + at), mailbox(),
                 i / U::COLUMNS, words);
        }
    }

    /* Takes the columns of the whole cluster and finishes them for all threads. False if they should have been EXACT. */
    template <bool EXACT> __device__ __forceinline__ bool obtain(int slab, bool kept)
    {
        const int ranks = w.tiling.ranks, i = (int)threadIdx.x;
        bool wild = false;
        wait_for_mail(mailbox(), number / 2 % 2);
        if (i < U::COLUMNS) {
            const column all = merge_all<EXACT>(block_memory<U>::ranks(w.tiling, number % 2) + i, ranks, U::COLUMNS);
            wild = !(fabsf(all.most) < WILD);
            finish<EXACT>(all, slab, kept);
        }
        number++;
        return __syncthreads_or(may_be_wild<U> && wild && !EXACT) == 0;
    }

    template <bool EXACT> __device__ __forceinline__ void finish(const column &all, int slab, bool kept) const
    {
        const int i = (int)threadIdx.x;
        float shift = EXACT ? shift_of(all.most) : all.most, scale = U::R == role::given ? 1 : 1 / all.sum;
        float *lse = w.problem.lse.data == nullptr ? nullptr : w.lse_of(slab, i / U::N, i % U::N);
        if (kept) { /* a sum of 1, but for what rounding took from the logarithm */
            shift = all.most;
            scale = EXACT ? 1 : exp2_term(-fmaf(read_scalar(lse), LOG2_E, -all.most));
        }
        block_memory<U> &memory = *block_memory<U>::get();
        memory.finished[slab % 2][0][i] = shift;
        memory.finished[slab % 2][1][i] = scale;
        memory.finished[slab % 2][2][i] = all.dot * scale;
        if (U::R == role::forward && lse != nullptr && w.rank == 0)
            write_scalar(lse, EXACT ? all.most + logf(all.sum) : (all.most + log2f(all.sum)) * (1 / LOG2_E));
    }
};

} // namespace COPES_GPU

#endif
