/* float8_e4m3fn (Micikevicius et al. 2022, "FP8 formats for deep learning"): a sign, 4 bits of exponent with bias 7, 3 bits of
 * fraction; no infinity, and one NaN. Plain C that C, CUDA and HIP compilers take alike, so that every backend stores the same
 * bits. */
#ifndef COPES_COMMON_FLOAT8_H
#define COPES_COMMON_FLOAT8_H

#ifndef COPES_FUNCTION /* a GPU compiler's build defines it as static inline with its own qualifiers */
#define COPES_FUNCTION static inline
#endif

#include <stdint.h>
#include <string.h>

/* The nearest number, ties to even. What is past 448, the largest one, becomes 448 with its sign. Every case is computed, so that
 * a compiler can do it for the lanes of a vector. */
COPES_FUNCTION uint8_t copes_float8_of(float value)
{
    const uint32_t largest = 0x43e00000u, smallest_normal = 0x3c800000u; /* 448 and 2^-6 */
    uint32_t bits, small;
    float magnitude;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    memcpy(&magnitude, &size, sizeof magnitude);
    magnitude += 0x1p14f; /* the last bit of the sum is worth 2^-9, the smallest number */
    memcpy(&small, &magnitude, sizeof small);
    const uint32_t rounded = size + 0x7ffffu + (size >> 20 & 1u); /* a carry goes on to the exponent, as it must */
    const uint32_t number = size >= largest          ? 0x7eu
                            : size < smallest_normal ? small & 0xfu
                                                     : (rounded >> 20) - (120u << 3);
    return (uint8_t)(size > 0x7f800000u ? 0x7fu : sign | number);
}

/* Four of them, the first in the lowest byte. */
COPES_FUNCTION uint32_t copes_float8_word(const float value[4])
{
    uint32_t word = 0;
    for (int i = 0; i < 4; i++)
        word |= (uint32_t)copes_float8_of(value[i]) << 8 * i;
    return word;
}

#endif
