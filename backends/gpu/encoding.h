/* The encodings of lrpe. A thread applies one to a unit: V angles, and the two vectors that they rotate. With cosine,
 * they scale one vector, which becomes two. lrpe and softmax over the sequence share this file. */
#ifndef COPES_BACKENDS_GPU_ENCODING_H
#define COPES_BACKENDS_GPU_ENCODING_H

#include "backends/gpu/functions.h"

namespace COPES_GPU
{

enum class encoding { half, interleaved, cosine };

/* Vectors of a unit before the encoding; after it there are two. */
template <encoding E> inline constexpr int plain_vectors = E == encoding::cosine ? 1 : 2;

/* Units of a row. For rotate, two vectors that pass through are a unit, too. */
template <encoding E, typename Index> inline Index units_of(Index d, Index k, Index v)
{
    return E == encoding::cosine ? d / v : k / v + (d - 2 * k + 2 * v - 1) / (2 * v);
}

/* The place `place` features after `begin`, the first feature that turns. Features before `begin` come last. */
template <typename Index> DEVICE Index place_after(Index begin, Index d, Index place)
{
    return begin + place < d ? begin + place : begin + place - d;
}

/* The features of pair i of a unit, counted over both vectors; with cosine the feature of angle i is the first. */
template <encoding E, int V> DEVICE constexpr int pair_of(int i, int second)
{
    return E == encoding::interleaved ? 2 * i + second : i + second * V;
}

/* Rotates the unit's pairs, forward with sign 1 and back with sign -1. The order of operations lets a pair stay in its
 * registers, so that a unit that passes through needs no moves. */
template <encoding E, int V> DEVICE void rotate(float (&x)[2][V], const rotation (&rotations)[V], float sign)
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int first = pair_of<E, V>(i, 0), second = pair_of<E, V>(i, 1);
        float &a = x[first / V][first % V], &b = x[second / V][second % V];
        const float sine = sign * rotations[i].sine, across = b * sine, along = b * rotations[i].cosine;
        b = fmaf(a, sine, along);
        a = fmaf(a, rotations[i].cosine, -across);
    }
}

/* Rotates by angles of 0. An infinity still makes its partner NaN. */
template <encoding E, int V> DEVICE void stand_still(float (&x)[2][V], float sign)
{
    rotation rotations[V];
    for (rotation &each : rotations)
        each = {1, 0};
    rotate<E>(x, rotations, sign);
}

/* From plain to encoded vectors. A unit that is not `rotated` lies past the units that turn, and rotate passes it
 * through unchanged. But if it has `angles`, its token is outside the grid, and they are 0. */
template <encoding E, int V>
DEVICE void encode(float (&x)[2][V], const rotation (&rotations)[V], bool rotated, bool angles = false)
{
    if constexpr (E != encoding::cosine) {
        if (rotated)
            rotate<E>(x, rotations, 1);
        else if (angles)
            stand_still<E>(x, 1);
    } else if (rotated) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[1][i] = x[0][i] * rotations[i].sine;
            x[0][i] = x[0][i] * rotations[i].cosine;
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++)
            x[1][i] = x[0][i] * 0;
    }
}

/* The transpose: turns the gradient of the encoded vectors into the gradient of the plain ones. */
template <encoding E, int V>
DEVICE void decode(float (&g)[2][V], const rotation (&rotations)[V], bool rotated, bool angles = false)
{
    if constexpr (E == encoding::cosine) {
        if (rotated) {
#pragma unroll
            for (int i = 0; i < V; i++)
                g[0][i] = fmaf(g[0][i], rotations[i].cosine, g[1][i] * rotations[i].sine);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++)
                g[0][i] = fmaf(g[1][i], 0, g[0][i]);
        }
    } else if (rotated) {
        rotate<E>(g, rotations, -1);
    } else if (angles) {
        stand_still<E>(g, -1);
    }
}

} // namespace COPES_GPU

#endif
