/* The elementary functions of this level and type, compiled with the flags that the kernels have. */
#include "tests/vmath.h"

#include "backends/openmp/activation.h"
#include "backends/openmp/softmax.h"
#include "backends/openmp/template.h"
#include "backends/openmp/vmath_table.h"

static void exp_all(const void *x, void *y, size_t count)
{
    const real *from = x;
    real *to = y;
    for (size_t i = 0; i < count; i += LANES)
        store_real(to + i, vexp(load_real(from + i)).value);
}

static void exp_term_all(const void *x, void *y, size_t count)
{
    const real *from = x;
    real *to = y;
    for (size_t i = 0; i < count; i += LANES)
        store_real(to + i, vexp_term(load_real(from + i)));
}

static void exp_stored_all(const void *x, void *y, size_t count)
{
    const real *from = x;
    real *to = y;
    for (size_t i = 0; i < count; i += LANES)
        store_real(to + i, vexp_stored(load_real(from + i)));
}

static void exp_given_all(const void *x, void *y, size_t count)
{
    const real *from = x;
    real *to = y;
    for (size_t i = 0; i < count; i += LANES)
        store_real(to + i, vsoftmax_exp(FOR_STORAGE, true, load_real(from + i)));
}

static void activate_all(copes_act act, const void *x, void *y, size_t count)
{
    const real *from = x;
    real *to = y;
    for (size_t i = 0; i < count; i += LANES)
        store_real(to + i, act_forward(act, false, load_real(from + i)));
}

static void sigmoid_all(const void *x, void *y, size_t count)
{
    activate_all(COPES_ACT_SIGMOID, x, y, count);
}

static void silu_all(const void *x, void *y, size_t count)
{
    activate_all(COPES_ACT_SILU, x, y, count);
}

static void slopes_of(copes_act act, const void *x, void *y, size_t count)
{
    const real *from = x;
    real *to = y;
    for (size_t i = 0; i < count; i += LANES)
        store_real(to + i, act_backward(act, false, vset(1), load_real(from + i)));
}

static void sigmoid_slopes(const void *x, void *y, size_t count)
{
    slopes_of(COPES_ACT_SIGMOID, x, y, count);
}

static void silu_slopes(const void *x, void *y, size_t count)
{
    slopes_of(COPES_ACT_SILU, x, y, count);
}

static void sincos_all(const void *phase, void *sine, void *cosine, size_t count)
{
    const phase_word *from = phase;
    real *sines = sine, *cosines = cosine;
    for (size_t i = 0; i < count; i += LANES) {
        const sincos both = vsincos(load_phase(from + i));
        store_real(sines + i, both.sine);
        store_real(cosines + i, both.cosine);
    }
}

static void sincos_of_table_all(const void *phase, void *sine, void *cosine, size_t count)
{
    const phase_word *from = phase;
    real *sines = sine, *cosines = cosine;
    const sincos_table table = load_sincos_table(1);
    for (size_t i = 0; i < count; i += LANES) {
        const sincos both = vsincos_of_table(table, load_phase(from + i) + PHASE_HALF);
        store_real(sines + i, both.sine);
        store_real(cosines + i, both.cosine);
    }
}

static void rounded_twice_all(const void *x, void *y, size_t count)
{
    const real *from = x;
    real *to = y;
    for (size_t i = 0; i < count; i += LANES) {
        const vreal v = load_real(from + i);
        store_real(to + i, v * (2 - v) - 1);
    }
}

const vmath_functions TEMPLATE(
    vmath) = {exp_all,        exp_term_all, exp_stored_all, exp_given_all,       sigmoid_all,      silu_all,
              sigmoid_slopes, silu_slopes,  sincos_all,     sincos_of_table_all, rounded_twice_all};
