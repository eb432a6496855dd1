/* float16 as vectors of floats, by the processor's conversions where it has them. */
#ifndef COPES_BACKENDS_OPENMP_SIMD_F16_H
#define COPES_BACKENDS_OPENMP_SIMD_F16_H

#include "backends/openmp/simd_half.h"

#if defined(__F16C__) || defined(__aarch64__)

static ALWAYS_INLINE float widen_scalar(uint16_t h)
{
#ifdef __F16C__
    return _cvtsh_ss(h);
#else
    __fp16 x;
    memcpy(&x, &h, sizeof x);
    return x;
#endif
}

static ALWAYS_INLINE uint16_t narrow_scalar(float x)
{
#ifdef __F16C__
    return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#else
    const __fp16 half = (__fp16)x;
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
#endif
}

#else

/* Widening: shift the magnitude into place, and scale by 2^112 what the narrower exponent's bias leaves out. */
static ALWAYS_INLINE float widen_scalar(uint16_t h)
{
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
    float x;
    memcpy(&x, &bits, sizeof x);
    x *= 0x1p112f; /* exact, denormals included */
    memcpy(&bits, &x, sizeof bits);
    if ((h & 0x7c00) == 0x7c00)
        bits = 0x7f800000u | (uint32_t)(h & 0x3ff) << 13;
    bits |= (uint32_t)(h & 0x8000) << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Narrowing: adding a power of two that leaves 10 bits of fraction lets the float adder round to nearest even. */
static ALWAYS_INLINE uint16_t narrow_scalar(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: a multiple of 2^-24 */
        float y;
        memcpy(&y, &magnitude, sizeof y);
        y += 0.5f; /* an ulp of which is 2^-24 */
        uint32_t sum;
        memcpy(&sum, &y, sizeof sum);
        return (uint16_t)(sign | (sum - 0x3f000000));
    }
    return (uint16_t)(sign | (((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - ((127 - 15) << 10)));
}

/* The same of vectors. They are calls, as lines of this length at every load and store would be a large part of the library's code. */
static NOINLINE vreal widen_lanes(vhalf h)
{
    const vword bits = __builtin_convertvector(h, vword), fraction = (bits & 0x3ff) << 13;
    const vreal finite = (vreal)((bits & 0x7fff) << 13) * 0x1p112f;
    const vreal magnitude = vselect((bits & 0x7c00) == 0x7c00, (vreal)(0x7f800000 | fraction), finite);
    return (vreal)((vword)magnitude | (bits & 0x8000) << 16);
}

static NOINLINE vhalf narrow_lanes(vreal x)
{
    const vword bits = (vword)x, magnitude = bits & 0x7fffffff, infinite = (vword){0} + 0x7c00;
    const vword small = (vword)((vreal)magnitude + 0.5f) - 0x3f000000;
    const vword normal = ((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - ((127 - 15) << 10);
    const vreal finite = vselect((vint)magnitude < 0x38800000, (vreal)small, (vreal)normal);
    const vreal number = vselect((vint)magnitude < 0x477ff000, finite, (vreal)infinite);
    const vreal nan = (vreal)(0x7e00 | (magnitude >> 13 & 0x3ff));
    const vword word = (vword)vselect((vint)magnitude <= 0x7f800000, number, nan);
    return __builtin_convertvector(word | (bits >> 16 & 0x8000), vhalf);
}

#endif

static ALWAYS_INLINE vreal widen(vhalf h)
{
#if defined(__AVX512F__)
    return (vreal)_mm512_cvtph_ps((__m256i)h);
#elif defined(__F16C__)
    return (vreal)_mm256_cvtph_ps((__m128i)h);
#elif defined(SVE256)
    return (vreal)(sve_f32)svcvt_f32_f16_x(svptrue_b32(), (sve_f16)h);
#elif defined(__aarch64__)
    return (vreal)vcvt_f32_f16((float16x4_t)h);
#else
    return widen_lanes(h);
#endif
}

static ALWAYS_INLINE vhalf narrow(vreal x)
{
#if defined(__AVX512F__)
    return (vhalf)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    return (vhalf)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(SVE256)
    return (vhalf)(sve_f16)svcvt_f16_f32_x(svptrue_b32(), (sve_f32)x);
#elif defined(__aarch64__)
    return (vhalf)vcvt_f16_f32((float32x4_t)x);
#else
    return narrow_lanes(x);
#endif
}

#endif
