/* Loads and stores of the storage type: float and double as they are, bfloat16 by integer arithmetic, float16 by the
 * processor's conversions where it has them. Every store rounds once, to nearest even; NaN stays NaN. */
#ifndef COPES_BACKENDS_OPENMP_SIMD_STORAGE_H
#define COPES_BACKENDS_OPENMP_SIMD_STORAGE_H

#include "backends/openmp/simd.h"

/* Stores a vector's bytes, past the caches if asked to and the address allows. */
static ALWAYS_INLINE void store_bits(void *p, vint v, bool stream)
{
#ifdef __x86_64__
    if (stream && (uintptr_t)p % VECTOR_BYTES == 0) {
#if VECTOR_BYTES == 64
        _mm512_stream_si512((__m512i *)p, (__m512i)v);
#elif VECTOR_BYTES == 32
        _mm256_stream_si256((__m256i *)p, (__m256i)v);
#else
        _mm_stream_si128((__m128i *)p, (__m128i)v);
#endif
        return;
    }
    if (stream && (uintptr_t)p % 16 == 0) { /* where malloc leaves large arrays */
        for (int i = 0; i < VECTOR_BYTES; i += 16) {
            __m128i part;
            memcpy(&part, (const char *)&v + i, sizeof part);
            _mm_stream_si128((__m128i *)((char *)p + i), part);
        }
        return;
    }
#else
    (void)stream;
#endif
    memcpy(p, &v, sizeof v);
}

/* Streamed stores are weakly ordered: a kernel that made any ends with this. */
static ALWAYS_INLINE void finish_streaming(void)
{
#ifdef __x86_64__
    _mm_sfence();
#endif
}

#if defined(COPES_TYPE_F32) || defined(COPES_TYPE_F64)

static ALWAYS_INLINE vreal load_vector(const void *p)
{
    return load_real(p);
}

static ALWAYS_INLINE vpair load_pair(const void *p)
{
    return (vpair){load_real(p), load_real((const char *)p + VECTOR_BYTES)};
}

static ALWAYS_INLINE void store_pair(void *p, vpair v, bool stream)
{
    store_bits(p, bits_of(v.low), stream);
    store_bits((char *)p + VECTOR_BYTES, bits_of(v.high), stream);
}

static ALWAYS_INLINE void store_vector(void *p, vreal v)
{
    store_real(p, v);
}

static ALWAYS_INLINE real load_scalar(const void *p)
{
    real x;
    memcpy(&x, p, sizeof x);
    return x;
}

static ALWAYS_INLINE void store_scalar(void *p, real x)
{
    memcpy(p, &x, sizeof x);
}

#else

typedef uint16_t vhalf __attribute__((vector_size(VECTOR_BYTES / 2)));  /* the halves of one vreal */
typedef uint16_t vhalf_pair __attribute__((vector_size(VECTOR_BYTES))); /* of two */
typedef uint32_t vword __attribute__((vector_size(VECTOR_BYTES)));

#ifdef COPES_TYPE_BF16

static ALWAYS_INLINE vreal widen(vhalf h)
{
    return (vreal)(__builtin_convertvector(h, vword) << 16);
}

/* The upper 16 bits of a float rounded to nearest even, as 32-bit words. A NaN keeps its upper bits, made quiet. */
static ALWAYS_INLINE vword round_bf16(vreal x)
{
    const vword bits = (vword)x;
    const vword rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (vword)vselect(x == x, (vreal)rounded, (vreal)(bits | 0x400000)) >> 16;
}

static ALWAYS_INLINE vhalf narrow(vreal x)
{
    return __builtin_convertvector(round_bf16(x), vhalf);
}

static ALWAYS_INLINE vhalf_pair narrow_pair(vpair v)
{
    const vhalf low_half = narrow(v.low), high_half = narrow(v.high);
    vhalf_pair both;
    memcpy(&both, &low_half, sizeof low_half);
    memcpy((char *)&both + sizeof low_half, &high_half, sizeof high_half);
    return both;
}

static ALWAYS_INLINE bool any_nan(vpair v)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)v.low, (__m512)v.high, _CMP_UNORD_Q) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)v.low, (__m256)v.high, _CMP_UNORD_Q)) != 0;
#else
    (void)v;
    return true; /* blending is as cheap as looking */
#endif
}

/* Pairs of bfloat16 are kept split: the words of memory hold an even element in their lower half and the odd one after it
 * in their upper half, so a shift and a mask widen two vectors at once, and a shift and a blend narrow them. */
static ALWAYS_INLINE vpair load_split(const void *p)
{
    vword words;
    memcpy(&words, p, sizeof words);
    return (vpair){(vreal)(words << 16), (vreal)(words & 0xffff0000u)};
}

static ALWAYS_INLINE vword round_number(vreal x)
{
    const vword bits = (vword)x;
    return bits + 0x7fff + (bits >> 16 & 1);
}

static ALWAYS_INLINE void store_split(void *p, vpair v, bool stream)
{
#ifdef __AVX512BF16__
    /* The instruction takes denormals for zero: leave them to integers, should there be any. */
    enum { DENORMAL = 0x20 };
    if (__builtin_expect((_mm512_fpclass_ps_mask((__m512)v.low, DENORMAL) |
                          _mm512_fpclass_ps_mask((__m512)v.high, DENORMAL)) == 0,
                         1)) {
        const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                               6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh((__m512)v.high, (__m512)v.low);
        store_bits(p, (vint)_mm512_permutexvar_epi16(order, halves), stream);
        return;
    }
#endif
    if (__builtin_expect(any_nan(v), 0))
        store_bits(p, (vint)(round_bf16(v.low) | round_bf16(v.high) << 16), stream);
    else
        store_bits(p, (vint)(round_number(v.low) >> 16 | (round_number(v.high) & 0xffff0000u)), stream);
}

static ALWAYS_INLINE float widen_scalar(uint16_t h)
{
    const uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static ALWAYS_INLINE uint16_t narrow_scalar(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((x == x ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000) >> 16);
}

#else /* float16 */

#if defined(__F16C__) || defined(__ARM_FP16_FORMAT_IEEE)

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

#endif

static ALWAYS_INLINE vreal widen(vhalf h)
{
#if defined(__AVX512F__)
    return (vreal)_mm512_cvtph_ps((__m256i)h);
#elif defined(__F16C__)
    return (vreal)_mm256_cvtph_ps((__m128i)h);
#else
    vreal v;
    for (int i = 0; i < LANES; i++)
        v[i] = widen_scalar(h[i]);
    return v;
#endif
}

static ALWAYS_INLINE vhalf narrow(vreal x)
{
#if defined(__AVX512F__)
    return (vhalf)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    return (vhalf)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#else
    vhalf h;
    for (int i = 0; i < LANES; i++)
        h[i] = narrow_scalar(x[i]);
    return h;
#endif
}

static ALWAYS_INLINE vhalf_pair narrow_pair(vpair v)
{
    const vhalf low = narrow(v.low), high = narrow(v.high);
    vhalf_pair both;
    memcpy(&both, &low, sizeof low);
    memcpy((char *)&both + sizeof low, &high, sizeof high);
    return both;
}

#endif

static ALWAYS_INLINE vreal load_vector(const void *p)
{
    vhalf h;
    memcpy(&h, p, sizeof h);
    return widen(h);
}

static ALWAYS_INLINE vpair load_pair(const void *p)
{
    return (vpair){load_vector(p), load_vector((const char *)p + VECTOR_BYTES / 2)};
}

static ALWAYS_INLINE void store_pair(void *p, vpair v, bool stream)
{
    store_bits(p, (vint)narrow_pair(v), stream);
}

static ALWAYS_INLINE void store_vector(void *p, vreal v)
{
    const vhalf h = narrow(v);
    memcpy(p, &h, sizeof h);
}

static ALWAYS_INLINE real load_scalar(const void *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return widen_scalar(h);
}

static ALWAYS_INLINE void store_scalar(void *p, real x)
{
    const uint16_t h = narrow_scalar(x);
    memcpy(p, &h, sizeof h);
}

#endif

/* The order in which a pair of vectors from load_split holds neighbours: as they are, or, for bfloat16, the even ones first. */
#ifdef COPES_TYPE_BF16

static ALWAYS_INLINE int64_t split_place(int64_t i)
{
    const int64_t lane = i % (2 * LANES);
    return i - lane + (lane % 2 == 0 ? lane / 2 : LANES + lane / 2);
}

static ALWAYS_INLINE vpair split_of(vpair natural)
{
    return (vpair){even_lanes(natural), odd_lanes(natural)};
}

static ALWAYS_INLINE vpair evens_and_odds(vpair split)
{
    return split;
}

static ALWAYS_INLINE vpair split_of_evens_and_odds(vpair v)
{
    return v;
}

#else

static ALWAYS_INLINE vpair load_split(const void *p)
{
    return load_pair(p);
}

static ALWAYS_INLINE void store_split(void *p, vpair v, bool stream)
{
    store_pair(p, v, stream);
}

static ALWAYS_INLINE int64_t split_place(int64_t i)
{
    return i;
}

static ALWAYS_INLINE vpair split_of(vpair natural)
{
    return natural;
}

static ALWAYS_INLINE vpair evens_and_odds(vpair split)
{
    return (vpair){even_lanes(split), odd_lanes(split)};
}

static ALWAYS_INLINE vpair split_of_evens_and_odds(vpair v)
{
    return interleave_lanes(v.low, v.high);
}

#endif

#endif
