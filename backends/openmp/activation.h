/* The elementwise activations and their gradients, on vectors. `act` is a constant wherever these are called, so that a
 * loop holds one activation and no branch. */
#ifndef COPES_BACKENDS_OPENMP_ACTIVATION_H
#define COPES_BACKENDS_OPENMP_ACTIVATION_H

#include "backends/openmp/vmath.h"
#include "common/problem.h"

/* The logistic function s and its slope s (1 - s), from e = e^-|x|, which never overflows and cancels nothing: s is 1 or e,
 * by the sign of x, over 1 + e; the slope is e / (1 + e)^2 by either, with few roundings as e / (1 + e (2 + e)). */
static ALWAYS_INLINE vreal vlogistic_decay(vreal x)
{
    return vexp_decay(-vabs(x));
}

static ALWAYS_INLINE vreal vlogistic(vreal x, vreal e)
{
    const vint negative = x < 0;
    const vreal sum = 1 + e, s = vselect(negative, e, vset(1)) / sum;
#if defined(COPES_TYPE_F32) || defined(COPES_TYPE_F64)
    const vreal lost = e - (sum - 1); /* what the sum's rounding left out, which full-width results would show */
    return s - s * lost * vselect(negative, 1 - s, s);
#else
    return s;
#endif
}

static ALWAYS_INLINE vreal vlogistic_slope(vreal e)
{
    return e / (1 + e * (2 + e));
}

static ALWAYS_INLINE vreal act_forward(copes_act act, vreal x)
{
    switch (act) {
    case COPES_RELU: return vselect(x < 0, vset(0), x); /* a NaN is not less than 0, and stays */
    case COPES_SIGMOID: return vlogistic(x, vlogistic_decay(x));
    case COPES_SILU: return x * vlogistic(x, vlogistic_decay(x));
    default: return x;
    }
}

/* The gradient of sum(g act(x)) in x. */
static ALWAYS_INLINE vreal act_backward(copes_act act, vreal g, vreal x)
{
    switch (act) {
    case COPES_RELU: return vselect(x > 0, g, vset(0));
    case COPES_SIGMOID: return g * vlogistic_slope(vlogistic_decay(x));
    case COPES_SILU: {
        const vreal e = vlogistic_decay(x);
        return g * (x * vlogistic_slope(e) + vlogistic(x, e));
    }
    default: return g;
    }
}

#endif
