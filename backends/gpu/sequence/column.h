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

/* Of some tokens of a column: the largest element, the sum of the terms e^(x - most), and the sum of the terms times
 * g. */
struct column {
    float most, sum, dot;
};

/* The number that is subtracted from elements. A largest element of -inf gives 0: masked tokens then add nothing, and a
 * column of masked tokens alone ends as 0 / 0. */
DEVICE float shift_of(float most)
{
    return most == -INFINITY ? 0 : most;
}

DEVICE column merge(const column &a, const column &b)
{
    const float most = fmaxf(a.most, b.most), shift = shift_of(most);
    const float left = softmax_term(a.most, shift), right = softmax_term(b.most, shift);
    return {most, fmaf(a.sum, left, b.sum * right), fmaf(a.dot, left, b.dot * right)};
}

/* A finished column: its softmax is y = e^(x - shift) scale, and its gradient is y (g - dot). */
struct finished_column {
    float shift, scale, dot;

    __device__ __forceinline__ float softmax(float x) const
    {
        return softmax_term(x, shift) * scale;
    }
};

/* `kept`: the caller gave the lse. It stands in for the largest element, and the sum is then 1. */
template <role R> DEVICE finished_column finish(const column &c, bool kept)
{
    const float scale = R == role::given || kept ? 1 : 1 / c.sum;
    return {kept ? c.most : shift_of(c.most), scale, c.dot * scale};
}

/* A thread's vectors of one tensor, token by token. A vector has V elements; with V = 1 it may lie anywhere. A
 * vector that does not exist is read from another place of the token, and is not written. */
template <typename T, int V, int COUNT> struct strip {
    T *vector[COUNT]; /* of the next token */
    bool exists[COUNT];
    int64_t stride; /* from token to token, in elements */

    /* Tokens first, first + token_stride, .. */
    __device__ __forceinline__ strip(const copes_view &view, int64_t b, int64_t h, const int64_t (&place)[2],
                                     int64_t first, int64_t token_stride)
        : stride(token_stride * view.stride[1])
    {
        T *row = static_cast<T *>(view.data) + b * view.stride[0] + h * view.stride[2] + first * view.stride[1];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            exists[i] = place[i] >= 0;
            vector[i] = row + (exists[i] ? place[i] * view.stride[3] : 0);
        }
    }
    __device__ __forceinline__ void read(raw<T, V> (&words)[COUNT]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            words[i] = raw<T, V>::read(vector[i]);
    }
    __device__ __forceinline__ void write(const float (&x)[2][V]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (exists[i])
                raw<T, V>::write(vector[i], x[i]);
    }
    /* Prefetches the token that comes so many tokens later to the L2 cache. */
    __device__ __forceinline__ void ask(int tokens) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            prefetch(vector[i] + tokens * stride);
    }
    __device__ __forceinline__ void next()
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            vector[i] += stride;
    }
};

} // namespace COPES_GPU::sequence

#endif
