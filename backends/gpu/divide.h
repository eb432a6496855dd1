/* Division of an index by a number that is the same for a whole launch, as one multiplication. */
#ifndef COPES_BACKENDS_GPU_DIVIDE_H
#define COPES_BACKENDS_GPU_DIVIDE_H

#include "vendor.h"

namespace COPES_GPU
{

/* whole / part, rounded up, for a whole of 0 or more. */
constexpr int64_t divide_up(int64_t whole, int64_t part)
{
    return (whole + part - 1) / part;
}

/* For dividends below 2^31: Granlund and Montgomery, Division by invariant integers using multiplication (1994). */
struct divider {
    uint32_t divisor, multiplier, shift;

    divider() = default;
    explicit divider(int64_t by)
        : divisor((uint32_t)by), multiplier(0), shift(by > 1 ? 64 - (uint32_t)__builtin_clzll((uint64_t)by - 1) : 0)
    {
        const uint64_t one = 1;
        multiplier = (uint32_t)((one << 32) * ((one << shift) - divisor) / divisor + 1);
    }
};

DEVICE uint32_t operator/(uint32_t n, const divider &d)
{
    return (__umulhi(n, d.multiplier) + n) >> d.shift;
}

/* Splits n into quotient and remainder. */
DEVICE uint32_t divide(uint32_t n, const divider &d, uint32_t *rest)
{
    const uint32_t quotient = n / d;
    *rest = n - quotient * d.divisor;
    return quotient;
}

} // namespace COPES_GPU

#endif
