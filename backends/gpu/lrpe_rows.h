/* A thread's part of a row of lrpe in registers: which vectors it has, the encoding and its transpose, and the activation
 * before it. Everything is in terms of a unit: V angles, and the two vectors that they turn (cosine: the one vector that they
 * scale, and the two that come of it). */
#ifndef COPES_BACKENDS_GPU_LRPE_ROWS_H
#define COPES_BACKENDS_GPU_LRPE_ROWS_H

#include "backends/gpu/functions.h"
#include "backends/gpu/reduce.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU {

enum class encoding { half, interleaved, cosine };
enum class activation { none, elementwise, softmax };

/* Vectors of a unit before the encoding; after it there are two. */
template <encoding E> inline constexpr int plain_vectors = E == encoding::cosine ? 1 : 2;

/* Units of a row: those that are turned, and for rotate those that pass through, two vectors each. */
template <encoding E, typename Index> inline Index units_of(Index d, Index k, Index v)
{
    return E == encoding::cosine ? d / v : k / v + (d - 2 * k + 2 * v - 1) / (2 * v);
}

/* Where a unit's vectors lie in a row; below 0: there is none. */
template <typename Index> struct places_of {
    Index plain[2], encoded[2];
    bool turned;
};
typedef places_of<int> unit_places;

template <encoding E, int V, typename Index> DEVICE places_of<Index> find_unit(Index d, Index k, Index unit, bool live)
{
    places_of<Index> at = {{-1, -1}, {-1, -1}, live && unit * V < k};
    if (!live)
        return at;
    if (E == encoding::cosine) {
        at.plain[0] = at.encoded[0] = unit * V;
        at.encoded[1] = d + unit * V;
        return at;
    }
    const bool apart = E == encoding::half && at.turned;
    const Index first = apart ? unit * V : 2 * unit * V, second = apart ? first + k : first + V;
    at.plain[0] = at.encoded[0] = first;
    at.plain[1] = at.encoded[1] = second < d ? second : -1;
    return at;
}

/* Up to two vectors as they lie in memory. */
template <typename T, int COUNT> struct raw_vectors {
    static constexpr int V = vector_length<T>;
    raw<T, V> part[COUNT];

    __device__ __forceinline__ void read(const T *row, const int (&place)[2])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (place[i] >= 0)
                part[i] = raw<T, V>::read(row + place[i]);
    }
    __device__ __forceinline__ void unpack(const int (&place)[2], float fill, float (&x)[2][V]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (place[i] >= 0)
                part[i].unpack(x[i]);
            else
                for (int j = 0; j < V; j++)
                    x[i][j] = fill;
        }
    }
};

template <typename T, int COUNT>
DEVICE void write_vectors(T *row, const int (&place)[2], const float (&x)[2][vector_length<T>])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (place[i] >= 0)
            raw<T, vector_length<T>>::write(row + place[i], x[i]);
}

/* Turns the unit's pairs, forward with sign 1 and back with sign -1. */
template <encoding E, int V> DEVICE void rotate(float (&x)[2][V], const turn (&turns)[V], float sign)
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        constexpr bool half = E == encoding::half;
        float &a = half ? x[0][i] : x[2 * i / V][2 * i % V], &b = half ? x[1][i] : x[2 * i / V][2 * i % V + 1];
        const float sine = sign * turns[i].sine, old = a;
        a = a * turns[i].cosine - b * sine;
        b = old * sine + b * turns[i].cosine;
    }
}

/* From plain to encoded vectors. A unit that is not turned passes through as it is. */
template <encoding E, int V> DEVICE void encode(float (&x)[2][V], const turn (&turns)[V], bool turned)
{
    if constexpr (E == encoding::cosine) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[1][i] = x[0][i] * turns[i].sine;
            x[0][i] = x[0][i] * turns[i].cosine;
        }
    } else if (turned) {
        rotate<E>(x, turns, 1);
    }
}

/* The transpose: from a gradient of the encoded vectors to one of the plain ones. */
template <encoding E, int V> DEVICE void decode(float (&g)[2][V], const turn (&turns)[V], bool turned)
{
    if constexpr (E == encoding::cosine) {
#pragma unroll
        for (int i = 0; i < V; i++)
            g[0][i] = g[0][i] * turns[i].cosine + g[1][i] * turns[i].sine;
    } else if (turned) {
        rotate<E>(g, turns, -1);
    }
}

/* A softmax over a row that `lanes` threads hold; what they lack is -inf. */
template <int COUNT, int V> DEVICE void softmax_row(float (&x)[2][V], int lanes)
{
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT * V; i++)
        most = fmaxf(most, x[i / V][i % V]);
    most = max_of_lanes(most, lanes);
#pragma unroll
    for (int i = 0; i < COUNT * V; i++) {
        x[i / V][i % V] = softmax_term(x[i / V][i % V], most);
        sum += x[i / V][i % V];
    }
    const float scale = 1 / sum_of_lanes(sum, lanes);
#pragma unroll
    for (int i = 0; i < COUNT * V; i++)
        x[i / V][i % V] *= scale;
}

template <activation A, int COUNT, int V> DEVICE void activate_row(copes_act act, float (&x)[2][V], int lanes)
{
    if (A == activation::softmax)
        softmax_row<COUNT>(x, lanes);
    if (A == activation::elementwise) {
#pragma unroll
        for (int i = 0; i < COUNT * V; i++)
            x[i / V][i % V] = activate(act, x[i / V][i % V]);
    }
}

/* From the gradient g of the activation's value to that of its argument x, which a softmax overwrites. */
template <activation A, int COUNT, int V>
DEVICE void activation_gradient_row(copes_act act, float (&x)[2][V], float (&g)[2][V], int lanes)
{
    if (A == activation::elementwise) {
#pragma unroll
        for (int i = 0; i < COUNT * V; i++)
            g[i / V][i % V] = activation_gradient(act, g[i / V][i % V], x[i / V][i % V]);
    }
    if (A != activation::softmax)
        return;
    softmax_row<COUNT>(x, lanes);
    float dot = 0;
#pragma unroll
    for (int i = 0; i < COUNT * V; i++)
        dot += x[i / V][i % V] * g[i / V][i % V];
    dot = sum_of_lanes(dot, lanes);
#pragma unroll
    for (int i = 0; i < COUNT * V; i++)
        g[i / V][i % V] = x[i / V][i % V] * (g[i / V][i % V] - dot);
}

} // namespace COPES_GPU

#endif
