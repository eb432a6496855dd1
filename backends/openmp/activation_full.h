/* Sigmoid, silu and their gradients for float32 and float64 results, which show what roundings on the way lose. */
#ifndef COPES_BACKENDS_OPENMP_ACTIVATION_FULL_H
#define COPES_BACKENDS_OPENMP_ACTIVATION_FULL_H

#include "backends/openmp/vmath.h"
#include "common/problem.h"

/* The logistic function s comes of e = e^-|x|, which never overflows and cancels nothing: it is 1 or e, by the sign of x,
 * over 1 + e. In the tail the sum is 1, whatever octaves e lacks. `rest` is what the roundings of e, of the sum and of the
 * division left out of s. */
typedef struct vlogistic_parts {
    vreal s, rest;
} vlogistic_parts;

static ALWAYS_INLINE vlogistic_parts vlogistic(vint negative, vexponential e)
{
    const vreal top = vselect(negative, e.value, vset(1)), sum = 1 + e.value, s = top / sum;
    const vreal lost = e.value - (sum - 1) + e.rest, inverse = vselect(negative, 1 - s, s);
    return (vlogistic_parts){s, vfnma(s, lost, vresidual(top, s, sum) + vselect(negative, e.rest, vset(0))) * inverse};
}

static ALWAYS_INLINE vreal vwhole(vlogistic_parts l)
{
    return l.s + l.rest;
}

/* x s, rounded once. An infinite x has no rest, and must not meet its 0. */
static ALWAYS_INLINE vreal vsilu(vreal x, vlogistic_parts l)
{
    const vreal finite = vmin(x, vset(real_most));
#if FUSES
    return vfma(x, l.s, finite * l.rest);
#else
    return x * l.s + (finite * l.rest - vresidual(finite * l.s, finite, l.s));
#endif
}

/* s and its slope s (1 - s), which is the same on either side of 0: with one division, from the smaller of s and 1 - s,
 * which comes of e. `exactly`: each with its rest. */
typedef struct vlogistic_pair {
    vlogistic_parts value, slope;
} vlogistic_pair;

static ALWAYS_INLINE vlogistic_pair vlogistic_with_slope(bool exactly, vreal x, vexponential e)
{
    const vlogistic_parts parts = vlogistic(~(vint){0}, e);
    const vreal smaller = exactly ? parts.s : vwhole(parts), larger = 1 - smaller;
    vlogistic_pair pair = {{vselect(x < 0, smaller, larger), vset(0)}, {smaller * larger, vset(0)}};
    if (exactly) {
        const vreal rest = 1 - larger - smaller - parts.rest; /* of the larger */
        pair.value.rest = vselect(x < 0, parts.rest, rest);
        pair.slope.rest = vfma(smaller, rest, parts.rest * larger) - vresidual(pair.slope.s, smaller, larger);
    }
    return pair;
}

/* g d(x s)/dx. */
static ALWAYS_INLINE vreal vsilu_gradient(bool exactly, vreal g, vreal x, vlogistic_pair l)
{
    if (!exactly)
        return g * vfma(x, l.slope.s, l.value.s);
    const vreal steep = x * l.slope.s, slope = steep + l.value.s;
    const vreal second = slope - steep, lost = (steep - (slope - second)) + (l.value.s - second); /* by the sum */
    const vreal finite = vmax(vmin(g, vset(real_most)), vset(-real_most));                        /* as in vsilu */
    const vreal rest = lost - vresidual(steep, x, l.slope.s) + vfma(x, l.slope.rest, l.value.rest);
    return vfma(g, slope, finite * rest);
}

/* Sigmoid or silu, from e = e^-|x|. */
static ALWAYS_INLINE vreal sigmoidal(copes_act act, vreal x, vexponential e)
{
    const vlogistic_parts l = vlogistic(x < 0, e);
    return act == COPES_ACT_SILU ? vsilu(x, l) : vwhole(l);
}

static ALWAYS_INLINE vreal sigmoidal_gradient(copes_act act, bool exactly, vreal g, vreal x, vexponential e)
{
    const vlogistic_pair l = vlogistic_with_slope(exactly, x, e);
    return act == COPES_ACT_SILU ? vsilu_gradient(exactly, g, x, l) : g * vwhole(l.slope);
}

/* Of vectors of which some lanes are in the tail. */
static SELDOM vargument sigmoidal_far(copes_act act, vargument argument)
{
    const vreal x = argument;
    const vdecay decay = vexp_with_tail(-vabs(x), x < 0);
    return vexp_in_units(sigmoidal(act, x, decay.e), decay);
}

static ALWAYS_INLINE vreal sigmoidal_forward(copes_act act, bool exactly, vreal x)
{
    const vreal below = -vabs(x);
    (void)exactly;
    return vexp_has_tail(below) ? (vreal)sigmoidal_far(act, x) : sigmoidal(act, x, vexp_before_tail(below));
}

static SELDOM vargument sigmoidal_gradient_far(copes_act act, bool exactly, vargument gradient, vargument argument)
{
    const vreal g = gradient, x = argument;
    const vdecay decay = vexp_with_tail(-vabs(x), act == COPES_ACT_SILU ? x < 0 : ~(vint){0});
    return vexp_in_units(sigmoidal_gradient(act, exactly, g, x, decay.e), decay);
}

/* `exactly`: g is a sum itself, whose roundings leave less room for others. */
static ALWAYS_INLINE vreal sigmoidal_backward(copes_act act, bool exactly, vreal g, vreal x)
{
    const vreal below = -vabs(x);
    if (vexp_has_tail(below))
        return (vreal)sigmoidal_gradient_far(act, exactly, g, x);
    return sigmoidal_gradient(act, exactly, g, x, vexp_before_tail(below));
}

#endif
