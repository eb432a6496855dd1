/* The elementwise activations and their gradients, on vectors. `act` is a constant wherever these are called, so that a
 * loop holds one activation and no branch. */
#ifndef COPES_BACKENDS_OPENMP_ACTIVATION_H
#define COPES_BACKENDS_OPENMP_ACTIVATION_H

#include "backends/openmp/simd.h"

#ifdef STORES_HALF
#include "backends/openmp/activation_half.h"
#else
#include "backends/openmp/activation_full.h"
#endif

/* Has an element an exponential, which then binds rather than memory? */
static ALWAYS_INLINE bool has_exponential(copes_act act)
{
    return act == COPES_ACT_SIGMOID || act == COPES_ACT_SILU;
}

/* `exactly`: for a result in float32, of any storage type. */
static ALWAYS_INLINE vreal act_forward(copes_act act, bool exactly, vreal x)
{
    if (act == COPES_ACT_RELU)
        return vselect(x < 0, vset(0), x); /* a NaN is not less than 0, and stays */
    return has_exponential(act) ? sigmoidal_forward(act, exactly, x) : x;
}

/* The gradient of sum(g act(x)) in x. `summed`: g is a sum itself. */
static ALWAYS_INLINE vreal act_backward(copes_act act, bool summed, vreal g, vreal x)
{
    if (act == COPES_ACT_RELU)
        return vselect(x > 0, g, vset(0));
    return has_exponential(act) ? sigmoidal_backward(act, summed, g, x) : g;
}

/* The same from o = sigmoid(x). The slope comes first, as a product with a large or a small g may leave the range. */
static ALWAYS_INLINE vreal sigmoid_backward_of_output(vreal g, vreal o)
{
    return g * (o * (1 - o));
}

#endif
