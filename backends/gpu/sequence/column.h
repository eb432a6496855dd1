/* Softmax over the sequence: the statistics of a column of tokens, and what a thread does with its part of a token. The
 * portable kernel and a vendor's own share these. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_COLUMN_H
#define COPES_BACKENDS_GPU_SEQUENCE_COLUMN_H

#include "backends/gpu/angles.h"
#include "backends/gpu/encoding.h"
#include "backends/gpu/queue.h"
#include "backends/gpu/softmax.h"

namespace COPES_GPU::sequence
{

/* given: backward from the softmax itself, instead of from its argument; kept: from that and its log sum exp, where a
 * kernel is made for it. */
enum class role { forward, backward, given, kept };

/* Of part of a column: its largest element, and relative to that the sum of e^(x - most) and of that times g. */
struct column {
    float most, sum, dot;
};

/* What is subtracted: a largest of -inf counts as 0, so that masked tokens add nothing and a column of nothing else
 * ends as 0 / 0. */
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

/* A finished column: y = e^(x - shift) scale is its softmax, and y (g - dot) the gradient. */
struct finished_column {
    float shift, scale, dot;

    __device__ __forceinline__ float softmax(float x) const
    {
        return softmax_term(x, shift) * scale;
    }
};

/* `kept`: the caller gave its log sum exp, which stands for the maximum, and 1 for the sum. */
template <role R> DEVICE finished_column finish(const column &c, bool kept)
{
    const float scale = R == role::given || kept ? 1 : 1 / c.sum;
    return {kept ? c.most : shift_of(c.most), scale, c.dot * scale};
}

/* A thread's pieces of one tensor's tokens, to be gone through in order: vectors of V elements, or with V = 1 elements
 * anywhere. One that is not there is read from where another is, and not written. */
template <typename T, int V, int COUNT> struct strip {
    T *piece[COUNT]; /* of the next token */
    bool there[COUNT];
    int64_t step; /* in elements */

    /* From token `first` on, `apart` from one to the next. */
    __device__ __forceinline__ strip(const copes_view &view, int64_t b, int64_t h, const int64_t (&place)[2],
                                     int64_t first, int64_t apart)
        : step(apart * view.stride[1])
    {
        T *row = static_cast<T *>(view.data) + b * view.stride[0] + h * view.stride[2] + first * view.stride[1];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            there[i] = place[i] >= 0;
            piece[i] = row + (there[i] ? place[i] * view.stride[3] : 0);
        }
    }
    __device__ __forceinline__ void read(raw<T, V> (&words)[COUNT]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            words[i] = raw<T, V>::read(piece[i]);
    }
    __device__ __forceinline__ void write(const float (&x)[2][V]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (there[i])
                raw<T, V>::write(piece[i], x[i]);
    }
    /* Asks the L2 cache for a token so many on. */
    __device__ __forceinline__ void ask(int tokens) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            prefetch(piece[i] + tokens * step);
    }
    __device__ __forceinline__ void next()
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            piece[i] += step;
    }
};

} // namespace COPES_GPU::sequence

#endif
