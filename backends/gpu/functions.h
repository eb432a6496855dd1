/* Elementary functions on the GPU: the activations and their gradients, and sine and cosine of a phase. Bounds are
 * those of float32 storage, for every type, as a result is to be the rounding of a number that close. */
#ifndef COPES_BACKENDS_GPU_FUNCTIONS_H
#define COPES_BACKENDS_GPU_FUNCTIONS_H

#include "vendor.h"

#include "common/phase.h"
#include "common/problem.h"

#include <float.h>
#include <math.h>

namespace COPES_GPU
{

inline constexpr float LOG2_E = 0x1.715476p+0f, LN_2 = 0x1.62e430p-1f;

/* e^(x - most) for x <= most: a softmax's term beside a largest one of 1. */
DEVICE float softmax_term(float x, float most)
{
    return exp2_term((x - most) * LOG2_E);
}

/* The terms of a softmax over elements of storage type T, relative to about the largest: any factor that all share
 * cancels. A half-precision element's exponent is one multiply-add; from 2^20 on, where that would round too much of it
 * away, such elements are so far apart that all but the largest count as 0 by any base. */
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
};

/* value + rest. */
struct exponential {
    float value, rest;
};

/* e^x for x <= 0 to about an ulp, denormal results included, and what its last rounding lost: by a polynomial
 * (Cephes's) where exp2's unit is not enough. */
DEVICE exponential exp_exactly(float x)
{
    const float octaves = rintf(fmaxf(x, -104.0f) * LOG2_E);
    const float r = fmaf(octaves, -0x1.7f7d1cp-20f, fmaf(octaves, -0x1.62e4p-1f, fmaxf(x, -104.0f)));
    float p = fmaf(0x1.a0d2cep-13f, r, 0x1.6e879cp-10f);
    p = fmaf(p, r, 0x1.111210p-7f);
    p = fmaf(p, r, 0x1.555382p-5f);
    p = fmaf(p, r, 0x1.555554p-3f);
    p = fmaf(p, r, 0x1.000000p-1f);
    const float above = fmaf(p * r, r, r), sum = above + 1;
    const int n = (int)octaves, half = n >> 1; /* in two steps, neither of which leaves the normal range */
    const float scale = __int_as_float((half + 127) << 23), again = __int_as_float((n - half + 127) << 23);
    return {x != x ? x : sum * scale * again, (above - (sum - 1)) * scale * again};
}

/* The logistic function, in two parts of which the second is what roundings took from the first, and its slope. */
struct logistic {
    float s, rest, slope;
};

/* From e = e^-|x|, which never overflows and cancels nothing: 1 or e, by the sign of x, over 1 + e, and e over the
 * square of that, both to an ulp: what roundings on the way lose is carried along. */
DEVICE logistic logistic_of(float x)
{
    const exponential e = exp_exactly(-fabsf(x));
    const float sum = 1 + e.value, lost = e.value - (sum - 1) + e.rest, inverse = reciprocal(sum);
    const float left = fmaf(-lost, inverse, fmaf(-sum, inverse, 1)); /* 1 / (1 + e) is inverse (1 + left) */
    const float top = x < 0 ? e.value : 1, top_rest = x < 0 ? e.rest : 0, s = top * inverse;
    const float share = e.value * inverse, share_rest = fmaf(e.rest, inverse, fmaf(e.value, inverse, -share));
    const float slope = share * inverse, slope_rest = fmaf(share_rest, inverse, fmaf(share, inverse, -slope));
    return {s, fmaf(s, left, fmaf(top_rest, inverse, fmaf(top, inverse, -s))),
            slope + fmaf(2 * left, slope, slope_rest)};
}

/* x s, rounded once. An infinite x has no rest, and must not meet its 0. */
DEVICE float silu(float x, const logistic &l)
{
    return fmaf(x, l.s, fminf(x, FLT_MAX) * l.rest);
}

/* For |x| < USUAL and half-precision results, in half the operations: from e = 2^t with t = -x log2 e, where the part
 * of t that its rounding left out comes in as a factor. log2 e's own rounding is small enough there. */
inline constexpr float USUAL = 16;

DEVICE float usual_logistic(float x)
{
    const float t = x * -LOG2_E, lost = fmaf(x, -LOG2_E, -t);
    return reciprocal(fmaf(exp2_term(t), fmaf(lost, LN_2, 1), 1));
}

DEVICE logistic usual_logistic_slope(float x)
{
    const float t = x * -LOG2_E, lost = fmaf(x, -LOG2_E, -t), rough = exp2_term(t), e = fmaf(rough, lost * LN_2, rough);
    const float s = reciprocal(1 + e);
    return {s, 0, e * s * s};
}

/* An activation that is no softmax. */
DEVICE float activate(copes_act act, float x)
{
    switch (act) {
    case COPES_RELU: return x < 0 ? 0 : x; /* a NaN is not less than 0, and stays */
    case COPES_SIGMOID: {
        const logistic l = logistic_of(x);
        return l.s + l.rest;
    }
    case COPES_SILU: return silu(x, logistic_of(x));
    default: return x;
    }
}

/* The gradient of sum(g act(x)) in x. */
DEVICE float activation_gradient(copes_act act, float g, float x)
{
    switch (act) {
    case COPES_RELU: return x > 0 ? g : 0;
    case COPES_SIGMOID: return g * logistic_of(x).slope;
    case COPES_SILU: {
        const logistic l = logistic_of(x);
        return g * fmaf(x, l.slope, l.s + l.rest);
    }
    default: return g;
    }
}

/* The same as calls, for where they are rare: a kernel that holds them many times over would not fit its cache. */
[[maybe_unused]] static __device__ __noinline__ float activate_rarely(copes_act act, float x)
{
    return activate(act, x);
}

[[maybe_unused]] static __device__ __noinline__ float activation_gradient_rarely(copes_act act, float g, float x)
{
    return activation_gradient(act, g, x);
}

/* Is the short way good enough for all of these elements of storage type T? */
template <typename T, int COUNT> DEVICE bool are_usual(const float (&x)[COUNT])
{
    bool usual = sizeof(T) == 2;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        usual = usual && fabsf(x[i]) < USUAL;
    return usual;
}

/* The activation of a thread's elements. A constant `act` leaves one loop of these. */
template <typename T, int COUNT> DEVICE void activate_all(copes_act act, float (&x)[COUNT])
{
    const bool sigmoidal = act == COPES_SILU || act == COPES_SIGMOID, usual = sigmoidal && are_usual<T>(x);
#pragma unroll
    for (int i = 0; i < COUNT && usual; i++)
        x[i] = (act == COPES_SILU ? x[i] : 1) * usual_logistic(x[i]);
#pragma unroll
    for (int i = 0; i < COUNT && !usual; i++)
        x[i] = sigmoidal && sizeof(T) == 2 ? activate_rarely(act, x[i]) : activate(act, x[i]);
}

/* From the gradients g of the activation's values to those of its arguments x. */
template <typename T, int COUNT>
DEVICE void activation_gradient_all(copes_act act, float (&g)[COUNT], const float (&x)[COUNT])
{
    const bool sigmoidal = act == COPES_SILU || act == COPES_SIGMOID, usual = sigmoidal && are_usual<T>(x);
#pragma unroll
    for (int i = 0; i < COUNT && usual; i++) {
        const logistic l = usual_logistic_slope(x[i]);
        g[i] *= act == COPES_SILU ? fmaf(x[i], l.slope, l.s) : l.slope;
    }
#pragma unroll
    for (int i = 0; i < COUNT && !usual; i++)
        g[i] = sigmoidal && sizeof(T) == 2 ? activation_gradient_rarely(act, g[i], x[i])
                                           : activation_gradient(act, g[i], x[i]);
}

struct turn {
    float cosine, sine;
};

/* Of a phase in units of 2^-32 turn, by polynomials on an eighth of a turn (Cephes's coefficients, scaled to turns).
 * The integer is scaled exactly, so that no rounded angle comes first. About an odd quarter the angle is turned round,
 * which leaves one sign for both. `poison` is 0, or NaN to show in both. EXACTLY: with 2 pi in two parts, for float32
 * results. */
template <bool EXACTLY> DEVICE turn turn_of(uint32_t phase, float poison)
{
    const uint32_t place = phase + (1u << 29);
    const bool odd = (place & 1u << 30) != 0;
    const float t = fmaf((float)(int32_t)(phase << 2), odd ? -0x1p-34f : 0x1p-34f, poison), z = t * t;
    float sine = fmaf(0x1.507834p+5f, z, -0x1.32d2ccp+6f);
    sine = fmaf(sine, z, 0x1.466bc6p+6f);
    sine = fmaf(sine, z, -0x1.4abbcep+5f);
    sine = EXACTLY ? fmaf(t, 0x1.921fb6p+2f, fmaf(t, -0x1.777a5cp-23f, t * (sine * z)))
                   : t * fmaf(sine, z, 0x1.921fb6p+2f);
    float cosine = fmaf(0x1.dacc30p+5f, z, -0x1.55c9e0p+6f);
    cosine = fmaf(cosine, z, 0x1.03c1e8p+6f);
    cosine = fmaf(fmaf(cosine, z, -0x1.3bd3ccp+4f), z, 1);
    const uint32_t sign = place & 1u << 31;
    return {__uint_as_float(__float_as_uint(odd ? sine : cosine) ^ sign),
            __uint_as_float(__float_as_uint(odd ? cosine : sine) ^ sign)};
}

} // namespace COPES_GPU

#endif
