/* Exact phase: the angle p theta modulo one turn, without rounding the product. Plain C that C, CUDA and HIP compilers
 * take alike, so that every backend computes the same phase to the bit.
 *
 * theta's float32 value is m 2^e with a 24-bit integer m, and 1 / 2 pi is a string of bits. The turns per position,
 * frac(theta / 2 pi), are m times a window of that string: what lies above the window would only add whole turns. A
 * position then multiplies that fraction in integers, whose wrap-around is the modulo. The step has 96 bits: its error,
 * under 2^-96 turn, grows to under 2^-65 at |p| < 2^31, and the phase is cut to 64 bits. For any other position, and for one that is
 * a float32, whose value is an integer times a power of two as well, the product of the two integers takes theta's place. */
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

/* Words of 1 / 2 pi, most significant first, after five words of zeros: bit 0 of the fraction leads word 5. Bits to 384
 * reach the product of two of the largest floats. */
COPES_CONSTANT uint32_t copes_inverse_two_pi[] = {0,           0,           0,           0,           0,
                                                  0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u,
                                                  0x4f10e410u, 0x7f9458eau, 0xf7aef158u, 0x6dc91b8eu, 0x909374b8u,
                                                  0x01924bbau, 0x82746487u};

/* A float's magnitude as an integer times 2^exponent. */
typedef struct copes_binary {
    uint32_t integer;
    int exponent, negative;
} copes_binary;

COPES_FUNCTION copes_binary copes_binary_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const int exponent = (int)(bits >> 23 & 255);
    const copes_binary binary = {(bits & 0x7fffffu) | (exponent > 0 ? 0x800000u : 0),
                                 (exponent > 0 ? exponent : 1) - 150, (int)(bits >> 31)};
    return binary;
}

/* Word i of the 128 bits of 1 / 2 pi that begin at bit `exponent` of its fraction. */
COPES_FUNCTION uint32_t copes_window_word(int exponent, int i)
{
    const int first = exponent + 160, word = first / 32 + i, shift = first % 32;
    const uint64_t pair = (uint64_t)copes_inverse_two_pi[word] << 32 | copes_inverse_two_pi[word + 1];
    return (uint32_t)(pair << shift >> 32);
}

/* frac(theta / 2 pi). A theta that is not finite gives no meaningful step; see copes_phase_poison. */
COPES_FUNCTION copes_step copes_phase_step(float theta)
{
    const copes_binary binary = copes_binary_of(theta);
    uint64_t product[4], carry = 0;
    for (int i = 3; i >= 0; i--) { /* the integer times the 128 bits of the window, modulo 2^128 */
        carry += (uint64_t)binary.integer * copes_window_word(binary.exponent, i);
        product[i] = carry & 0xffffffffu;
        carry >>= 32;
    }
    copes_step step = {product[0] << 32 | product[1], (uint32_t)product[2]};
    if (binary.negative) { /* a negative theta turns the other way */
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

/* The phase of an integer of 96 bits, the lowest first, times 2^exponent radians, in units of 2^-64 turn, to 2^-63. */
COPES_FUNCTION uint64_t copes_phase_of(const uint32_t words[3], int exponent)
{
    uint64_t product[5] = {0, 0, 0, 0, 0};
    if (exponent < -160) /* below 2^-64 turn */
        return 0;
    for (int place = 0; place < 3; place++) { /* times the 160 bits of the window, modulo a turn */
        uint64_t carry = 0;
        for (int i = 4; i >= place; i--) {
            carry += (uint64_t)words[place] * copes_window_word(exponent, i) + product[i - place];
            product[i - place] = carry & 0xffffffffu;
            carry >>= 32;
        }
    }
    return product[0] << 32 | product[1];
}

/* The phase of position p, of any size, likewise. theta must be finite. */
COPES_FUNCTION uint64_t copes_phase_exactly(int64_t p, float theta)
{
    const copes_binary binary = copes_binary_of(theta);
    const uint64_t size = p < 0 ? 0 - (uint64_t)p : (uint64_t)p;
    const uint64_t low = (size & 0xffffffffu) * binary.integer, high = (size >> 32) * binary.integer + (low >> 32);
    const uint32_t words[3] = {(uint32_t)low, (uint32_t)high, (uint32_t)(high >> 32)};
    const uint64_t phase = copes_phase_of(words, binary.exponent);
    return (p < 0) != (binary.negative != 0) ? 0 - phase : phase;
}

/* The phase of a position that is a float32, likewise. Both must be finite. */
COPES_FUNCTION uint64_t copes_phase_product(float p, float theta)
{
    const copes_binary a = copes_binary_of(p), b = copes_binary_of(theta);
    const uint64_t both = (uint64_t)a.integer * b.integer;
    const uint32_t words[3] = {(uint32_t)both, (uint32_t)(both >> 32), 0};
    const uint64_t phase = copes_phase_of(words, a.exponent + b.exponent);
    return a.negative != b.negative ? 0 - phase : phase;
}

/* The same in units of 2^-32 turn, from a step's two leading words: as fine as float32 arithmetic has use for. */
COPES_FUNCTION uint32_t copes_phase_top(uint32_t high, uint32_t low, int32_t p)
{
    const uint32_t carry = (uint32_t)((uint64_t)(uint32_t)p * low >> 32);
    return (uint32_t)p * high + carry - (p < 0 ? low : 0);
}

#endif
