/* The elementwise activations and their gradients, on vectors. `act` is a constant wherever these are called, so that a
 * loop holds one activation and no branch. */
#ifndef COPES_BACKENDS_OPENMP_ACTIVATION_H
#define COPES_BACKENDS_OPENMP_ACTIVATION_H

#include "backends/openmp/vmath.h"
#include "common/problem.h"

/* The logistic function s and its slope s (1 - s), both from e = e^-|x|, which never overflows and cancels nothing:
 * with r = 1 / (1 + e), s is r or e r by the sign of x, and the slope is e r^2 by either. */
typedef struct logistic {
    vreal value, slope;
} logistic;

static ALWAYS_INLINE logistic vlogistic(vreal x)
{
    const vreal e = vexp(-vabs(x));
    const vreal r = 1 / (1 + e);
    return (logistic){vselect(x < 0, e * r, r), e * r * r};
}

static ALWAYS_INLINE vreal act_forward(copes_act act, vreal x)
{
    switch (act) {
    case COPES_RELU: return vselect(x < 0, vset(0), x); /* a NaN is not less than 0, and stays */
    case COPES_SIGMOID: return vlogistic(x).value;
    case COPES_SILU: return x * vlogistic(x).value;
    default: return x;
    }
}

/* The gradient of sum(g act(x)) in x. */
static ALWAYS_INLINE vreal act_backward(copes_act act, vreal g, vreal x)
{
    switch (act) {
    case COPES_RELU: return vselect(x > 0, g, vset(0));
    case COPES_SIGMOID: return g * vlogistic(x).slope;
    case COPES_SILU: {
        const logistic s = vlogistic(x);
        return g * (s.value + x * s.slope);
    }
    default: return g;
    }
}

#endif
