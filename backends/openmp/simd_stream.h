/* Stores that go past the caches. */
#ifndef COPES_BACKENDS_OPENMP_SIMD_STREAM_H
#define COPES_BACKENDS_OPENMP_SIMD_STREAM_H

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

#endif
