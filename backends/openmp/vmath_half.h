/* The exponential and the logistic function for float16 and bfloat16 results: float32 arithmetic to a few units of 2^-24, without the
 * second parts that vmath.h and activation_full.h carry.
 * tests/test_vmath.c runs all 65536 arguments. */
#ifndef COPES_BACKENDS_OPENMP_VMATH_HALF_H
#define COPES_BACKENDS_OPENMP_VMATH_HALF_H

#include "backends/openmp/simd.h"

static ALWAYS_INLINE vreal vnearest(vreal x)
{
#ifdef __AVX512F__
    return (vreal)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#else
    return x + vset(0x1.8p23f) - vset(0x1.8p23f);
#endif
}

/* a 2^octaves, for results in the normal range; with AVX-512 for any. */
static ALWAYS_INLINE vreal vscale_half(vreal a, vreal octaves)
{
#ifdef __AVX512F__
    return (vreal)_mm512_scalef_ps((__m512)a, (__m512)octaves);
#else
    return real_of_bits(bits_of(a) + (bits_of(octaves + vset(0x1.8p23f)) << FRACTION_BITS));
#endif
}

/* e^x for -87 <= x <= 88, to 4 units of 2^-24 of it. The polynomial is minimax for the relative error of e^r over half an octave
 * either way, 1.1e-7, with two coefficients of 1. The leading part of ln 2 has so few bits that its product with octaves is exact. */
static ALWAYS_INLINE vreal vexp_half(vreal x)
{
    const vreal octaves = vnearest(x * 0x1.715476p0f);
    const vreal r = vfma(octaves, vset(-0x1.7f7d1cp-20f), vfma(octaves, vset(-0x1.62e4p-1f), x));
    vreal p = vset(0x1.1063ccp-7f);
    p = vfma(p, r, vset(0x1.572a16p-5f));
    p = vfma(p, r, vset(0x1.5557acp-3f));
    p = vfma(p, r, vset(0x1.fffdfcp-2f));
    p = vfma(p, r, vset(1));
    return vscale_half(vfma(p, r, vset(1)), octaves);
}

/* e^x for x <= 88, where what is below the normal range may as well be 0: a softmax's term beside a largest one of 1. */
static ALWAYS_INLINE vreal vexp_term(vreal x)
{
#ifdef __AVX512F__
    return vexp_half(vmax(vset(-128), x)); /* 2^-184 and less is 0 */
#else
    return real_of_bits(bits_of(vexp_half(vmax(vset(exp_least_normal), x))) & ~(x < exp_least_normal));
#endif
}

/* 1 / x for x from 1 to 2^125: the processor's estimate, refined once. */
static ALWAYS_INLINE vreal vreciprocal_half(vreal x)
{
#if defined(__AVX512F__)
    const vreal r = (vreal)_mm512_rcp14_ps((__m512)x);
#elif defined(__AVX2__)
    const vreal r = (vreal)_mm256_rcp_ps((__m256)x);
#elif defined(__SSE2__)
    const vreal r = (vreal)_mm_rcp_ps((__m128)x);
#else
    return 1 / x;
#endif
#ifdef __SSE2__
    return vfma(vfnma(x, r, vset(1)), r, r);
#endif
}

/* e = e^-x and s = 1 / (1 + e), for x >= tail_begin. */

typedef struct vlogistic_half_parts {
    vreal e, s;
} vlogistic_half_parts;

static ALWAYS_INLINE vlogistic_half_parts vlogistic_half(vreal x)
{
    const vreal e = vexp_term(-x);
    return (vlogistic_half_parts){e, vreciprocal_half(1 + e)};
}

#endif
