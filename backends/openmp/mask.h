/* Masks of one bit an element, the least significant bit of a byte first: from elements and back, on the bits of the storage type,
 * which compare as integers do. */
#ifndef COPES_BACKENDS_OPENMP_MASK_H
#define COPES_BACKENDS_OPENMP_MASK_H

#include "backends/openmp/rows.h"

#if defined(COPES_TYPE_F64)
typedef int64_t word;
#define INFINITE INT64_C(0x7ff0000000000000)
#elif defined(COPES_TYPE_F32)
typedef int32_t word;
#define INFINITE 0x7f800000
#elif defined(COPES_TYPE_F16)
typedef int16_t word;
#define INFINITE 0x7c00
#else
typedef int16_t word;
#define INFINITE 0x7f80
#endif

typedef word vwords __attribute__((vector_size(VECTOR_BYTES)));

/* Elements of a vector, and those of a step of a walk: whole bytes of the mask, and whole pairs. */
enum { WORDS = VECTOR_BYTES / (int)sizeof(word), STEP = PAIR < 8 ? 8 : PAIR };

/* Elements need not be aligned: of a pointer to them memcpy would take it that they are. */
static ALWAYS_INLINE void copy_elements(void *to, const void *from, int64_t count)
{
    memcpy(to, from, (size_t)count * sizeof(storage));
}

static ALWAYS_INLINE vwords load_words(const void *x)
{
    vwords v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* Lane i has bit i, of vectors that have no more lanes than a lane has bits. */
static ALWAYS_INLINE vwords bit_of_lane(void)
{
    vwords bits = {0};
    for (int i = 0; i < WORDS; i++)
        bits[i] = (word)(UINT64_C(1) << (i % 64));
    return bits;
}

/* A bit for each lane that is above 0; NaN is not. */
static ALWAYS_INLINE uint32_t bits_above_0(vwords x)
{
#if defined(__AVX512F__)
    const __m512i v = (__m512i)x, zero = _mm512_setzero_si512();
#if defined(COPES_TYPE_F64)
    return _mm512_mask_cmple_epi64_mask(_mm512_cmpgt_epi64_mask(v, zero), v, _mm512_set1_epi64(INFINITE));
#elif defined(COPES_TYPE_F32)
    return _mm512_mask_cmple_epi32_mask(_mm512_cmpgt_epi32_mask(v, zero), v, _mm512_set1_epi32(INFINITE));
#else
    return _mm512_mask_cmple_epi16_mask(_mm512_cmpgt_epi16_mask(v, zero), v, _mm512_set1_epi16(INFINITE));
#endif
#else
    const vwords above = (x > 0) & (x <= (word)INFINITE);
#if defined(__AVX2__) && defined(COPES_TYPE_F64)
    return (uint32_t)_mm256_movemask_pd((__m256d)above);
#elif defined(__AVX2__) && defined(COPES_TYPE_F32)
    return (uint32_t)_mm256_movemask_ps((__m256)above);
#elif defined(__AVX2__)
    const __m256i v = (__m256i)above;
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    return (uint32_t)_mm_movemask_epi8(bytes);
#elif defined(__SSE2__) && defined(COPES_TYPE_F64)
    return (uint32_t)_mm_movemask_pd((__m128d)above);
#elif defined(__SSE2__) && defined(COPES_TYPE_F32)
    return (uint32_t)_mm_movemask_ps((__m128)above);
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16((__m128i)above, _mm_setzero_si128()));
#elif defined(SVE256) && defined(COPES_TYPE_F64)
    return (uint32_t)svaddv_u64(svptrue_b64(), (sve_u64)(above & bit_of_lane()));
#elif defined(SVE256) && defined(COPES_TYPE_F32)
    return (uint32_t)svaddv_u32(svptrue_b32(), (sve_u32)(above & bit_of_lane()));
#elif defined(SVE256)
    return (uint32_t)svaddv_u16(svptrue_b16(), (sve_u16)(above & bit_of_lane()));
#elif defined(__aarch64__) && defined(COPES_TYPE_F64)
    return (uint32_t)vaddvq_u64((uint64x2_t)(above & bit_of_lane()));
#elif defined(__aarch64__) && defined(COPES_TYPE_F32)
    return vaddvq_u32((uint32x4_t)(above & bit_of_lane()));
#elif defined(__aarch64__)
    return vaddvq_u16((uint16x8_t)(above & bit_of_lane()));
#else
    uint32_t bits = 0;
    for (int i = 0; i < WORDS; i++)
        bits |= (uint32_t)(above[i] & 1) << i;
    return bits;
#endif
#endif
}

/* The lanes whose bit is 1, and zeros. At AVX-512 wide lanes by a vector: of a masked move compilers make a masked load, which
 * takes half as long again. */
static ALWAYS_INLINE vwords keep_lanes(uint32_t bits, vwords x)
{
#if defined(__AVX512F__) && defined(COPES_TYPE_F64)
    return x & (vwords)_mm512_movm_epi64((__mmask8)bits);
#elif defined(__AVX512F__) && defined(COPES_TYPE_F32)
    return x & (vwords)_mm512_movm_epi32((__mmask16)bits);
#elif defined(__AVX512F__)
    return (vwords)_mm512_maskz_mov_epi16((__mmask32)bits, (__m512i)x);
#else
    const vwords of_lane = bit_of_lane();
    return x & (((word)bits & of_lane) == of_lane);
#endif
}

/* Of the elements of a step. */
static ALWAYS_INLINE uint32_t bits_of_step(const storage *x)
{
    uint32_t bits = 0;
    for (int i = 0; i < STEP; i += WORDS)
        bits |= bits_above_0(load_words(x + i)) << i;
    return bits;
}

static ALWAYS_INLINE void keep_step(uint32_t bits, const storage *x, storage *o, bool stream)
{
    for (int i = 0; i < STEP; i += WORDS)
        store_bits(o + i, (vint)keep_lanes(bits >> i, load_words(x + i)), stream);
}

/* The bytes of `count` elements, which are no more than a step's. */
static ALWAYS_INLINE uint32_t read_mask(const uint8_t *mask, int64_t count)
{
    uint32_t bits = 0;
    for (int i = 0; 8 * i < count; i++)
        bits |= (uint32_t)mask[i] << (8 * i);
    return bits;
}

static ALWAYS_INLINE void write_mask(uint8_t *mask, uint32_t bits, int64_t count)
{
    for (int i = 0; 8 * i < count; i++)
        mask[i] = (uint8_t)(bits >> (8 * i));
}

#endif
