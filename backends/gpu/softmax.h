/* Softmax and its gradient over a row that neighbouring threads hold in registers. Each has COUNT vectors, of the ROOM
 * that its array has. Latency binds where rows are few, so a thread reduces its elements in independent strands. */
#ifndef COPES_BACKENDS_GPU_SOFTMAX_H
#define COPES_BACKENDS_GPU_SOFTMAX_H

#include "backends/gpu/functions.h"
#include "backends/gpu/reduce.h"

namespace COPES_GPU
{

/* The terms of a softmax over elements of storage type T, relative to about the largest element: a factor that all
 * terms share cancels. A half-precision element's exponent is one multiply-add. From 2^20 on, that would round too much
 * of it away; such elements are so far apart that all but the largest count as 0 with any base. */
template <typename T> struct softmax_terms {
    float most, scale, shift;

    __device__ __forceinline__ explicit softmax_terms(float largest)
        : most(largest), scale(fabsf(largest) < 0x1p20f ? LOG2_E : 1), shift(-largest * scale)
    {
    }
    __device__ __forceinline__ float of(float x) const
    {
        return sizeof(T) == 2 ? exp2_term(fmaf(x, scale, shift)) : softmax_term(x, most);
    }
    /* log sum e^x from the sum of the terms, whose shared factor is the rounding of `shift`. */
    __device__ __forceinline__ float lse_of(float sum) const
    {
        return most + (sizeof(T) == 2 ? fmaf(fmaf(most, scale, shift), -LN_2, logf(sum)) : logf(sum));
    }
};

/* What terms relative to `most` are multiplied with to be relative to `all_most`, which is no smaller. Where the scales of 16-bit types
 * differ, that is 0; the difference of two shifts is exact where it is small. */
template <typename T> DEVICE float rescale_terms(float most, float all_most)
{
    if (most == -INFINITY) /* there is no term but 0 */
        return 0;
    if (sizeof(T) > 2)
        return softmax_term(most, all_most);
    const softmax_terms<T> own(most), all(all_most);
    return own.scale == all.scale ? exp2_term(all.shift - own.shift) : 0;
}

/* The number that is subtracted from elements. A largest element of -inf gives 0: masked elements then add nothing, and a
 * row or column of masked elements alone ends as 0 / 0. */
DEVICE float shift_of(float most)
{
    return most == -INFINITY ? 0 : most;
}

/* Reduces a thread's LENGTH elements in independent strands, enough to keep the arithmetic units busy. */
template <int LENGTH, typename Take, typename Combine>
DEVICE float reduce_strands(float none, Take take, Combine combine)
{
    constexpr int STRANDS = 4;
    float strand[STRANDS] = {none, none, none, none};
#pragma unroll
    for (int i = 0; i < LENGTH; i++)
        strand[i % STRANDS] = take(strand[i % STRANDS], i);
    return combine(combine(strand[0], strand[1]), combine(strand[2], strand[3]));
}

template <int LENGTH, typename Add> DEVICE float sum_of_strands(Add add)
{
    return reduce_strands<LENGTH>(0, add, [](float a, float b) { return a + b; });
}

template <int LENGTH, typename Element> DEVICE float max_of_strands(Element element)
{
    const auto larger = [](float a, float b) { return fmaxf(a, b); };
    return reduce_strands<LENGTH>(-INFINITY, [&](float most, int i) { return larger(most, element(i)); }, larger);
}

/* Elements that lie past the row's end must be -inf. RESTORED: for a gradient in float32. */
template <typename T, int COUNT, bool RESTORED = false, int ROOM, int V>
DEVICE void softmax_row(float (&x)[ROOM][V], int lanes)
{
    const float most = max_of_strands<COUNT * V>([&](int i) { return x[i / V][i % V]; });
    const softmax_terms<T> terms(max_of_lanes(most, lanes));
#pragma unroll
    for (int i = 0; i < COUNT * V; i++) {
        float &of = x[i / V][i % V];
        of = RESTORED ? restored_term<T>(of, terms.most) : terms.of(of);
    }
    const float sum = sum_of_strands<COUNT * V>([&](float before, int i) { return before + x[i / V][i % V]; });
    const float scale = reciprocal(sum_of_lanes(sum, lanes)); /* the sum is 1 or more */
#pragma unroll
    for (int i = 0; i < COUNT * V; i++)
        x[i / V][i % V] *= scale;
}

/* log sum e^x, -inf where there is nothing but -inf. */
template <typename T, int COUNT, int ROOM, int V> DEVICE float lse_of_row(const float (&x)[ROOM][V], int lanes)
{
    const float most = max_of_lanes(max_of_strands<COUNT * V>([&](int i) { return x[i / V][i % V]; }), lanes);
    const softmax_terms<T> terms(shift_of(most));
    const auto add = [&](float before, int i) { return before + terms.of(x[i / V][i % V]); };
    return terms.lse_of(sum_of_lanes(sum_of_strands<COUNT * V>(add), lanes));
}

template <int COUNT, int ROOM, int V>
DEVICE float dot_of_row(const float (&y)[ROOM][V], const float (&g)[ROOM][V], int lanes)
{
    const auto add = [&](float before, int i) { return fmaf(y[i / V][i % V], g[i / V][i % V], before); };
    return sum_of_lanes(sum_of_strands<COUNT * V>(add), lanes);
}

/* Turns the gradient g of a softmax y into the gradient of its argument. */
template <int COUNT, int ROOM, int V>
DEVICE void softmax_gradient_row(const float (&y)[ROOM][V], float (&g)[ROOM][V], int lanes)
{
    const float dot = dot_of_row<COUNT>(y, g, lanes);
#pragma unroll
    for (int i = 0; i < COUNT * V; i++)
        g[i / V][i % V] = y[i / V][i % V] * (g[i / V][i % V] - dot);
}

} // namespace COPES_GPU

#endif
