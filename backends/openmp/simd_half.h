/* Vectors of 16-bit elements. */
#ifndef COPES_BACKENDS_OPENMP_SIMD_HALF_H
#define COPES_BACKENDS_OPENMP_SIMD_HALF_H

#include "backends/openmp/simd.h"

typedef uint32_t vword __attribute__((vector_size(VECTOR_BYTES)));

/* The halves of one vreal. SVE reads and writes them as the lower halves of words. */
#ifdef SVE256
typedef vword vhalf;
#else
typedef uint16_t vhalf __attribute__((vector_size(VECTOR_BYTES / 2)));
#endif

static ALWAYS_INLINE vhalf load_halves(const void *p)
{
#ifdef SVE256
    return (vhalf)(sve_u32)svld1uh_u32(svptrue_b32(), p);
#else
    vhalf h;
    memcpy(&h, p, sizeof h);
    return h;
#endif
}

static ALWAYS_INLINE void store_halves(void *p, vhalf h)
{
#ifdef SVE256
    svst1h_u32(svptrue_b32(), p, (sve_u32)h);
#else
    memcpy(p, &h, sizeof h);
#endif
}

/* In registers: by way of memory the vector would be read before its halves are written there. */
static ALWAYS_INLINE vint join_halves(vhalf low, vhalf high)
{
#if VECTOR_BYTES == 64
    return (vint)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)low), (__m256i)high, 1);
#elif defined(SVE256)
    return (vint)(sve_u16)svuzp1_u16((sve_u16)low, (sve_u16)high);
#elif VECTOR_BYTES == 32
    return (vint)_mm256_set_m128i((__m128i)high, (__m128i)low);
#elif defined(__aarch64__)
    return (vint)vcombine_u16((uint16x4_t)low, (uint16x4_t)high);
#else
    typedef int64_t vlong __attribute__((vector_size(VECTOR_BYTES)));
    return (vint)(vlong){(int64_t)low, (int64_t)high};
#endif
}

#endif
