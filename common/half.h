/* A half-precision value widened to float32, in plain C: for the few values that are read one at a time. */
#ifndef COPES_COMMON_HALF_H
#define COPES_COMMON_HALF_H

#include "common/problem.h"

#include <string.h>

static inline float copes_float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float copes_float16_widen(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) /* inf and NaN */
        return copes_float_from_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest >= 0x400u)
        return copes_float_from_bits(sign | ((rest << 13) + ((127u - 15u) << 23)));
    const float magnitude = (float)rest * 0x1p-24f; /* denormal or zero: a multiple of 2^-24 */
    return sign != 0 ? -magnitude : magnitude;
}

/* The value of type `dtype`, float32, float16 or bfloat16, at an address of any alignment. */
static inline float copes_load_narrow(copes_dtype dtype, const void *address)
{
    uint32_t word;
    uint16_t half;
    if (dtype == COPES_F32) {
        memcpy(&word, address, sizeof word);
        return copes_float_from_bits(word);
    }
    memcpy(&half, address, sizeof half);
    return dtype == COPES_F16 ? copes_float16_widen(half) : copes_float_from_bits((uint32_t)half << 16);
}

#endif
