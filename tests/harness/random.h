/* splitmix64: random numbers that are the same everywhere, so that a seed repeats a case. */
#ifndef COPES_TESTS_HARNESS_RANDOM_H
#define COPES_TESTS_HARNESS_RANDOM_H

#include <stdint.h>
#include <string.h>

static inline uint64_t check_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* From 0 to below `bound`. */
static inline int64_t check_below(uint64_t *state, int64_t bound)
{
    return (int64_t)(check_random(state) % (uint64_t)bound);
}

/* From 0 to below 1. */
static inline double check_uniform(uint64_t *state)
{
    return (double)(check_random(state) >> 11) * 0x1p-53;
}

/* Any finite float32, by its bits. */
static inline float check_random_float(uint64_t *state)
{
    uint32_t bits = (uint32_t)check_random(state);
    float value;
    bits = (bits >> 23 & 255) == 255 ? bits ^ 1U << 30 : bits;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
