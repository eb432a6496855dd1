/* bfloat16 as vectors of floats, by integer arithmetic, or by the processor's rounding where it has it. */
#ifndef COPES_BACKENDS_OPENMP_SIMD_BF16_H
#define COPES_BACKENDS_OPENMP_SIMD_BF16_H

#include "backends/openmp/simd_half.h"
#include "backends/openmp/simd_stream.h"

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
#ifdef SVE256
    return (vhalf)(sve_u32)svreinterpret_u32_bf16(svcvt_bf16_f32_x(svptrue_b32(), (sve_f32)x));
#else
    return __builtin_convertvector(round_bf16(x), vhalf);
#endif
}

/* Pairs of bfloat16 are kept split: the words of memory hold an even element in their lower half and the odd one after
 * it in their upper half, so a shift and a mask widen two vectors at once, and a shift and a blend narrow them. */
static ALWAYS_INLINE vpair load_split(const void *p)
{
    vword words;
    memcpy(&words, p, sizeof words);
    return (vpair){(vreal)(words << 16), (vreal)(words & 0xffff0000u)};
}

static SELDOM void store_split_of_any(void *p, vreal low, vreal high, bool stream)
{
    store_bits(p, (vint)(round_bf16(low) | round_bf16(high) << 16), stream);
}

#if defined(SVE256)

static ALWAYS_INLINE vint round_split(vpair v)
{
    const svbfloat16_t low = svcvt_bf16_f32_x(svptrue_b32(), (sve_f32)v.low);
    return (vint)(sve_s32)svreinterpret_s32_bf16(svcvtnt_bf16_f32_x(low, svptrue_b32(), (sve_f32)v.high));
}

#elif defined(__AVX512BF16__)

/* The instruction takes denormals for zero: they are left to integers, should there be any. */
static ALWAYS_INLINE bool rounds_quickly(vpair v)
{
    enum { DENORMAL = 0x20 };
    return _kortestz_mask16_u8(_mm512_fpclass_ps_mask((__m512)v.low, DENORMAL),
                               _mm512_fpclass_ps_mask((__m512)v.high, DENORMAL));
}

static ALWAYS_INLINE vint round_quickly(vpair v)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (vint)_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh((__m512)v.high, (__m512)v.low));
}

#elif defined(__AVX512F__)

static ALWAYS_INLINE bool rounds_quickly(vpair v)
{
    return _mm512_cmp_ps_mask((__m512)v.low, (__m512)v.high, _CMP_UNORD_Q) == 0; /* no NaN */
}

static ALWAYS_INLINE vword round_number(vreal x)
{
    const vword bits = (vword)x;
    return bits + 0x7fff + (bits >> 16 & 1);
}

static ALWAYS_INLINE vint round_quickly(vpair v)
{
    return (vint)(round_number(v.low) >> 16 | (round_number(v.high) & 0xffff0000u));
}

#elif defined(__AVX2__)

static ALWAYS_INLINE bool rounds_quickly(vpair v)
{
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)v.low, (__m256)v.high, _CMP_UNORD_Q)) == 0; /* no NaN */
}

static ALWAYS_INLINE vint round_quickly(vpair v)
{
    const __m256i low = (__m256i)v.low, high = (__m256i)v.high;
    const __m256i upper = _mm256_blend_epi16(_mm256_srli_epi32(low, 16), high, 0xaa);
    const __m256i lower = _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
    const __m256i even = _mm256_andnot_si256(upper, _mm256_set1_epi16(1)); /* half an ulp beside it rounds down */
    return (vint)_mm256_add_epi16(upper, _mm256_srli_epi16(_mm256_subs_epu16(lower, even), 15));
}

#elif defined(__aarch64__)

static ALWAYS_INLINE bool rounds_quickly(vpair v)
{
    const float any = vmaxvq_f32((float32x4_t)(v.low + v.high)); /* NaN if a lane is, or if infinities cancel */
    return any == any;
}

static ALWAYS_INLINE uint32x4_t round_number(vreal x)
{
    const uint32x4_t bits = (uint32x4_t)x;
    return vsraq_n_u32(bits + 0x7fff, vshlq_n_u32(bits, 15), 31);
}

static ALWAYS_INLINE vint round_quickly(vpair v)
{
    return (vint)vsriq_n_u32(round_number(v.high), round_number(v.low), 16);
}

#endif

static ALWAYS_INLINE void store_split(void *p, vpair v, bool stream)
{
#if defined(SVE256)
    store_bits(p, round_split(v), stream);
#elif defined(__AVX2__) || defined(__aarch64__)
    if (__builtin_expect(rounds_quickly(v), 1))
        store_bits(p, round_quickly(v), stream);
    else
        store_split_of_any(p, v.low, v.high, stream);
#else
    store_bits(p, (vint)(round_bf16(v.low) | round_bf16(v.high) << 16), stream); /* as cheap as looking for NaN */
#endif
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

#endif
