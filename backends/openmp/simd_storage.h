/* Loads and stores of the storage type. Every store rounds once, to nearest even; NaN stays NaN. */
#ifndef COPES_BACKENDS_OPENMP_SIMD_STORAGE_H
#define COPES_BACKENDS_OPENMP_SIMD_STORAGE_H

#include "backends/openmp/simd_stream.h"

#ifdef COPES_TYPE_BF16
#include "backends/openmp/simd_bf16.h"
#elif defined(COPES_TYPE_F16)
#include "backends/openmp/simd_f16.h"
#endif

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

static ALWAYS_INLINE vreal load_vector(const void *p)
{
    return widen(load_halves(p));
}

static ALWAYS_INLINE vpair load_pair(const void *p)
{
    return (vpair){load_vector(p), load_vector((const char *)p + VECTOR_BYTES / 2)};
}

static ALWAYS_INLINE void store_pair(void *p, vpair v, bool stream)
{
    store_bits(p, join_halves(narrow(v.low), narrow(v.high)), stream);
}

static ALWAYS_INLINE void store_vector(void *p, vreal v)
{
    store_halves(p, narrow(v));
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

/* A pair of vectors from load_split holds neighbours in an order of its own, which is the natural one but for
 * bfloat16. */
#ifndef COPES_TYPE_BF16

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
