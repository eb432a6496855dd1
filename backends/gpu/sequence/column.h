/* Softmax over the sequence: the sums of a column of tokens, and a thread's vectors in its tokens. The portable
 * kernel and a vendor's own kernels share these. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_COLUMN_H
#define COPES_BACKENDS_GPU_SEQUENCE_COLUMN_H

#include "backends/gpu/angles.h"
#include "backends/gpu/encoding.h"
#include "backends/gpu/queue.h"
#include "backends/gpu/softmax.h"

namespace COPES_GPU::sequence
{

/*   role       reads, besides the gradient           the sums' reference
 *   forward    the argument of softmax               found in the column
 *   backward   the argument, and its lse if given    the lse, or found in the column
 *   given      the softmax itself                    none
 *   kept       the argument and its lse              the lse; a vendor's own kernels alone have this role
 * lse is the logarithm of the column's sum of exponentials. Forward has no gradient. */
enum class role { forward, backward, given, kept };

/* A column's term. A gradient's is restored where storage has the bits to show it. */
template <typename T, role R> DEVICE float column_term(float x, float shift)
{
    return R == role::forward || sizeof(T) == 2 ? softmax_term(x, shift) : restored_term<T>(x, shift);
}

/* Of some tokens of a column: the largest element, the sum of the terms e^(x - most), and the sum of the terms times
 * g. */
struct column {
    float most, sum, dot;
};

DEVICE column merge(const column &a, const column &b)
{
    const float most = fmaxf(a.most, b.most), shift = shift_of(most);
    const float left = restored_term<f32>(a.most, shift), right = restored_term<f32>(b.most, shift);
    return {most, fmaf(a.sum, left, b.sum * right), fmaf(a.dot, left, b.dot * right)};
}

/* A finished column: its softmax is y = e^(x - shift) scale, and its gradient is y (g - dot). */
struct finished_column {
    float shift, scale, dot;

    template <typename T, role R> __device__ __forceinline__ float softmax(float x) const
    {
        return column_term<T, R>(x, shift) * scale;
    }
};

/* `kept`: the caller gave the lse. It stands in for the largest element, and the sum is then 1. */
template <role R> DEVICE finished_column finish(const column &c, bool kept)
{
    const float scale = R == role::given || kept ? 1 : 1 / c.sum;
    return {kept ? c.most : shift_of(c.most), scale, c.dot * scale};
}

/* The places of a unit's vectors in a row; below 0: there is no such vector. */
template <typename Index> struct places_of {
    Index plain[2], encoded[2];
    bool rotated;
};

/* With pairing interleaved, and of features that pass through, a unit's two vectors lie side by side, so that two halves of 16 bytes
 * are read as one (is_joined). lrpe's units have theirs apart. */
template <encoding E, int V, typename Index>
DEVICE places_of<Index> find_places(Index d, Index k, Index begin, Index unit, bool live)
{
    places_of<Index> at = {{-1, -1}, {-1, -1}, live && unit * V < k};
    if (!live)
        return at;
    if (E == encoding::cosine) {
        at.plain[0] = at.encoded[0] = unit * V;
        at.encoded[1] = d + unit * V;
        return at;
    }
    const bool apart = E == encoding::half && at.rotated;
    const Index first = apart ? unit * V : 2 * unit * V, second = apart ? first + k : first + V;
    at.plain[0] = at.encoded[0] = place_after(begin, d, first);
    at.plain[1] = at.encoded[1] = second < d ? place_after(begin, d, second) : -1;
    return at;
}

/* Do a unit's two vectors lie side by side, as one of 16 bytes? */
template <typename T, encoding E, int V>
inline constexpr bool is_joined = E == encoding::interleaved && V > 1 && 2 * V == vector_length<T>;

/* A thread's vectors of one tensor, token by token: COUNT of V elements each, or JOINED to one; with V = 1 a vector may lie
 * anywhere. A vector that does not exist is read from another place of the token, and is not written. */
template <typename T, int V, int COUNT, bool JOINED> struct strip {
    static constexpr int VECTORS = JOINED ? 1 : COUNT, LENGTH = V * COUNT / VECTORS;
    typedef raw<T, LENGTH> vector_words;
    element_pointer<T> vector[VECTORS]; /* of the next token */
    bool exists[VECTORS];
    int64_t stride; /* from token to token, in elements */

    /* Tokens first, first + token_stride, .. */
    __device__ __forceinline__ strip(const copes_view &view, copes_dtype dtype, int64_t b, int64_t h,
                                     const int64_t (&place)[2], int64_t first, int64_t token_stride)
        : stride(token_stride * view.stride[1])
    {
        const element_pointer<T> row =
            elements_of<T>(view, dtype) + (b * view.stride[0] + h * view.stride[2] + first * view.stride[1]);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            exists[i] = place[i] >= 0;
            vector[i] = row + (exists[i] ? place[i] * view.stride[3] : 0);
        }
    }
    /* Starts to read the next token's vectors ahead, as parts `part` and on of row `row`. */
    template <typename Ahead> __device__ __forceinline__ void start(Ahead *ahead, int row, int part) const
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            ahead->template start<typename vector_words::access>(row, part + i, vector[i], false);
    }
    template <typename Ahead> DEVICE void take(const Ahead &ahead, int row, int part, float (&x)[2][V])
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            vector_words{ahead.template take<typename vector_words::access>(row, part + i)}.unpack(elements(x, i));
    }
    __device__ __forceinline__ void read(vector_words (&words)[VECTORS]) const
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            words[i] = vector_words::read(vector[i]);
    }
    DEVICE void unpack(const vector_words (&words)[VECTORS], float (&x)[2][V])
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            words[i].unpack(elements(x, i));
    }
    __device__ __forceinline__ void write(float (&x)[2][V]) const
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            if (exists[i])
                vector_words::write(vector[i], elements(x, i));
    }
    /* A vector's elements among a unit's. */
    DEVICE float (&elements(float (&x)[2][V], int vector))[LENGTH]
    {
        return reinterpret_cast<float(&)[LENGTH]>(x[vector * LENGTH / V]);
    }
    /* Prefetches the token that comes so many tokens later to the L2 cache. */
    __device__ __forceinline__ void ask(int tokens) const
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            prefetch(vector[i] + tokens * stride);
    }
    __device__ __forceinline__ void next()
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            vector[i] = vector[i] + stride;
    }
};

} // namespace COPES_GPU::sequence

#endif
