/* The oracle's angle reduction: p theta is an integer times a power of two, and the bits of 1 / (2 pi) that can reach
 * the fraction of a turn are picked by that power and multiplied in 128-bit integers. */
#include "tests/oracle/oracle.h"

#include <math.h>

__extension__ typedef unsigned __int128 wide;
__extension__ typedef __int128 signed_wide;

/* 1 / (2 pi), 448 bits after the binary point. */
static const uint64_t inverse_turn[7] = {0x28be60db9391054aU, 0x7f09d5f47d4d3770U, 0x36d8a5664f10e410U,
                                         0x7f9458eaf7aef158U, 0x6dc91b8e909374b8U, 0x01924bba82746487U,
                                         0x3f877ac72c4a69cfU};

static const long double turn = 6.283185307179586476925286766559005768L;

/* Bits first + 1 .. first + 64 after the binary point of 1 / (2 pi). */
static uint64_t bits_after(int first)
{
    int word = first / 64, shift = first % 64;
    return shift == 0 ? inverse_turn[word] : inverse_turn[word] << shift | inverse_turn[word + 1] >> (64 - shift);
}

/* The fraction of 2^exponent / (2 pi), in units of 2^-128, cut. */
static wide fraction_of(int exponent)
{
    if (exponent >= 0) {
        return (wide)bits_after(exponent) << 64 | bits_after(exponent + 64);
    }
    wide all = (wide)inverse_turn[0] << 64 | inverse_turn[1];
    return exponent <= -128 ? 0 : all >> -exponent;
}

/* integer 2^exponent radians, for an integer of at most 55 bits. */
static long double reduced(int64_t integer, int exponent)
{
    long double plain = ldexpl((long double)integer, exponent); /* exact: a long double holds 64 bits */
    if (fabsl(plain) <= 0.5L) {
        return plain;
    }
    wide magnitude = (wide)(integer < 0 ? -integer : integer) * fraction_of(exponent);
    long double turns = ldexpl((long double)(signed_wide)magnitude, -128);
    return (integer < 0 ? -turns : turns) * turn;
}

/* A finite value as an integer of 24 bits times 2^exponent. */
static int64_t significand(float value, int *exponent)
{
    int64_t integer = (int64_t)ldexp(frexp((double)value, exponent), 24);
    *exponent -= 24;
    return integer;
}

long double oracle_angle(int64_t p, float theta)
{
    if (!isfinite(theta)) {
        return (long double)NAN;
    }
    int exponent;
    int64_t integer = significand(theta, &exponent), low = p % (1LL << 31), high = p / (1LL << 31);
    long double lower = reduced(low * integer, exponent);
    if (high == 0) {
        return lower;
    }
    long double upper = reduced(high % (1LL << 31) * integer, exponent + 31);
    long double top = high / (1LL << 31) == 0 ? 0 : reduced(high / (1LL << 31) * integer, exponent + 62);
    return remainderl(lower + upper + top, turn);
}

long double oracle_angle_of_float(float p, float theta)
{
    if (!isfinite(p) || !isfinite(theta)) {
        return (long double)NAN;
    }
    int exponent, more;
    int64_t integer = significand(theta, &exponent), other = significand(p, &more);
    return reduced(integer * other, exponent + more);
}
