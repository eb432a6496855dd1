/* Softmax over rows of reals in cache, and what columns.h and short_rows.h share with it. A largest term of -inf counts as
 * 0, so that masked parts add nothing and a row of nothing else still ends as 0 / 0. */
#ifndef COPES_BACKENDS_OPENMP_SOFTMAX_H
#define COPES_BACKENDS_OPENMP_SOFTMAX_H

#include "backends/openmp/vmath.h"

static ALWAYS_INLINE vreal vfinite_max(vreal most)
{
    return vselect(most == vset(-(real)INFINITY), vset(0), most);
}

/* e, which is e^(x - shift), with what the rounding of x - shift to `below` has lost. That is up to half an ulp of `below`,
 * and e is off by as much of itself. In a forward the e of a large difference is so much smaller than the largest that it
 * does not show, but in a gradient it may meet a g that is as much larger. */
static ALWAYS_INLINE vreal vexp_restored(vreal e, vreal x, vreal shift, vreal below)
{
    const real near = -8; /* from there on up it is a quarter of float32's part of the bound at most */
    if (__builtin_expect(!any_below(below, near), 1))
        return e;
    const vreal back = below - x, lost = (x - (below - back)) - (shift + back);
    /* Where an infinity left NaN, 1: e is then 0, infinite or NaN. An infinite e must stay one. */
    return vfma(vmin(e, vset(real_most)), vmin(lost, vset(1)), e);
}

/* What a softmax's terms are for: results in storage, a log sum exp, or a gradient, as vexp_restored explains. */
typedef enum term_use { FOR_STORAGE, FOR_LSE, FOR_GRADIENT } term_use;

/* bfloat16 does not show what a finer exponential has; `stored`: float32 results do not come of the gradient, either. */
static ALWAYS_INLINE term_use gradient_use(bool stored)
{
#ifdef COPES_TYPE_BF16
    return stored ? FOR_STORAGE : FOR_GRADIENT;
#else
    (void)stored;
    return FOR_GRADIENT;
#endif
}

/* e^below. `given`: it is relative to a log sum exp that the caller gave, and may be anything. */
static ALWAYS_INLINE vreal vsoftmax_exp(term_use use, bool given, vreal below)
{
    const vreal e = use == FOR_STORAGE ? vexp_stored(below) : vexp_term(below);
    if (!given || (use == FOR_STORAGE && STORES_ANY_POWER))
        return e;
    const vint normal = vabs(below) <= -exp_least_normal;
    return __builtin_expect(any_lane(~normal), 0) ? vselect(normal, e, vexp(below).value) : e;
}

/* e^(x - shift). `use` and `given` are constants wherever this is inlined. */
static ALWAYS_INLINE vreal vsoftmax_term(term_use use, bool given, vreal x, vreal shift)
{
    const vreal below = x - shift, e = vsoftmax_exp(use, given, below);
    return use == FOR_GRADIENT ? vexp_restored(e, x, shift, below) : e;
}

static ALWAYS_INLINE vpair vsoftmax_terms(term_use use, bool given, vpair x, vpair shift)
{
    return (vpair){vsoftmax_term(use, given, x.low, shift.low), vsoftmax_term(use, given, x.high, shift.high)};
}

/* Adds `part` to a compensated sum (Kahan). */
static ALWAYS_INLINE void vsum_add(vreal *sum, vreal *carry, vreal part)
{
    const vreal corrected = part - *carry, next = *sum + corrected;
    const vreal lost = (next - *sum) - corrected;
    *carry = vselect(lost - lost == vset(0), lost, vset(0)); /* nothing is lost of an infinity */
    *sum = next;
}

/* Rows are whole pairs of vectors, their padding -inf for a maximum or sum of exponentials and 0 for a product. */
static inline real row_max(const real *row, int64_t count)
{
    vreal low = load_real(row), high = load_real(row + LANES);
    for (int64_t i = 2 * LANES; i < count; i += 2 * LANES) {
        low = vmax(load_real(row + i), low);
        high = vmax(load_real(row + i + LANES), high);
    }
    return max_lanes(vmax(low, high));
}

/* Terms that are summed plainly between compensated additions. Beside a term of 1 each of them may lose half an ulp of 1, and a
 * gradient has the sum in it twice: three of them are a third of float32's bound. */
enum { PLAIN_TERMS = 4, ROW_SUM_BLOCK = 2 * PLAIN_TERMS * LANES };

/* The sum of a vector's lanes, rounded once. */
static ALWAYS_INLINE real sum_lanes_in_double(vreal x)
{
    double sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += (double)x[i];
    return (real)sum;
}

/* Turns a row into e^(x - most) and returns the sum. */
static ALWAYS_INLINE real row_exp(term_use use, real *row, int64_t count, real most)
{
    const vreal shift = vfinite_max(vset(most));
    vreal sum = vset(0), carry = vset(0);
    for (int64_t begin = 0; begin < count; begin += ROW_SUM_BLOCK) {
        const int64_t end = begin + ROW_SUM_BLOCK < count ? begin + ROW_SUM_BLOCK : count;
        vreal low = vset(0), high = vset(0);
        for (int64_t i = begin; i < end; i += 2 * LANES) {
            const vpair e = vsoftmax_terms(use, false, load_real_pair(row + i), (vpair){shift, shift});
            store_real_pair(row + i, e);
            low += e.low;
            high += e.high;
        }
        vsum_add(&sum, &carry, low + high);
    }
    return use == FOR_GRADIENT ? sum_lanes_in_double(sum) : sum_lanes(sum);
}

/* Turns a row into e^(x - lse), for an lse that may be anything. */
static inline void row_exp_of_lse(real *row, int64_t count, real lse)
{
    for (int64_t i = 0; i < count; i += LANES)
        store_real(row + i, vsoftmax_term(FOR_STORAGE, true, load_real(row + i), vset(lse)));
}

static inline void row_scale(real *row, int64_t count, real factor)
{
    for (int64_t i = 0; i < count; i += LANES)
        store_real(row + i, load_real(row + i) * factor);
}

static inline real row_dot(const real *a, const real *b, int64_t count)
{
    vreal sum = vset(0), carry = vset(0);
    for (int64_t begin = 0; begin < count; begin += ROW_SUM_BLOCK) {
        const int64_t end = begin + ROW_SUM_BLOCK < count ? begin + ROW_SUM_BLOCK : count;
        vreal low = vset(0), high = vset(0);
        for (int64_t i = begin; i < end; i += 2 * LANES) {
            low = vfma(load_real(a + i), load_real(b + i), low);
            high = vfma(load_real(a + i + LANES), load_real(b + i + LANES), high);
        }
        vsum_add(&sum, &carry, low + high);
    }
    return sum_lanes(sum);
}

/* The softmax of `count` rows in place, each `stride` long. Step by step over all rows, since a row alone would wait
 * for its own maximum, and then for its sum. */
static ALWAYS_INLINE void rows_softmax(term_use use, real *y, int64_t count, int64_t stride)
{
    enum { ROWS = 16 };
    real value[ROWS];
    for (int64_t begin = 0; begin < count; begin += ROWS, y += ROWS * stride) {
        const int64_t rows = begin + ROWS < count ? ROWS : count - begin;
        for (int64_t i = 0; i < rows; i++)
            value[i] = row_max(y + i * stride, stride);
        for (int64_t i = 0; i < rows; i++)
            value[i] = 1 / row_exp(use, y + i * stride, stride, value[i]);
        for (int64_t i = 0; i < rows; i++)
            row_scale(y + i * stride, stride, value[i]);
    }
}

/* g becomes y (g - dot): the gradient of a softmax y, where dot is the row's sum of y g. */
static inline void row_gradient(const real *y, real *g, int64_t count, real dot)
{
    for (int64_t i = 0; i < count; i += LANES)
        store_real(g + i, load_real(y + i) * (load_real(g + i) - vset(dot)));
}

/* Their gradients: g becomes y (g - sum(y g)). */
static inline void rows_gradient(const real *y, real *g, int64_t count, int64_t stride)
{
    for (int64_t i = 0; i < count; i++)
        row_gradient(y + i * stride, g + i * stride, stride, row_dot(y + i * stride, g + i * stride, stride));
}

#endif
