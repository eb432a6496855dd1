/* Exact phase: the angle p theta modulo one turn, without rounding the product. Plain C that C, CUDA and HIP compilers
 * take alike, so that every backend computes the same phase to the bit.
 *
 * theta's float32 value is m 2^e with a 24-bit integer m, and 1 / 2 pi is a string of bits. The turns per position,
 * frac(theta / 2 pi), are m times a window of that string: what lies above the window would only add whole turns. A
 * position then multiplies that fraction in integers, whose wrap-around is the modulo. The step has 96 bits: its error,
 * under 2^-96 turn, grows to under 2^-65 at |p| < 2^31, and the phase is cut to 64 bits. */
#ifndef COPES_COMMON_PHASE_H
#define COPES_COMMON_PHASE_H

#ifndef COPES_FUNCTION /* a GPU compiler's build defines it as static inline with its own qualifiers */
#define COPES_FUNCTION static inline
#define COPES_CONSTANT static const
#endif

#include <stdint.h>
#include <string.h>

/* Turns per position: high / 2^64 + low / 2^96, in [0, 1). */
typedef struct copes_step {
    uint64_t high;
    uint32_t low;
} copes_step;

/* Words of 1 / 2 pi, most significant first, after five words of zeros: bit 0 of the fraction leads word 5. Bits to 256
 * reach the largest float. */
COPES_CONSTANT uint32_t copes_inverse_two_pi[] = {0,           0,           0,           0,           0,
                                                  0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u,
                                                  0x4f10e410u, 0x7f9458eau, 0xf7aef158u};

/* frac(theta / 2 pi). A theta that is not finite gives no meaningful step; see copes_phase_poison. */
COPES_FUNCTION copes_step copes_phase_step(float theta)
{
    uint32_t bits;
    memcpy(&bits, &theta, sizeof bits);
    const int exponent = (int)(bits >> 23 & 255);
    const uint64_t mantissa = (bits & 0x7fffffu) | (exponent > 0 ? 0x800000u : 0);
    const int first = (exponent > 0 ? exponent : 1) - 150 + 160; /* the window's first bit, counted from word 0 */
    uint64_t product[4], carry = 0;
    for (int i = 3; i >= 0; i--) { /* mantissa times the 128 bits of the window, modulo 2^128 */
        const int word = first / 32 + i, shift = first % 32;
        const uint64_t pair = (uint64_t)copes_inverse_two_pi[word] << 32 | copes_inverse_two_pi[word + 1];
        carry += mantissa * (uint32_t)(pair << shift >> 32);
        product[i] = carry & 0xffffffffu;
        carry >>= 32;
    }
    copes_step step = {product[0] << 32 | product[1], (uint32_t)product[2]};
    if (bits >> 31) { /* a negative theta turns the other way */
        step.low = 0u - step.low;
        step.high = 0u - step.high - (step.low != 0);
    }
    return step;
}

/* 0 where theta is finite, else NaN: added to a sine or cosine it lets a bad theta show. */
COPES_FUNCTION float copes_phase_poison(float theta)
{
    return theta - theta;
}

/* The phase of position p in units of 2^-64 turn, wrapping; |p| < 2^31. */
COPES_FUNCTION uint64_t copes_phase(copes_step step, int64_t p)
{
    const int64_t low = p * (int64_t)step.low >> 32; /* rounds down, also for negative p */
    return (uint64_t)p * step.high + (uint64_t)low;
}

/* The same in units of 2^-32 turn, from a step's two leading words: as fine as float32 arithmetic has use for. */
COPES_FUNCTION uint32_t copes_phase_top(uint32_t high, uint32_t low, int32_t p)
{
    const uint32_t carry = (uint32_t)((uint64_t)(uint32_t)p * low >> 32);
    return (uint32_t)p * high + carry - (p < 0 ? low : 0);
}

#endif
