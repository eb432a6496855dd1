/* Elementary functions on the GPU: the activations and their gradients, and sine and cosine of a phase. Bounds are those of
 * float32 storage, for every type, as a result is to be the rounding of a number that close. */
#ifndef COPES_BACKENDS_GPU_FUNCTIONS_H
#define COPES_BACKENDS_GPU_FUNCTIONS_H

#include "vendor.h"

#include "common/phase.h"
#include "common/problem.h"

#include <math.h>

namespace COPES_GPU {

inline constexpr float LOG2_E = 0x1.715476p+0f;

/* e^(x - most) for x <= most: a softmax's term beside a largest one of 1. */
DEVICE float softmax_term(float x, float most)
{
    return exp2_term((x - most) * LOG2_E);
}

/* The logistic function s, from e = e^-|x|, which never overflows and cancels nothing: s is 1 or e, by the sign of x, over
 * 1 + e, and its slope s (1 - s) is e over the square of that. */
struct logistic {
    float e, inverse, s;
};

DEVICE logistic logistic_of(float x)
{
    const float e = expf(-fabsf(x)), inverse = reciprocal(1 + e);
    return {e, inverse, (x < 0 ? e : 1) * inverse};
}

DEVICE float activate(copes_act act, float x)
{
    switch (act) {
    case COPES_RELU: return x < 0 ? 0 : x; /* a NaN is not less than 0, and stays */
    case COPES_SIGMOID: return logistic_of(x).s;
    case COPES_SILU: return x * logistic_of(x).s;
    default: return x;
    }
}

/* The gradient of sum(g act(x)) in x. */
DEVICE float activation_gradient(copes_act act, float g, float x)
{
    switch (act) {
    case COPES_RELU: return x > 0 ? g : 0;
    case COPES_SIGMOID: {
        const logistic l = logistic_of(x);
        return g * (l.e * l.inverse * l.inverse);
    }
    case COPES_SILU: {
        const logistic l = logistic_of(x);
        return g * (x * (l.e * l.inverse * l.inverse) + l.s);
    }
    default: return g;
    }
}

struct turn {
    float cosine, sine;
};

/* Of a phase in units of 2^-32 turn, by polynomials on an eighth of a turn (Cephes's coefficients, scaled to turns). The
 * integer is scaled exactly and 2 pi is in two parts, so that no rounded angle comes first. */
DEVICE turn turn_of(uint32_t phase)
{
    const uint32_t quarter = (phase + (1u << 29)) >> 30;
    const float t = (float)(int32_t)(phase - (quarter << 30)) * 0x1p-32f, z = t * t;
    float sine = fmaf(0x1.507834p+5f, z, -0x1.32d2ccp+6f);
    sine = fmaf(sine, z, 0x1.466bc6p+6f);
    sine = fmaf(sine, z, -0x1.4abbcep+5f);
    sine = fmaf(t, 0x1.921fb6p+2f, fmaf(t, -0x1.777a5cp-23f, t * (sine * z)));
    float cosine = fmaf(0x1.dacc30p+5f, z, -0x1.55c9e0p+6f);
    cosine = fmaf(cosine, z, 0x1.03c1e8p+6f);
    cosine = fmaf(fmaf(cosine, z, -0x1.3bd3ccp+4f), z, 1);
    const bool swap = (quarter & 1) != 0;
    const uint32_t sine_sign = (quarter & 2) << 30, cosine_sign = ((quarter + 1) & 2) << 30;
    return {__uint_as_float(__float_as_uint(swap ? sine : cosine) ^ cosine_sign),
            __uint_as_float(__float_as_uint(swap ? cosine : sine) ^ sine_sign)};
}

} // namespace COPES_GPU

#endif
