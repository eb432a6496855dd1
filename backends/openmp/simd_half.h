/* Vectors of 16-bit elements. */
#ifndef COPES_BACKENDS_OPENMP_SIMD_HALF_H
#define COPES_BACKENDS_OPENMP_SIMD_HALF_H

#include "backends/openmp/simd.h"

typedef uint16_t vhalf __attribute__((vector_size(VECTOR_BYTES / 2))); /* the halves of one vreal */
typedef uint32_t vword __attribute__((vector_size(VECTOR_BYTES)));

/* In registers: by way of memory the vector would be read before its halves are written there. */
static ALWAYS_INLINE vint join_halves(vhalf low, vhalf high)
{
#if VECTOR_BYTES == 64
    return (vint)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)low), (__m256i)high, 1);
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
