/* Vectors of the widest registers of the level that this source is compiled for, in the compilers' vector extensions,
 * and loads and stores that convert between them and the storage type. One source for x86-64 baseline, AVX2, AVX-512,
 * NEON, SVE and whatever else has a C compiler; the few intrinsics are conversions that no portable expression reaches. */
#ifndef COPES_BACKENDS_OPENMP_SIMD_H
#define COPES_BACKENDS_OPENMP_SIMD_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__ARM_FEATURE_SVE_BITS) && __ARM_FEATURE_SVE_BITS == 256
#include <arm_sve.h>
#define SVE256 1

/* SVE's types at this length: compilers go by them from GNU's vectors to the types of intrinsics, and back. */
#define SVE_TYPE(name, type) typedef type name __attribute__((arm_sve_vector_bits(256)))
SVE_TYPE(sve_f16, svfloat16_t);
SVE_TYPE(sve_f32, svfloat32_t);
SVE_TYPE(sve_s32, svint32_t);
SVE_TYPE(sve_u16, svuint16_t);
SVE_TYPE(sve_u32, svuint32_t);
SVE_TYPE(sve_u64, svuint64_t);

#ifdef COPES_TYPE_F64
SVE_TYPE(sve_real, svfloat64_t);
SVE_TYPE(sve_integer, svint64_t);
#define EVERY_LANE svptrue_b64()
#else
SVE_TYPE(sve_real, svfloat32_t);
SVE_TYPE(sve_integer, svint32_t);
#define EVERY_LANE svptrue_b32()
#endif
#undef SVE_TYPE
#endif
#endif

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline, unused))
#define SELDOM __attribute__((cold, noinline, unused)) /* for what few elements need: loops call it and hold no copy */

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__) || defined(SVE256)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#if defined(__FMA__) || defined(__aarch64__)
#define FUSES 1 /* the level has an instruction for a product and a sum that is rounded once */
#else
#define FUSES 0
#endif

#ifdef COPES_TYPE_F64
typedef double real;
typedef int64_t integer;
#else
typedef float real;
typedef int32_t integer;
#endif

#if defined(COPES_TYPE_F64)
typedef double storage;
#elif defined(COPES_TYPE_F32)
typedef float storage;
#else
typedef uint16_t storage; /* the bits of a float16 or bfloat16 */
#define STORES_HALF 1
#endif

#ifdef STORES_HALF
enum { FULL_WIDTH = false };
#else
enum { FULL_WIDTH = true }; /* results show what roundings on the way lose */
#endif

enum { LANES = VECTOR_BYTES / (int)sizeof(real) };

typedef real vreal __attribute__((vector_size(VECTOR_BYTES)));
typedef integer vint __attribute__((vector_size(VECTOR_BYTES)));

/* A vector as the argument or result of a call. Of SVE's own types it is one in registers, and the call keeps half of all registers for the
 * loop that makes it; a GNU vector would go through memory, and every constant of the loop be loaded again. */
#ifdef SVE256
typedef sve_real vargument;
#else
typedef vreal vargument;
#endif

/* Two vectors of neighbours: what one full-width store of a 16-bit type takes. */
typedef struct vpair {
    vreal low, high;
} vpair;

static ALWAYS_INLINE vreal vset(real x)
{
    return x - (vreal){0};
}

/* The level's instruction OPERATION on a, b and c. */
#if defined(__AVX512F__) && defined(COPES_TYPE_F64)
#define FUSED(operation, a, b, c) (vreal) _mm512_##operation##_pd((__m512d)(a), (__m512d)(b), (__m512d)(c))
#elif defined(__AVX512F__)
#define FUSED(operation, a, b, c) (vreal) _mm512_##operation##_ps((__m512)(a), (__m512)(b), (__m512)(c))
#elif defined(__AVX2__) && defined(COPES_TYPE_F64)
#define FUSED(operation, a, b, c) (vreal) _mm256_##operation##_pd((__m256d)(a), (__m256d)(b), (__m256d)(c))
#elif defined(__AVX2__)
#define FUSED(operation, a, b, c) (vreal) _mm256_##operation##_ps((__m256)(a), (__m256)(b), (__m256)(c))
#elif defined(__FMA__) && defined(COPES_TYPE_F64)
#define FUSED(operation, a, b, c) (vreal) _mm_##operation##_pd((__m128d)(a), (__m128d)(b), (__m128d)(c))
#elif defined(__FMA__)
#define FUSED(operation, a, b, c) (vreal) _mm_##operation##_ps((__m128)(a), (__m128)(b), (__m128)(c))
#elif defined(SVE256)
#define FUSED(operation, a, b, c)                                                                                      \
    (vreal)(sve_real) operation##_x(EVERY_LANE, (sve_real)(c), (sve_real)(a), (sve_real)(b))
#elif defined(COPES_TYPE_F64)
#define FUSED(operation, a, b, c) (vreal) operation##_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b))
#else
#define FUSED(operation, a, b, c) (vreal) operation##_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#endif

/* c + a b and c - a b, rounded once where the level fuses, else twice. Nothing else fuses: compilers are told not to
 * (-ffp-contract=off), as a product that a two-part sum has rounded must not come back unrounded in its second part. */
static ALWAYS_INLINE vreal vfma(vreal a, vreal b, vreal c)
{
#if !FUSES
    return c + a * b;
#elif defined(SVE256)
    return FUSED(svmla, a, b, c);
#elif defined(__aarch64__)
    return FUSED(vfmaq, a, b, c);
#else
    return FUSED(fmadd, a, b, c);
#endif
}

static ALWAYS_INLINE vreal vfnma(vreal a, vreal b, vreal c)
{
#if !FUSES
    return c - a * b;
#elif defined(SVE256)
    return FUSED(svmls, a, b, c);
#elif defined(__aarch64__)
    return FUSED(vfmsq, a, b, c);
#else
    return FUSED(fnmadd, a, b, c);
#endif
}

#undef FUSED

static ALWAYS_INLINE vint bits_of(vreal x)
{
    return (vint)x;
}

static ALWAYS_INLINE vreal real_of_bits(vint x)
{
    return (vreal)x;
}

/* Lanes of a where the mask is -1, of b where it is 0. Compilers make a blend of it. */
static ALWAYS_INLINE vreal vselect(vint mask, vreal a, vreal b)
{
    return (vreal)((mask & bits_of(a)) | (~mask & bits_of(b)));
}

static ALWAYS_INLINE vreal vabs(vreal x)
{
    return real_of_bits(bits_of(x) & ~bits_of(vset((real)-0.0)));
}

/* The larger lane, and the smaller; b where either is NaN. */
static ALWAYS_INLINE vreal vmax(vreal a, vreal b)
{
#if defined(__AVX512F__) && !defined(COPES_TYPE_F64)
    return (vreal)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && !defined(__AVX512F__) && !defined(COPES_TYPE_F64)
    return (vreal)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vselect(a > b, a, b);
#endif
}

static ALWAYS_INLINE vreal vmin(vreal a, vreal b)
{
#if defined(__AVX512F__) && !defined(COPES_TYPE_F64)
    return (vreal)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && !defined(__AVX512F__) && !defined(COPES_TYPE_F64)
    return (vreal)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vselect(a < b, a, b);
#endif
}

/* Is a lane of the mask -1? */
static ALWAYS_INLINE bool any_lane(vint mask)
{
#if defined(__AVX512F__) && defined(COPES_TYPE_F64)
    return _mm512_movepi64_mask((__m512i)mask) != 0;
#elif defined(__AVX512F__)
    return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8((__m256i)mask) != 0;
#elif defined(__SSE2__)
    return _mm_movemask_epi8((__m128i)mask) != 0;
#elif defined(SVE256)
    return svptest_any(EVERY_LANE, svcmpne(EVERY_LANE, (sve_integer)mask, (integer)0));
#elif defined(__aarch64__)
    return vmaxvq_u32((uint32x4_t)mask) != 0;
#else
    integer any = 0;
    for (int i = 0; i < LANES; i++)
        any |= mask[i];
    return any != 0;
#endif
}

/* Is a lane of x less than the bound? A mask of AVX-512 is none of its vectors, and compilers do not see through the way. */
static ALWAYS_INLINE bool any_below(vreal x, real bound)
{
#if defined(__AVX512F__) && defined(COPES_TYPE_F64)
    return _mm512_cmp_pd_mask((__m512d)x, (__m512d)vset(bound), _CMP_LT_OQ) != 0;
#elif defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)x, (__m512)vset(bound), _CMP_LT_OQ) != 0;
#else
    return any_lane(x < bound);
#endif
}

static ALWAYS_INLINE vreal load_real(const void *p)
{
    vreal v;
    memcpy(&v, p, sizeof v);
    return v;
}

static ALWAYS_INLINE void store_real(void *p, vreal v)
{
    memcpy(p, &v, sizeof v);
}

static ALWAYS_INLINE vpair load_real_pair(const real *p)
{
    return (vpair){load_real(p), load_real(p + LANES)};
}

static ALWAYS_INLINE void store_real_pair(real *p, vpair v)
{
    store_real(p, v.low);
    store_real(p + LANES, v.high);
}

/* Lanes summed, and the largest lane, always in the same order: halves folded onto each other. */
static ALWAYS_INLINE real sum_lanes(vreal v)
{
#if defined(__AVX512F__) && !defined(COPES_TYPE_F64)
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#elif defined(__AVX2__) && !defined(COPES_TYPE_F64)
    const __m256 half = (__m256)v;
#endif
#if defined(__AVX2__) && !defined(COPES_TYPE_F64)
    __m128 part = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    part = _mm_add_ps(part, _mm_movehl_ps(part, part));
    return _mm_cvtss_f32(_mm_add_ss(part, _mm_movehdup_ps(part)));
#elif defined(SVE256)
    return svaddv(EVERY_LANE, (sve_real)v);
#elif defined(__aarch64__) && defined(COPES_TYPE_F64)
    return vpaddd_f64((float64x2_t)v);
#elif defined(__aarch64__)
    return vpadds_f32(vadd_f32(vget_low_f32((float32x4_t)v), vget_high_f32((float32x4_t)v)));
#else
    real part[LANES];
    store_real(part, v);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            part[i] += part[i + width];
    return part[0];
#endif
}

static ALWAYS_INLINE real max_lanes(vreal v)
{
#if defined(__AVX512F__) && !defined(COPES_TYPE_F64)
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#elif defined(__AVX2__) && !defined(COPES_TYPE_F64)
    const __m256 half = (__m256)v;
#endif
#if defined(__AVX2__) && !defined(COPES_TYPE_F64)
    __m128 part = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    part = _mm_max_ps(part, _mm_movehl_ps(part, part));
    return _mm_cvtss_f32(_mm_max_ss(part, _mm_movehdup_ps(part)));
#elif defined(SVE256)
    return svmaxnmv(EVERY_LANE, (sve_real)v);
#elif defined(__aarch64__) && defined(COPES_TYPE_F64)
    return vmaxnmvq_f64((float64x2_t)v);
#elif defined(__aarch64__)
    return vmaxnmvq_f32((float32x4_t)v);
#else
    real most = v[0];
    for (int i = 1; i < LANES; i++)
        most = v[i] > most ? v[i] : most;
    return most;
#endif
}

/* Lanes 0, 2, 4 .. and 1, 3, 5 .. of a pair, and the way back. */
#if defined(__AVX512F__) && !defined(COPES_TYPE_F64)
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define ZIP_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX512F__) || (VECTOR_BYTES == 32 && !defined(COPES_TYPE_F64))
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#define ZIP_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#elif VECTOR_BYTES == 32 || !defined(COPES_TYPE_F64)
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#define ZIP_LOW 0, 4, 1, 5
#define ZIP_HIGH 2, 6, 3, 7
#else
#define EVEN 0, 2
#define ODD 1, 3
#define ZIP_LOW 0, 2
#define ZIP_HIGH 1, 3
#endif

static ALWAYS_INLINE vreal even_lanes(vpair v)
{
    return __builtin_shufflevector(v.low, v.high, EVEN);
}

static ALWAYS_INLINE vreal odd_lanes(vpair v)
{
    return __builtin_shufflevector(v.low, v.high, ODD);
}

static ALWAYS_INLINE vpair interleave_lanes(vreal even, vreal odd)
{
    return (vpair){__builtin_shufflevector(even, odd, ZIP_LOW), __builtin_shufflevector(even, odd, ZIP_HIGH)};
}

#undef EVEN
#undef ODD
#undef ZIP_LOW
#undef ZIP_HIGH

#include "backends/openmp/simd_storage.h"

#endif
