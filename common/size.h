/* Sizes are user input: a tensor with strides of 0 has lengths that no memory bounds. What does not fit 63 bits is -1, and
 * stays so through every further product and sum, so that one look at the end tells. */
#ifndef COPES_COMMON_SIZE_H
#define COPES_COMMON_SIZE_H

#include <stdint.h>

/* a * b, or -1 where it does not fit or a factor is -1; for factors of 0 and more. */
static inline int64_t copes_multiply(int64_t a, int64_t b)
{
    int64_t result;
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result) ? -1 : result;
}

/* a + b, likewise. */
static inline int64_t copes_add(int64_t a, int64_t b)
{
    int64_t result;
    return a < 0 || b < 0 || __builtin_add_overflow(a, b, &result) ? -1 : result;
}

#endif
