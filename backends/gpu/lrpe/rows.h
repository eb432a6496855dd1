/* A thread's part of a row of lrpe in registers: which vectors it has, the encoding and its transpose, and the
 * activation before it. Everything is in terms of a unit: V angles, and the two vectors that they turn (cosine: the one
 * vector that they scale, and the two that come of it). */
#ifndef COPES_BACKENDS_GPU_LRPE_ROWS_H
#define COPES_BACKENDS_GPU_LRPE_ROWS_H

#include "backends/gpu/divide.h"
#include "backends/gpu/kernels.h"
#include "backends/gpu/softmax.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU
{

enum { MOST_LANES = 256 }; /* threads of a row */

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

template <encoding E, int V, typename Index>
DEVICE places_of<Index> find_places(Index d, Index k, Index unit, bool live)
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

/* A unit whose every vector is somewhere that can be read. A thread with nothing to do stands at a unit that is there,
 * so that only its writing must be held back; so does a second vector past the row's end. */
struct unit_places {
    int plain[2], encoded[2];
    bool there, second, turned;
};

template <encoding E, int V> DEVICE unit_places find_unit(int d, int k, int units, int unit)
{
    const bool there = unit < units;
    const places_of<int> at = find_places<E, V>(d, k, there ? unit : 0, true);
    const bool second = at.plain[1] >= 0;
    unit_places result = {{at.plain[0], second ? at.plain[1] : at.plain[0]}, {}, there, second, at.turned};
    result.encoded[0] = at.encoded[0];
    result.encoded[1] = E == encoding::cosine ? at.encoded[1] : result.plain[1];
    return result;
}

/* Up to two vectors as they lie in memory. */
template <typename T, int COUNT> struct raw_vectors {
    static constexpr int V = vector_length<T>;
    raw<T, V> part[COUNT > 0 ? COUNT : 1];

    /* Of the row that is `row` elements on. */
    __device__ __forceinline__ void read(const T *rows, int row, const int (&place)[2])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            part[i] = raw<T, V>::read(rows + (row + place[i]));
    }
    __device__ __forceinline__ void unpack(float (&x)[2][V]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            part[i].unpack(x[i]);
    }
};

/* Puts in a softmax what a thread has no element of. */
template <int COUNT, int V> DEVICE void blank(const unit_places &at, float (&x)[2][V], float fill)
{
    if (at.there && (COUNT == 1 || at.second))
        return;
#pragma unroll
    for (int i = 0; i < COUNT * V; i++)
        x[i / V][i % V] = at.there && i < V ? x[i / V][i % V] : fill;
}

/* Turns the unit's pairs, forward with sign 1 and back with sign -1. The order lets a pair stay in its registers, so that
 * those that pass through need no other place. */
template <encoding E, int V> DEVICE void rotate(float (&x)[2][V], const turn (&turns)[V], float sign)
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        constexpr bool half = E == encoding::half;
        float &a = half ? x[0][i] : x[2 * i / V][2 * i % V], &b = half ? x[1][i] : x[2 * i / V][2 * i % V + 1];
        const float sine = sign * turns[i].sine, across = b * sine, along = b * turns[i].cosine;
        b = fmaf(a, sine, along);
        a = fmaf(a, turns[i].cosine, -across);
    }
}

/* The same by angles of 0, with which an infinity still makes its partner NaN. */
template <encoding E, int V> DEVICE void stand_still(float (&x)[2][V], float sign)
{
    turn turns[V];
    for (turn &each : turns)
        each = {1, 0};
    rotate<E>(x, turns, sign);
}

/* From plain to encoded vectors. What is not `turned` has angles of 0: a unit past those that there are, which rotate
 * passes through as it is, or one that has `angles`, of a token outside the grid. */
template <encoding E, int V>
DEVICE void encode(float (&x)[2][V], const turn (&turns)[V], bool turned, bool angles = false)
{
    if constexpr (E != encoding::cosine) {
        if (turned)
            rotate<E>(x, turns, 1);
        else if (angles)
            stand_still<E>(x, 1);
    } else if (turned) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[1][i] = x[0][i] * turns[i].sine;
            x[0][i] = x[0][i] * turns[i].cosine;
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++)
            x[1][i] = x[0][i] * 0;
    }
}

/* The transpose: from a gradient of the encoded vectors to one of the plain ones. */
template <encoding E, int V>
DEVICE void decode(float (&g)[2][V], const turn (&turns)[V], bool turned, bool angles = false)
{
    if constexpr (E == encoding::cosine) {
        if (turned) {
#pragma unroll
            for (int i = 0; i < V; i++)
                g[0][i] = fmaf(g[0][i], turns[i].cosine, g[1][i] * turns[i].sine);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++)
                g[0][i] = fmaf(g[1][i], 0, g[0][i]);
        }
    } else if (turned) {
        rotate<E>(g, turns, -1);
    } else if (angles) {
        stand_still<E>(g, -1);
    }
}

template <typename T, activation A, int COUNT, int V>
DEVICE void activate_row(copes_act act, const raw_vectors<T, COUNT> &vectors, float (&x)[2][V], int lanes)
{
    if (A == activation::softmax)
        softmax_row<T, COUNT>(x, lanes);
    if (A == activation::silu || A == activation::elementwise)
        activate_all<T, true, COUNT>(A == activation::silu ? COPES_ACT_SILU : act, vectors.part, x);
}

/* From the gradient g of the activation's value to that of its argument x, which a softmax overwrites. */
template <typename T, activation A, int COUNT, int V>
DEVICE void activation_gradient_row(copes_act act, const raw_vectors<T, COUNT> &vectors, float (&x)[2][V],
                                    float (&g)[2][V], int lanes)
{
    if (A == activation::silu || A == activation::elementwise)
        activation_gradient_all<T, true, COUNT>(A == activation::silu ? COPES_ACT_SILU : act, vectors.part, g, x);
    if (A == activation::softmax) {
        softmax_row<T, COUNT>(x, lanes);
        softmax_gradient_row<COUNT>(x, g, lanes);
    }
}

/* What a thread reads of a row: its unit of x or of the gradient, and backward with an activation x beside it. */
template <typename T, encoding E, activation A, bool BACKWARD> struct row_words {
    static constexpr bool KEPT = BACKWARD && A != activation::none;
    raw_vectors<T, BACKWARD ? 2 : plain_vectors<E>> src;
    raw_vectors<T, KEPT ? plain_vectors<E> : 0> x;
};

/* All that happens to a row between its reading and its writing. Every lane of the row must come here; `inside`: its
 * token is in the grid, `live`: the lane has something to write, to the row that is `row` elements on. */
template <typename T, encoding E, activation A, bool BACKWARD>
DEVICE void transform_row(copes_act act, const row_words<T, E, A, BACKWARD> &words, const unit_places &at, bool inside,
                          bool live, const turn (&turns)[vector_length<T>], int lanes, T *rows, int row)
{
    constexpr int V = vector_length<T>, PLAIN = plain_vectors<E>;
    float y[2][V], x[2][V];
    words.src.unpack(y);
    if constexpr (BACKWARD) {
        decode<E>(y, turns, inside && at.turned, at.turned);
        words.x.unpack(x);
        if (A == activation::softmax) {
            blank<PLAIN>(at, x, -INFINITY);
            blank<PLAIN>(at, y, 0);
        }
        if constexpr (A != activation::none)
            activation_gradient_row<T, A, PLAIN>(act, words.x, x, y, lanes);
    } else {
        if (A == activation::softmax)
            blank<PLAIN>(at, y, -INFINITY);
        activate_row<T, A, PLAIN>(act, words.src, y, lanes);
        encode<E>(y, turns, inside && at.turned, at.turned);
    }
    if (!live)
        return;
    const int *const place = BACKWARD ? at.plain : at.encoded;
    raw<T, V>::write(rows + (row + place[0]), y[0]);
    if (at.second || (E == encoding::cosine && !BACKWARD))
        raw<T, V>::write(rows + (row + place[1]), y[1]);
}

/* The rows of a tensor: the first of a thread is found in 64 bits, and its others from there in 32. */
struct tensor_rows {
    void *data;
    int64_t b, h;
    int n;

    explicit tensor_rows(const copes_view &view)
        : data(view.data), b(view.stride[0]), h(view.stride[2]), n((int)view.stride[1])
    {
    }
};

/* Can a thread take so many steps from its first row, and to any feature there, in 32 bits? */
inline bool is_near(const copes_view &view, int64_t tokens)
{
    constexpr int64_t FEATURES = 4 * MOST_LANES * vector_length<f16>;
    const int64_t n = view.stride[1];
    return view.data == nullptr || tokens * (n < 0 ? -n : n) + FEATURES <= INT32_MAX;
}

/* A row: its head, token and batch entry. */
struct block_place {
    int head, token, entry;
};

/* In bytes, so that the compiler finds it once, and does not scale a thread's way from there in 64 bits. */
template <typename T> DEVICE T *first_row(const tensor_rows &rows, const block_place &place)
{
    const int64_t way = place.head * rows.h + (int64_t)place.token * rows.n + (int64_t)place.entry * rows.b;
    return reinterpret_cast<T *>(static_cast<char *>(rows.data) + way * (int)sizeof(T));
}

/* Blocks over (heads, tiles of tokens, groups of batch entries), the nearest in memory first. */
struct block_order {
    bool heads_first;
    divider inner, middle;

    block_order() = default;
    block_order(const copes_lrpe_problem &problem, int tiles)
    {
        const int64_t head = problem.dst.stride[2], token = problem.dst.stride[1];
        heads_first = problem.h > 1 && (head < 0 ? -head : head) < (token < 0 ? -token : token);
        inner = divider(heads_first ? problem.h : tiles);
        middle = divider(heads_first ? tiles : problem.h);
    }
};

/* With counts of tiles and groups where a place has tokens and entries. */
DEVICE block_place find_block(const block_order &order)
{
    uint32_t nearest, next;
    const uint32_t group = divide(divide(blockIdx.x, order.inner, &nearest), order.middle, &next);
    return {(int)(order.heads_first ? nearest : next), (int)(order.heads_first ? next : nearest), (int)group};
}

/* How often a part is needed for all of a whole of 1 or more, whose sum may be past 31 bits. */
inline int times(int whole, int part)
{
    return (whole - 1) / part + 1;
}

/* What lrpe_batch and lrpe_tokens need of a problem: whole vectors, sizes below 2^31, rows that a block's threads hold.
 * Finds the units of a row, and the threads for them. */
struct row_shape {
    int b, n, d, k, units, lanes;
};

template <typename T, encoding E> bool find_shape(const copes_lrpe_problem &problem, bool softmax, row_shape *shape)
{
    constexpr int V = vector_length<T>, SOFTMAX_LANES = 32;
    const int64_t d = problem.d, e = E == encoding::cosine ? 2 * d : d;
    const int64_t plain[] = {problem.b, problem.n, problem.h, d}, wide[] = {problem.b, problem.n, problem.h, e};
    const int64_t most = softmax ? SOFTMAX_LANES : MOST_LANES;
    if (d % V != 0 || problem.k % V != 0 || d > 2 * most * V || problem.b > INT32_MAX || problem.n > INT32_MAX ||
        problem.h > INT32_MAX || !in_vectors<T>(problem.src, problem.backward ? wide : plain, 4) ||
        !in_vectors<T>(problem.x, plain, 4) || !in_vectors<T>(problem.dst, problem.backward ? plain : wide, 4))
        return false;
    shape->b = (int)problem.b;
    shape->n = (int)problem.n;
    shape->d = (int)d;
    shape->k = (int)problem.k;
    shape->units = units_of<E>(shape->d, shape->k, V);
    shape->lanes = shape->units;
    if (softmax)
        for (shape->lanes = 1; shape->lanes < shape->units;)
            shape->lanes *= 2;
    return shape->units <= most;
}

} // namespace COPES_GPU

#endif
