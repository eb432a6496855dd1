/* A thread's part of a row of lrpe in registers: its vectors, and the activation before the encoding. Units are those
 * of backends/gpu/encoding.h. */
#ifndef COPES_BACKENDS_GPU_LRPE_ROWS_H
#define COPES_BACKENDS_GPU_LRPE_ROWS_H

#include "backends/gpu/divide.h"
#include "backends/gpu/encoding.h"
#include "backends/gpu/lrpe/methods.h"
#include "backends/gpu/names.h"
#include "backends/gpu/softmax.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU::lrpe
{

enum { MOST_LANES = 256 }; /* threads of a row */

/* The places of a unit's vectors, all of which can be read. A thread without a unit has the places of the first unit,
 * and a second vector past the row's end has the place of the first vector. Only their writes are held back. */
struct unit_places {
    int plain[2], encoded[2];
    bool there, second, rotated;
};

/* A unit's two vectors lie half a row of units apart, so that the vectors of neighbouring threads are neighbours in memory. With
 * pairing half each pair has a feature in both. With interleaved each has whole pairs. */
template <encoding E, int V> DEVICE unit_places find_unit(int d, int k, int begin, int units, int unit)
{
    const bool there = unit < units;
    const int first = there ? unit * V : 0;
    const bool rotated = first < k;
    if (E == encoding::cosine)
        return {{first, first}, {first, d + first}, there, false, rotated};
    const int plain = rotated ? first : first + k, next = rotated ? first + k : first + units * V;
    const bool second = next < d;
    const int places[2] = {place_after(begin, d, plain), place_after(begin, d, second ? next : plain)};
    return {{places[0], places[1]}, {places[0], places[1]}, there, second, rotated};
}

/* Angle i of a unit, of k angles: V neighbours, or with pairing interleaved V / 2 in each of its vectors. From k on for a unit that
 * passes through. */
template <encoding E, int V> DEVICE uint32_t angle_of(uint32_t k, uint32_t unit, uint32_t i)
{
    if (E != encoding::interleaved || unit * V >= k)
        return unit * V + i;
    return unit * (V / 2) + i % (V / 2) + (i < V / 2 ? 0 : k / 2);
}

/* Up to two vectors as they lie in memory. */
template <typename T, int COUNT> struct raw_vectors {
    static constexpr int V = vector_length<T>;
    raw<T, V> part[COUNT > 0 ? COUNT : 1];

    /* Reads from the row that lies `row` elements after `rows`. */
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

/* Fills the elements that a thread does not have, before a softmax. */
template <int COUNT, int V> DEVICE void blank(const unit_places &at, float (&x)[2][V], float fill)
{
    if (at.there && (COUNT == 1 || at.second))
        return;
#pragma unroll
    for (int i = 0; i < COUNT * V; i++)
        x[i / V][i % V] = at.there && i < V ? x[i / V][i % V] : fill;
}

/* Calls `apply` with an element's activation: silu or, where it is told apart at run time, one of three. By constants, as the
 * compiler would leave an exponential in relu's part that nothing comes to. */
template <activation A, typename Apply> DEVICE void for_activation(copes_act act, Apply apply)
{
    if constexpr (A == activation::silu)
        apply(COPES_ACT_SILU);
    else if (act == COPES_ACT_RELU)
        apply(COPES_ACT_RELU);
    else
        apply(act == COPES_ACT_SILU ? COPES_ACT_SILU : COPES_ACT_SIGMOID);
}

template <typename T, activation A, int COUNT, int V>
DEVICE void activate_row(copes_act act, const raw_vectors<T, COUNT> &vectors, float (&x)[2][V], int lanes)
{
    if (A == activation::softmax)
        softmax_row<T, COUNT>(x, lanes);
    if constexpr (A == activation::silu || A == activation::elementwise)
        for_activation<A>(act, [&](copes_act known) {
            activate_all<T, true, COUNT>(known, are_usual<T, COUNT>(vectors.part), x);
        });
}

/* What a thread reads of a row: its unit of x; backward, its unit of the gradient and, with an activation or for the
 * gradient of THETA, of x. */
template <typename T, encoding E, activation A, bool BACKWARD, bool THETA = false> struct row_words {
    static constexpr bool KEPT = BACKWARD && (A != activation::none || THETA);
    raw_vectors<T, BACKWARD ? 2 : plain_vectors<E>> src;
    raw_vectors<T, KEPT ? plain_vectors<E> : 0> x;
};

/* The derivative by angle i of a unit, from the activation's values x and the gradient g: of their encoding with cosine, of
 * themselves with rotate. */
template <encoding E, int V>
DEVICE float derive_angle(int i, const float (&x)[2][V], const float (&g)[2][V], const rotation &turned)
{
    if constexpr (E == encoding::cosine)
        return x[0][i] * (g[1][i] * turned.cosine - g[0][i] * turned.sine);
    const int a = pair_of<E, V>(i, 0), b = pair_of<E, V>(i, 1);
    return g[b / V][b % V] * x[a / V][a % V] - g[a / V][a % V] * x[b / V][b % V];
}

template <encoding E, int V>
DEVICE void derive_angles(const float (&x)[2][V], const float (&g)[2][V], const rotation (&rotations)[V],
                          float (&derivative)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++)
        derivative[i] = derive_angle<E>(i, x, g, rotations[i]);
}

/* The derivatives by the angles, and the activation's gradient, together: one exponential gives the value and the slope of a 16-bit
 * element. The activation is sigmoidal, all elements are below USUAL, and `turned` is the g of derive_angles. */
template <typename T, encoding E, typename Words, int V>
DEVICE void derive_together(copes_act act, const Words &words, const float (&turned)[2][V],
                            const rotation (&rotations)[V], float (&g)[2][V], float (&derivative)[V])
{
    constexpr int PLAIN = plain_vectors<E>;
    float x[2][V];
    words.x.unpack(x);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float slope[PLAIN];
#pragma unroll
        for (int j = 0; j < PLAIN; j++) {
            const int at = pair_of<E, V>(i, j);
            const value_and_slope both = activate_with_slope<T>(act, x[at / V][at % V]);
            x[at / V][at % V] = both.value;
            slope[j] = both.slope;
        }
        derivative[i] = derive_angle<E>(i, x, turned, rotations[i]);
#pragma unroll
        for (int j = 0; j < PLAIN; j++)
            g[pair_of<E, V>(i, j) / V][pair_of<E, V>(i, j) % V] *= slope[j];
    }
}

/* Computes the gradient g of a row's features from its words and, for THETA, the derivatives by its angles. Every lane of
 * the row must call this. `inside`: the token is in the grid. */
template <typename T, encoding E, activation A, bool THETA, int V>
DEVICE void decode_row(copes_act act, const row_words<T, E, A, true, THETA> &words, const unit_places &at, bool inside,
                       const rotation (&rotations)[V], int lanes, float (&g)[2][V], float (&derivative)[V])
{
    constexpr int PLAIN = plain_vectors<E>;
    constexpr bool softmax = A == activation::softmax, elementwise = A != activation::none && !softmax;
    float x[2][V], encoded[2][V];
    words.src.unpack(g);
    words.src.unpack(encoded);
    decode<E>(g, rotations, inside && at.rotated, at.rotated);
    words.x.unpack(x);
    if (softmax) {
        blank<PLAIN>(at, x, -INFINITY);
        blank<PLAIN>(at, g, 0);
        softmax_row<T, PLAIN, THETA || sizeof(T) == 4>(x, lanes);
    }
    constexpr bool together = THETA && elementwise && sizeof(T) == 2;
    const float(&turned)[2][V] = E == encoding::cosine ? encoded : g;
    if constexpr (together) {
        if (act != COPES_ACT_RELU && are_usual<T, PLAIN>(words.x.part))
            return derive_together<T, E>(act, words, turned, rotations, g, derivative);
    }
    /* What is left where `together` is relu, which does not ask, or has elements that are not usual. */
    const auto usual = [&] { return !together && are_usual<T, PLAIN>(words.x.part); };
    if constexpr (THETA) {
        float value[2][V];
        words.x.unpack(value);
        if constexpr (elementwise)
            for_activation<A>(act, [&](copes_act known) { activate_all<T, true, PLAIN>(known, usual(), value); });
        derive_angles<E>(softmax ? x : value, turned, rotations, derivative);
    }
    if constexpr (softmax)
        softmax_gradient_row<PLAIN>(x, g, lanes);
    if constexpr (elementwise)
        for_activation<A>(act, [&](copes_act known) { activation_gradient_all<T, true, PLAIN>(known, usual(), g, x); });
}

/* Writes a unit's vectors, `row` elements after `rows`. */
template <encoding E, bool BACKWARD, typename T, int V>
DEVICE void write_row(const unit_places &at, const float (&y)[2][V], T *rows, int row)
{
    const int *const place = BACKWARD ? at.plain : at.encoded;
    raw<T, V>::write(rows + (row + place[0]), y[0]);
    if (at.second || (E == encoding::cosine && !BACKWARD))
        raw<T, V>::write(rows + (row + place[1]), y[1]);
}

/* Computes a row from its words and writes it, `row` elements after `rows`. Every lane of the row must call this.
 * `live`: the lane has something to write. */
template <typename T, encoding E, activation A, bool BACKWARD>
DEVICE void transform_row(copes_act act, const row_words<T, E, A, BACKWARD> &words, const unit_places &at, bool inside,
                          bool live, const rotation (&rotations)[vector_length<T>], int lanes, T *rows, int row)
{
    constexpr int V = vector_length<T>, PLAIN = plain_vectors<E>;
    float y[2][V];
    if constexpr (BACKWARD) {
        float none[V];
        decode_row<T, E, A, false>(act, words, at, inside, rotations, lanes, y, none);
    } else {
        words.src.unpack(y);
        if (A == activation::softmax)
            blank<PLAIN>(at, y, -INFINITY);
        activate_row<T, A, PLAIN>(act, words.src, y, lanes);
        encode<E>(y, rotations, inside && at.rotated, at.rotated);
    }
    if (live)
        write_row<E, BACKWARD>(at, y, rows, row);
}

/* The rows of a tensor. A thread finds its first row in 64 bits, and its others from there in 32. */
struct tensor_rows {
    void *data;
    int64_t b, h;
    int n;

    tensor_rows() = default;
    explicit tensor_rows(const copes_view &view)
        : data(view.data), b(view.stride[0]), h(view.stride[2]), n((int)view.stride[1])
    {
    }
};

/* Do 32 bits hold a thread's way from its first row over `tokens` tokens, and to any feature there? */
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

/* In bytes, so that the compiler finds the offset once, and does not scale a thread's further offsets in 64 bits. */
template <typename T> DEVICE T *first_row(const tensor_rows &rows, const block_place &place)
{
    const int64_t offset = place.head * rows.h + (int64_t)place.token * rows.n + (int64_t)place.entry * rows.b;
    return reinterpret_cast<T *>(static_cast<char *>(rows.data) + offset * (int)sizeof(T));
}

/* Is dimension `first` of the result's rows nearer in memory than dimension `second`? */
inline bool is_nearer(const copes_lrpe_problem &problem, int first, int second)
{
    const int64_t a = problem.dst.stride[first], b = problem.dst.stride[second];
    return (a < 0 ? -a : a) < (b < 0 ? -b : b);
}

/* The order of blocks: first heads or tiles of tokens, whichever are nearer in memory. Groups of entries come last or,
 * where entries lie side by side, first: blocks that run at a time then have whole tokens. */
struct block_order {
    bool heads_first, groups_first;
    divider inner, middle, groups;

    block_order() = default;
    block_order(const copes_lrpe_problem &problem, int tiles, int of_entries)
    {
        heads_first = problem.h > 1 && is_nearer(problem, 2, 1);
        groups_first = of_entries > 1 && is_nearer(problem, 0, 1);
        inner = divider(heads_first ? problem.h : tiles);
        middle = divider(heads_first ? tiles : problem.h);
        groups = divider(of_entries);
    }
};

/* The place of block `index`, in which `token` is the number of a tile, and `entry` the number of a group. */
DEVICE block_place find_block(const block_order &order, uint32_t index)
{
    uint32_t group = 0, nearest, next;
    if (order.groups_first)
        index = divide(index, order.groups, &group);
    const uint32_t last = divide(divide(index, order.inner, &nearest), order.middle, &next);
    return {(int)(order.heads_first ? nearest : next), (int)(order.heads_first ? next : nearest),
            (int)(order.groups_first ? group : last)};
}

/* whole / part, rounded up, for a whole of 1 or more. whole + part may be past 31 bits. */
inline int times(int whole, int part)
{
    return (whole - 1) / part + 1;
}

/* The sizes of a problem in 32 bits, the units of a row, and the threads for them. */
struct row_shape {
    int b, n, d, k, units, lanes;
};

template <typename T>
inline constexpr const char *no_vectors =
    is_narrow<T> ? "the features, or the angles, are not whole vectors of 8 bytes"
                 : "the features, or the angles, are not whole vectors of 16 bytes";
template <typename T>
inline constexpr const char *no_begin = is_narrow<T> ? "rotary_begin is not a whole number of vectors of 8 bytes"
                                                     : "rotary_begin is not a whole number of vectors of 16 bytes";
template <typename T>
inline constexpr const char *no_rows = is_narrow<T> ? "a tensor's rows are not contiguous, or not aligned to 8 bytes"
                                                    : "a tensor's rows are not contiguous, or not aligned to 16 bytes";

/* Why a problem lacks whole vectors, sizes below 2^31, or rows that a block's threads hold; nullptr: it has all. */
template <typename T, encoding E>
const char *refuse_shape(const copes_lrpe_problem &problem, bool softmax, row_shape *shape)
{
    constexpr int V = vector_length<T>, SOFTMAX_LANES = 32;
    const int64_t d = problem.d, e = E == encoding::cosine ? 2 * d : d;
    const int64_t plain[] = {problem.b, problem.n, problem.h, d}, wide[] = {problem.b, problem.n, problem.h, e};
    const int64_t most = softmax ? SOFTMAX_LANES : MOST_LANES;
    if (d % V != 0 || problem.k % V != 0)
        return no_vectors<T>;
    if (d > 2 * most * V)
        return "a row has more vectors than its threads";
    if (problem.b > INT32_MAX || problem.n > INT32_MAX || problem.h > INT32_MAX)
        return "a length is past 2^31 - 1";
    if (!in_vectors<T>(problem.src, problem.backward ? wide : plain, 4) || !in_vectors<T>(problem.x, plain, 4) ||
        !in_vectors<T>(problem.dst, problem.backward ? plain : wide, 4))
        return no_rows<T>;
    shape->b = (int)problem.b;
    shape->n = (int)problem.n;
    shape->d = (int)d;
    shape->k = (int)problem.k;
    shape->units = units_of<E>(shape->d, shape->k, V);
    shape->lanes = shape->units;
    if (softmax)
        for (shape->lanes = 1; shape->lanes < shape->units;)
            shape->lanes *= 2;
    return shape->units <= most ? nullptr : "a row has more vectors than its threads";
}

/* The names of variants: METHOD<type, encoding, activation, direction>. */
inline constexpr variant_word encoding_names[] = {"half", "interleaved", "cosine"};
inline constexpr variant_word activation_names[] = {"none", "silu", "elementwise", "softmax"};

template <variant_word METHOD, typename T, encoding E, activation A, bool BACKWARD>
inline constexpr const char *row_variant = variant_name<METHOD, type_name<T>, encoding_names[(int)E],
                                                        activation_names[(int)A], direction_names[BACKWARD]>::text;

} // namespace COPES_GPU::lrpe

#endif
