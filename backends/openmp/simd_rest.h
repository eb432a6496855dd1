/* What is left at a row's end, fewer elements than a pair of vectors has, in a buffer of PAIR. Masks, where the level has them, leave no
 * buffer in memory. */
#ifndef COPES_BACKENDS_OPENMP_SIMD_REST_H
#define COPES_BACKENDS_OPENMP_SIMD_REST_H

#include "backends/openmp/simd.h"

enum { PAIR = 2 * LANES };

#if defined(__AVX512F__) || defined(SVE256)
#define MASKS 1
#else
#define MASKS 0
#endif

/* Are n elements all in the first vector of a pair? */
static ALWAYS_INLINE bool first_is_all(int64_t n)
{
    return split_place(1) == 1 && n <= LANES;
}

#ifdef SVE256

static ALWAYS_INLINE svbool_t mask_of(int64_t i, int64_t n)
{
#if defined(STORES_HALF)
    return svwhilelt_b16(i, n);
#elif defined(COPES_TYPE_F64)
    return svwhilelt_b64(i, n);
#else
    return svwhilelt_b32(i, n);
#endif
}

/* The first n of PAIR elements, and `fill` for the others. */
static ALWAYS_INLINE void read_masked(storage *to, const storage *from, int64_t n, storage fill)
{
    storage fills[PAIR];
    for (int i = 0; i < PAIR; i++)
        fills[i] = fill;
    for (int64_t i = 0; i < PAIR; i += VECTOR_BYTES / (int64_t)sizeof(storage)) {
        const svbool_t mask = mask_of(i, n);
        svst1(svptrue_b8(), to + i, svsel(mask, svld1(mask, from + i), svld1(svptrue_b8(), fills + i)));
    }
}

static ALWAYS_INLINE void write_masked(storage *to, const storage *from, int64_t n)
{
    for (int64_t i = 0; i < PAIR; i += VECTOR_BYTES / (int64_t)sizeof(storage))
        svst1(mask_of(i, n), to + i, svld1(mask_of(i, n), from + i));
}

#elif MASKS

/* Likewise. */
static ALWAYS_INLINE void read_masked(storage *to, const storage *from, int64_t n, storage fill)
{
    const uint32_t mask = (uint32_t)((UINT64_C(1) << n) - 1);
#ifdef STORES_HALF
    _mm512_storeu_si512(to, _mm512_mask_loadu_epi16(_mm512_set1_epi16((int16_t)fill), mask, from));
#else
    for (int i = 0; i < PAIR; i += LANES) {
#ifdef COPES_TYPE_F64
        _mm512_storeu_pd(to + i, _mm512_mask_loadu_pd(_mm512_set1_pd(fill), (__mmask8)(mask >> i), from + i));
#else
        _mm512_storeu_ps(to + i, _mm512_mask_loadu_ps(_mm512_set1_ps(fill), (__mmask16)(mask >> i), from + i));
#endif
    }
#endif
}

static ALWAYS_INLINE void write_masked(storage *to, const storage *from, int64_t n)
{
    const uint32_t mask = (uint32_t)((UINT64_C(1) << n) - 1);
#ifdef STORES_HALF
    _mm512_mask_storeu_epi16(to, mask, _mm512_loadu_si512(from));
#else
    for (int i = 0; i < PAIR; i += LANES) {
#ifdef COPES_TYPE_F64
        _mm512_mask_storeu_pd(to + i, (__mmask8)(mask >> i), _mm512_loadu_pd(from + i));
#else
        _mm512_mask_storeu_ps(to + i, (__mmask16)(mask >> i), _mm512_loadu_ps(from + i));
#endif
    }
#endif
}

#else

/* Copies n elements, fewer than PAIR: by pieces, as a call takes longer. */
static ALWAYS_INLINE void copy_few(void *to, const void *from, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof(storage);
    size_t done = 0;
#pragma GCC unroll 8
    for (size_t size = PAIR / 2 * sizeof(storage); size >= sizeof(storage); size /= 2)
        if (bytes & size) {
            memcpy((char *)to + done, (const char *)from + done, size);
            done += size;
        }
}

#endif

/* Between a row and a buffer of PAIR elements: after the first n it has `fill`, or zeros where a level has no masks. */
static ALWAYS_INLINE void read_rest(storage *part, const storage *row, int64_t n, storage fill)
{
#if MASKS
    read_masked(part, row, n, fill);
#elif defined(__AVX2__)
    (void)fill;
    const int32_t words = (int32_t)(n * (int64_t)sizeof *row / 4); /* pieces would wait to be read back as one */
    for (int i = 0; i < PAIR * (int)sizeof *row / 4; i += 8) {
        const __m256i mask =
            _mm256_cmpgt_epi32(_mm256_set1_epi32(words - i), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        const __m256i v = _mm256_maskload_epi32((const int *)((const char *)row + (int64_t)4 * i), mask);
        memcpy((char *)part + (int64_t)4 * i, &v, sizeof v);
    }
    if (n * (int64_t)sizeof *row % 4 != 0)
        memcpy(part + n - 1, (const char *)row + (n - 1) * (int64_t)sizeof *row, sizeof *row);
#else
    (void)fill;
    memset(part, 0, PAIR * sizeof *part);
    copy_few(part, row, n);
#endif
}

static ALWAYS_INLINE void write_rest(storage *row, const storage *part, int64_t n)
{
#if MASKS
    write_masked(row, part, n);
#else
    copy_few(row, part, n);
#endif
}

#endif
