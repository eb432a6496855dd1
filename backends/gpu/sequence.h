/* Softmax over the sequence: the statistics of a column of tokens, and what a thread does with its part of a token. The
 * portable kernel and a vendor's own share these. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_H
#define COPES_BACKENDS_GPU_SEQUENCE_H

#include "backends/gpu/angles.h"
#include "backends/gpu/lrpe_rows.h"
#include "backends/gpu/queue.h"

namespace COPES_GPU
{

/* given: backward from the softmax itself, instead of from its argument. */
enum class role { forward, backward, given };

/* One of the kernels for a problem, or, in `fast`, false where a vendor's own does not take it. */
template <typename T> copes_status run_sequence_any(const queue &to, const copes_lrpe_problem &problem, bool given);
template <typename T>
bool run_sequence_fast(const queue &to, const copes_lrpe_problem &problem, bool given, copes_status *status);

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
    return {most, a.sum * left + b.sum * right, a.dot * left + b.dot * right};
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

/* A thread's pieces of one tensor's tokens: vectors of V elements, or with V = 1 elements anywhere. */
template <typename T, int V, int COUNT> struct strip {
    T *piece[COUNT]; /* of token 0; null: there is none */
    int64_t step;    /* a token's, in elements */

    __device__ __forceinline__ strip(const copes_view &view, int64_t b, int64_t h, const int64_t (&place)[2])
        : step(view.stride[1])
    {
        T *row = static_cast<T *>(view.data) + b * view.stride[0] + h * view.stride[2];
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            piece[i] = place[i] < 0 ? nullptr : row + place[i] * view.stride[3];
    }
    __device__ __forceinline__ void read(int64_t token, raw<T, V> (&words)[COUNT]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (piece[i] != nullptr)
                words[i] = raw<T, V>::read(piece[i] + token * step);
    }
    __device__ __forceinline__ void unpack(const raw<T, V> (&words)[COUNT], float (&x)[2][V]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (piece[i] != nullptr)
                words[i].unpack(x[i]);
            else
                for (int j = 0; j < V; j++)
                    x[i][j] = 0;
        }
    }
    __device__ __forceinline__ void write(int64_t token, const float (&x)[2][V]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (piece[i] != nullptr)
                raw<T, V>::write(piece[i] + token * step, x[i]);
    }
};

} // namespace COPES_GPU

#endif
