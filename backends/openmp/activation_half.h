/* Sigmoid, silu and their gradients for float16 and bfloat16 results, from e = e^-x and s = 1 / (1 + e). Far from 0 on a side where
 * results shrink with e^-|x| (the tail), that exponential has an exponent of its own, which the result gets last. */
#ifndef COPES_BACKENDS_OPENMP_ACTIVATION_HALF_H
#define COPES_BACKENDS_OPENMP_ACTIVATION_HALF_H

#include "backends/openmp/vmath.h"
#include "common/problem.h"

/* Results of which some lanes are in the tail; `near` is right for the others. */
static SELDOM vargument sigmoidal_far(copes_act act, vargument argument, vargument near)
{
    const vreal x = argument;
    const vdecay decay = vexp_with_tail(-vabs(x), x < 0);
    const vreal e = decay.e.value, far = act == COPES_ACT_SILU ? x * e : e;
    return vselect(x < tail_begin, vexp_in_units(far, decay), (vreal)near);
}

static ALWAYS_INLINE vreal sigmoidal_forward(copes_act act, bool exactly, vreal x)
{
    const vreal s = vlogistic_half(exactly, x).s, near = act == COPES_ACT_SILU ? x * s : s;
    return vexp_has_tail(x) ? (vreal)sigmoidal_far(act, x, near) : near;
}

static SELDOM vargument sigmoidal_gradient_far(copes_act act, vargument gradient, vargument argument, vargument near)
{
    const bool silu = act == COPES_ACT_SILU;
    const vreal g = gradient, x = argument;
    const vreal below = silu ? x : -vabs(x);
    const vdecay decay = vexp_with_tail(-vabs(x), below < 0);
    const vreal e = decay.e.value, far = g * (silu ? (1 + x) * e : e);
    return vselect(below < tail_begin, vexp_in_units(far, decay), (vreal)near);
}

/* The slopes are e s s, and s + x e s s for silu: 1 - s would cancel. */
static ALWAYS_INLINE vreal sigmoidal_backward(copes_act act, bool summed, vreal g, vreal x)
{
    const bool silu = act == COPES_ACT_SILU;
    const vlogistic_half_parts parts = vlogistic_half(false, x);
    const vreal other = parts.e * parts.s, near = g * ((silu ? vfma(x, other, vset(1)) : other) * parts.s);
    (void)summed;
    return vexp_has_tail(silu ? x : -vabs(x)) ? (vreal)sigmoidal_gradient_far(act, g, x, near) : near;
}

#endif
