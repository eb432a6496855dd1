/* The exponential and the logistic function for float16 and bfloat16 storage, without the second parts that vmath.h and
 * activation_full.h carry: to a few units of 2^-24 where float32 results come of them, else to a few thousandths of an ulp of storage.
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

/* 2^r, to 1e-7 of it for float16 and to 3e-6 for bfloat16; minimax, but that 2^0 is 1. r is from 0 to 1 with AVX-512, else half an
 * octave either way. */
static ALWAYS_INLINE vreal vpolynomial_half(vreal r)
{
#if defined(__AVX512F__) && defined(COPES_TYPE_F16)
    static const real c[] = {0x1.e96cfp-10f, 0x1.277b22p-7f, 0x1.c91c38p-5f, 0x1.ebdb68p-3f, 0x1.62e4bap-1f};
#elif defined(COPES_TYPE_F16)
    static const real c[] = {0x1.5bda58p-10f, 0x1.3ce8acp-7f, 0x1.c6b6d8p-5f, 0x1.ebf9c2p-3f, 0x1.62e42ap-1f};
#elif defined(__AVX512F__)
    static const real c[] = {0x1.b7f752p-7f, 0x1.abf856p-5f, 0x1.ee2454p-3f, 0x1.62d6c6p-1f};
#else
    static const real c[] = {0x1.3a051ap-7f, 0x1.c9fc68p-5f, 0x1.ec036ep-3f, 0x1.62e12cp-1f};
#endif
    vreal p = vset(c[0]);
    for (size_t i = 1; i < sizeof c / sizeof c[0]; i++)
        p = vfma(p, r, vset(c[i]));
    return vfma(p, r, vset(1));
}

/* Does vexp_stored take every x? */
#ifdef __AVX512F__
enum { STORES_ANY_POWER = true };
#else
enum { STORES_ANY_POWER = false };
#endif

/* e^x for x <= 88 as a result that is stored in 16 bits shows it: to 60 units of 2^-24 of it for float16, to 100 for bfloat16. What is
 * below the normal range may as well be 0. */
static ALWAYS_INLINE vreal vexp_stored(vreal x)
{
#if defined(__AVX512F__)
    const vreal octaves = x * 0x1.715476p0f; /* the scaling takes their floor, the polynomial the rest */
    const vreal r = (vreal)_mm512_reduce_ps((__m512)octaves, _MM_FROUND_TO_NEG_INF);
    return (vreal)_mm512_scalef_ps((__m512)vpolynomial_half(r), (__m512)octaves);
#elif FUSES || defined(COPES_TYPE_BF16)
    /* `magic` rounds, and has the exponents' bias: the low bits of a sum with it are those of a power of two, or of 0. */
    const vreal least = vset(-EXPONENT_BIAS * 0x1.62e42ep-1f), magic = vset(0x1.8p23f + EXPONENT_BIAS);
    const vreal above = vmax(least, x), shifted = vfma(above, vset(0x1.715476p0f), magic);
    const vreal r = vfma(above, vset(0x1.715476p0f), magic - shifted);
    return vpolynomial_half(r) * real_of_bits(bits_of(shifted) << FRACTION_BITS);
#else
    return vexp_term(x); /* a product with log2 e that is rounded by itself would show in float16 */
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

/* e = e^-x and s = 1 / (1 + e), for x >= tail_begin. `exactly`: for results in float32. */

typedef struct vlogistic_half_parts {
    vreal e, s;
} vlogistic_half_parts;

static ALWAYS_INLINE vlogistic_half_parts vlogistic_half(bool exactly, vreal x)
{
    const vreal e = exactly ? vexp_term(-x) : vexp_stored(-x);
    return (vlogistic_half_parts){e, vreciprocal_half(1 + e)};
}

#endif
