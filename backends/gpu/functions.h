/* Elementary functions on the GPU: activations, their gradients, and the sine and cosine of a phase. Errors are about
 * those of float32 storage for every type, since a result must be the rounding of a number that close. Only
 * half-precision gradients of sigmoid and silu have larger ones (docs/numerics.md). */
#ifndef COPES_BACKENDS_GPU_FUNCTIONS_H
#define COPES_BACKENDS_GPU_FUNCTIONS_H

#include "backends/gpu/storage.h"

#include "common/phase.h"
#include "common/problem.h"

#include <float.h>
#include <math.h>

namespace COPES_GPU
{

inline constexpr float LOG2_E = 0x1.715476p+0f, LN_2 = 0x1.62e430p-1f;

/* x between 0 and 1; NaN gives 0. */
DEVICE float saturate(float x)
{
    return fminf(fmaxf(x, 0), 1);
}

/* e^(x - most) for x <= most: a softmax's term, relative to the term of `most`. */
DEVICE float softmax_term(float x, float most)
{
    return exp2_term((x - most) * LOG2_E);
}

/* The same for a gradient, where a small term may meet a g that is as much larger than others: with what the difference and its
 * product with log2 e lose in rounding. T: x's storage; the difference of 16 bits loses next to nothing. Where constants are few, what
 * log2 e itself has lost stays lost, which is a tenth of that. Where an infinity makes the factor anything from 0.5 to 2, e is 0, infinite
 * or NaN, and stays so. */
template <typename T> DEVICE float restored_term(float x, float most)
{
    const float below = x - most, power = below * LOG2_E, e = exp2_term(power);
    float lost = FEW_CONSTANTS ? 0 : 0.5f; /* the rest is between 0 and 1 with it, where it is needed at all */
    if (sizeof(T) != 2) {
        const float back = below - x;
        lost += (x - (below - back)) - (most + back);
    }
    if (FEW_CONSTANTS)
        return e * exp2_term(fminf(fmaxf(fmaf(lost, LOG2_E, fmaf(below, LOG2_E, -power)), -1), 1));
    return e * (saturate(fmaf(power, -LN_2, below) + lost) + 0.5f);
}

/* value + rest. */
struct exponential {
    float value, rest;
};

/* e^r for |r| <= ln 2 / 2, and the rounding error of its last addition. The polynomial is Cephes's. */
DEVICE exponential exp_of_rest(float r)
{
    float p = fmaf(0x1.a0d2cep-13f, r, 0x1.6e879cp-10f);
    p = fmaf(p, r, 0x1.111210p-7f);
    p = fmaf(p, r, 0x1.555382p-5f);
    p = fmaf(p, r, 0x1.555554p-3f);
    p = fmaf(p, r, 0x1.000000p-1f);
    const float above = fmaf(p * r, r, r), value = above + 1;
    return {value, above - (value - 1)};
}

/* x - octaves ln 2, with ln 2 in two parts. */
DEVICE float rest_of_octaves(float x, float octaves)
{
    return fmaf(octaves, -0x1.7f7d1cp-20f, fmaf(octaves, -0x1.62e4p-1f, x));
}

/* x 2^exponent for an exponent of -252 to 0. Two factors, as the smallest normal power of 2 is 2^-126. */
DEVICE float in_two_steps(float x, int exponent)
{
    const int half = exponent >> 1;
    return x * __int_as_float((half + 127) << 23) * __int_as_float((exponent - half + 127) << 23);
}

/* e^x = e 2^octaves for x <= 0, to about an ulp: for uses where exp2_term is not exact enough. octaves is 0 except in
 * the tail. There e^x or its rounding error might be denormal, with too few bits for a product, although the product
 * with a large number is normal. So e is about 2^-TAIL_OCTAVES there, and results are scaled by 2^octaves last. */
struct decay {
    exponential e;
    int octaves;
};

inline constexpr int TAIL_OCTAVES = 40;
inline constexpr float TAIL_BEGIN = -64, TAIL_END = -200; /* past TAIL_END, x e^x times the largest number is 0 */

/* `falls`: the result shrinks with e^x, and so needs the octaves in the tail. */
DEVICE decay exp_exactly(float x, bool falls)
{
    const float below = fmaxf(x, TAIL_END), octaves = rintf(below * LOG2_E);
    const exponential e = exp_of_rest(rest_of_octaves(below, octaves));
    const int left = falls && x < TAIL_BEGIN ? (int)octaves + TAIL_OCTAVES : 0, n = (int)octaves - left;
    const float exists = x < TAIL_END ? 0 : 1;
    return {{x != x ? x : in_two_steps(e.value * exists, max(n, -252)), in_two_steps(e.rest * exists, max(n, -252))},
            left};
}

/* e^x and its rounding error in fewer operations, for -80 <= x <= 0. */
DEVICE exponential exp_usually(float x)
{
    constexpr float WHOLE = 0x1.8p+23f; /* adding it rounds to a whole number, in the last bits of the sum */
    const float shifted = fmaf(x, LOG2_E, WHOLE);
    const exponential e = exp_of_rest(rest_of_octaves(x, shifted - WHOLE));
    const float scale = __uint_as_float(multiply_add(__float_as_uint(shifted), 1u << 23, 127u << 23));
    return {e.value * scale, e.rest * scale};
}

/* The logistic function and its slope, each as a value and its rounding error. */
struct logistic {
    float s, rest, slope, slope_rest;
};

/* From e = e^-|x|, which never overflows. The function is 1 / (1 + e), or e / (1 + e) for x < 0. Its slope is e / (1 +
 * e)^2. Nothing cancels. Rounding errors are carried along, which makes both accurate to an ulp. */
DEVICE logistic logistic_of(float x, const exponential &e)
{
    const float sum = 1 + e.value, lost = e.value - (sum - 1) + e.rest, inverse = reciprocal(sum);
    const float left = fmaf(-lost, inverse, fmaf(-sum, inverse, 1)); /* 1 / (1 + e) is inverse (1 + left) */
    const float top = x < 0 ? e.value : 1, top_rest = x < 0 ? e.rest : 0, s = top * inverse;
    const float share = e.value * inverse, share_rest = fmaf(e.rest, inverse, fmaf(e.value, inverse, -share));
    const float slope = share * inverse, slope_rest = fmaf(share_rest, inverse, fmaf(share, inverse, -slope));
    return {s, fmaf(s, left, fmaf(top_rest, inverse, fmaf(top, inverse, -s))), slope,
            fmaf(2 * left, slope, slope_rest)};
}

/* x s, rounded once. x is clamped in the second product: an infinity times its rest of 0 would be NaN. */
DEVICE float silu(float x, const logistic &l)
{
    return fmaf(x, l.s, fminf(x, FLT_MAX) * l.rest);
}

/* g times the slope of sigmoid, or of silu, which is x s (1 - s) + s. PRECISE: the slope has two parts, for a g that is
 * a sum: errors of the slope would add to those of g. g is clamped as x is in silu. */
template <bool PRECISE> DEVICE float sigmoidal_gradient(bool silu, float g, float x, const logistic &l)
{
    if constexpr (PRECISE) {
        const float slope = silu ? fmaf(x, l.slope, l.s) : l.slope,
                    rest = silu ? fmaf(x, l.slope_rest, l.rest) : l.slope_rest;
        return fmaf(g, slope, fminf(fmaxf(g, -FLT_MAX), FLT_MAX) * rest);
    }
    const float slope = l.slope + l.slope_rest;
    return g * (silu ? fmaf(x, slope, l.s + l.rest) : slope);
}

/* An activation other than softmax. */
DEVICE float activate(copes_act act, float x)
{
    switch (act) {
    case COPES_ACT_RELU: return x < 0 ? 0 : x; /* a NaN is not less than 0, and stays */
    case COPES_ACT_SIGMOID:
    case COPES_ACT_SILU: {
        const decay d = exp_exactly(-fabsf(x), x < 0); /* in the tail both 1 + e^x and 1 + e are 1 */
        const logistic l = logistic_of(x, d.e);
        return in_two_steps(act == COPES_ACT_SILU ? silu(x, l) : l.s + l.rest, d.octaves);
    }
    default: return x;
    }
}

/* The gradient of sum(g act(x)) in x. */
DEVICE float activation_gradient(copes_act act, float g, float x)
{
    switch (act) {
    case COPES_ACT_RELU: return x > 0 ? g : 0;
    case COPES_ACT_SIGMOID:
    case COPES_ACT_SILU: {
        const decay d = exp_exactly(-fabsf(x), act == COPES_ACT_SIGMOID || x < 0);
        const logistic l = logistic_of(x, d.e);
        return in_two_steps(sigmoidal_gradient<true>(act == COPES_ACT_SILU, g, x, l), d.octaves);
    }
    default: return g;
    }
}

/* The same of sigmoid, from its result. The slope comes first, as a product with a large or a small g may leave the range. */
DEVICE float sigmoid_gradient_of_output(float g, float o)
{
    return g * (o * (1 - o));
}

/* The same as calls, for rare paths: inlined many times, they would not fit the instruction cache. */
[[maybe_unused]] OUT_OF_LINE float activate_rarely(copes_act act, float x)
{
    return activate(act, x);
}

[[maybe_unused]] OUT_OF_LINE float activation_gradient_rarely(copes_act act, float g, float x)
{
    return activation_gradient(act, g, x);
}

/* Elements of storage type T take a shorter path below this magnitude. */
template <typename T> inline constexpr float USUAL = sizeof(T) == 4 ? 80 : 16;

/* e^-x of a half-precision element is 2^-t (1 - x lower). t is x times the upper bits of log2 e, few enough for an
 * exact product: 15 bits for bfloat16, which has 8, and 13 for float16, which has 11. The product with the lower bits
 * is so small that one term of the exponential series suffices for it; float16 takes two. */
template <typename T> struct half_exponential {
    static constexpr bool LONG = storage<T>::dtype == COPES_F16; /* its elements have 11 bits, not 8 */
    static constexpr float UPPER = LONG ? 0x1.715p+0f : 0x1.7154p+0f,
                           LOWER = LONG ? 0x1.8be626p-15f : 0x1.d94ae0p-18f * LN_2;
    float rough, lower;

    __device__ __forceinline__ explicit half_exponential(float x)
        : rough(exp2_term(x * -UPPER)), lower(LONG ? fmaf(x, LOWER * LOWER * -0.5f, LOWER) : LOWER)
    {
    }
};

/* The logistic function in one part, from e = e^-|x|. */
DEVICE float plain_logistic(float x, float e)
{
    const float top = x < 0 ? e : 1, sum = 1 + e, inverse = reciprocal(sum), s = top * inverse;
    return fmaf(fmaf(-s, sum, top), inverse, s); /* removes the errors of the reciprocal and of the product */
}

/* The sigmoidal activations for |x| < USUAL<T>. PRECISE: to little more than the last rounding, for results that are
 * terms of other results; else to within the error bound. */
template <typename T, bool PRECISE> DEVICE float activate_usual(copes_act act, float x)
{
    if constexpr (sizeof(T) == 4) {
        const exponential e = exp_usually(-fabsf(x));
        if (!PRECISE)
            return act == COPES_ACT_SILU ? x * plain_logistic(x, e.value) : plain_logistic(x, e.value);
        const logistic l = logistic_of(x, e);
        return act == COPES_ACT_SILU ? fmaf(x, l.s, x * l.rest) : l.s + l.rest;
    } else {
        const half_exponential<T> e(x);
        const float s = reciprocal(fmaf(e.rough, fmaf(x, -e.lower, 1), 1));
        return act == COPES_ACT_SILU ? x * s : s;
    }
}

struct value_and_slope {
    float value, slope;
};

/* A sigmoidal activation of a 16-bit element with |x| < USUAL<T>, and its slope there. */
template <typename T> DEVICE value_and_slope activate_with_slope(copes_act act, float x)
{
    const half_exponential<T> exponential(x);
    const float rest = x * -exponential.lower;
    const float e = fmaf(exponential.rough, rest, exponential.rough), s = reciprocal(1 + e);
    if (act == COPES_ACT_SILU)
        return {x * s, fmaf(x, e * s * s, s)};
    return {s, e * s * s};
}

template <typename T, bool PRECISE> DEVICE float activation_gradient_usual(copes_act act, float g, float x)
{
    if constexpr (sizeof(T) == 4) {
        return sigmoidal_gradient<PRECISE>(act == COPES_ACT_SILU, g, x, logistic_of(x, exp_usually(-fabsf(x))));
    } else {
        return g * activate_with_slope<T>(act, x).slope;
    }
}

/* Are all elements of COUNT vectors below USUAL? A NaN may pass or not: both paths keep it. */
template <typename T, int COUNT, int V> DEVICE bool are_usual(const raw<T, V> *vectors)
{
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        most = vectors[i].largest_magnitude(most);
    float both[2] = {0, 0};
    storage<T>::unpack(most, both);
    return both[0] < USUAL<T> && both[1] < USUAL<T>;
}

/* Elements move through the first place, and are activated there one by one. An index known only at run time would put
 * them into local memory, and a call for each element would cost registers everywhere. */
template <int COUNT, int ROOM, int V> DEVICE void activate_all_rarely(copes_act act, float (&x)[ROOM][V])
{
#pragma unroll 1
    for (int rotation = 0; rotation < COUNT * V; rotation++) {
        const float last = activate_rarely(act, x[0][0]);
#pragma unroll
        for (int i = 1; i < COUNT * V; i++)
            x[(i - 1) / V][(i - 1) % V] = x[i / V][i % V];
        x[COUNT - 1][V - 1] = last;
    }
}

template <int COUNT, int ROOM, int V>
DEVICE void activation_gradient_all_rarely(copes_act act, float (&g)[ROOM][V], float (&x)[ROOM][V])
{
#pragma unroll 1
    for (int rotation = 0; rotation < COUNT * V; rotation++) {
        const float last = activation_gradient_rarely(act, g[0][0], x[0][0]), last_x = x[0][0];
#pragma unroll
        for (int i = 1; i < COUNT * V; i++) {
            g[(i - 1) / V][(i - 1) % V] = g[i / V][i % V];
            x[(i - 1) / V][(i - 1) % V] = x[i / V][i % V];
        }
        g[COUNT - 1][V - 1] = last;
        x[COUNT - 1][V - 1] = last_x;
    }
}

/* The activation of a thread's elements x, which are COUNT vectors. `usual`: all are below USUAL. A constant `act` leaves the first
 * loop or the other two paths. */
template <typename T, bool PRECISE, int COUNT, int ROOM, int V>
DEVICE void activate_all(copes_act act, bool usual, float (&x)[ROOM][V])
{
    if (act != COPES_ACT_SILU && act != COPES_ACT_SIGMOID) {
#pragma unroll
        for (int i = 0; i < COUNT * V; i++)
            x[i / V][i % V] = activate(act, x[i / V][i % V]);
    } else if (usual) {
#pragma unroll
        for (int i = 0; i < COUNT * V; i++)
            x[i / V][i % V] = activate_usual<T, PRECISE>(act, x[i / V][i % V]);
    } else {
        activate_all_rarely<COUNT>(act, x);
    }
}

/* Turns the gradients g of the activation's results into those of its arguments x. */
template <typename T, bool PRECISE, int COUNT, int ROOM, int V>
DEVICE void activation_gradient_all(copes_act act, bool usual, float (&g)[ROOM][V], float (&x)[ROOM][V])
{
    if (act != COPES_ACT_SILU && act != COPES_ACT_SIGMOID) {
#pragma unroll
        for (int i = 0; i < COUNT * V; i++)
            g[i / V][i % V] = activation_gradient(act, g[i / V][i % V], x[i / V][i % V]);
    } else if (usual) {
#pragma unroll
        for (int i = 0; i < COUNT * V; i++)
            g[i / V][i % V] = activation_gradient_usual<T, PRECISE>(act, g[i / V][i % V], x[i / V][i % V]);
    } else {
        activation_gradient_all_rarely<COUNT>(act, g, x);
    }
}

struct rotation {
    float cosine, sine;
};

/* The rotation by the sum of two angles, to an ulp or so of 1. A sine or cosine near 0 may be off by many ulp. */
DEVICE rotation operator*(const rotation &a, const rotation &b)
{
    return {fmaf(a.cosine, b.cosine, -(a.sine * b.sine)), fmaf(a.sine, b.cosine, a.cosine * b.sine)};
}

/* A phase of 0 as rotation_of takes it, in units of 2^-32 turn. With this offset of three eighths of a turn, the top
 * two bits tell the nearest multiple of a quarter turn, in an order that saves sine and cosine an operation. */
inline constexpr uint32_t ZERO_PHASE = 3u << 29;

/* By polynomials within an eighth of a turn of the nearest multiple of a quarter turn. They are Cephes's, scaled to
 * turns, or minimax polynomials with one term less. The integer is scaled exactly, so that no rounded angle comes
 * first. Near an even quarter the angle is negated: the top bit of `place` is then the sign of one result, and its
 * complement the sign of the other. `poison` is 0, or NaN to make both NaN. EXACTLY: for float32 results, to 1.3 ulp,
 * with 2 pi in two parts; else to 2.4 ulp. */
template <bool EXACTLY> DEVICE rotation rotation_of(uint32_t place, float poison)
{
    const bool odd = (place & 1u << 30) == 0;
    const int32_t from_quarter = (int32_t)multiply_add(place, 4, 0u - 4 * ZERO_PHASE);
    const float t = fmaf((float)from_quarter, odd ? 0x1p-34f : -0x1p-34f, poison), z = t * t;
    float sine = EXACTLY ? fmaf(0x1.507834p+5f, z, -0x1.32d2ccp+6f) : -0x1.2dc84cp+6f;
    sine = fmaf(sine, z, EXACTLY ? 0x1.466bc6p+6f : 0x1.466004p+6f);
    sine = fmaf(sine, z, EXACTLY ? -0x1.4abbcep+5f : -0x1.4abbbep+5f);
    sine = EXACTLY ? fmaf(t, 0x1.921fb6p+2f, fmaf(t, -0x1.777a5cp-23f, t * (sine * z)))
                   : t * fmaf(sine, z, 0x1.921fb6p+2f);
    float cosine = EXACTLY ? fmaf(0x1.dacc30p+5f, z, -0x1.55c9e0p+6f) : -0x1.4e844ap+6f;
    cosine = fmaf(cosine, z, EXACTLY ? 0x1.03c1e8p+6f : 0x1.03b090p+6f);
    cosine = fmaf(fmaf(cosine, z, EXACTLY ? -0x1.3bd3ccp+4f : -0x1.3bd39cp+4f), z, 1);
    constexpr uint32_t SIGN = 1u << 31;
    return {__uint_as_float(__float_as_uint(odd ? sine : cosine) ^ (place & SIGN)),
            __uint_as_float(__float_as_uint(odd ? cosine : sine) ^ (~place & SIGN))};
}

} // namespace COPES_GPU

#endif
