/* The arithmetic of RDNA3 that tinygrad's emulator has only about right: approximate instructions, which are off by as much as
 * the manuals allow, rounding, and conversions to integers. */
#include <math.h>
#include <stdint.h>
#include <string.h>

static int ulps;

void set_ulps(int most)
{
    ulps = most;
}

static float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* The result of an approximate instruction: either neighbour of the exact one, as a hash of the argument says, and for more
 * than one ulp so many further on. Subnormal results are 0. (The nearest moved by 1 would be 1.5 off, more than the manuals
 * promise, and LLVM's integer division by v_rcp_iflag_f32 then fails.) */
static float moved(double exact, float argument)
{
    const float nearest = (float)exact;
    if (fabs(exact) < 0x1p-126)
        return copysignf(0, nearest);
    if (ulps == 0 || !isfinite(nearest) || nearest == 0)
        return nearest;
    uint32_t hash;
    memcpy(&hash, &argument, sizeof hash);
    hash *= 2654435761u;
    hash ^= hash >> 15;
    hash *= 2246822519u;
    hash ^= hash >> 13;
    const float away = (double)nearest < exact ? INFINITY : -INFINITY;
    const float other = (double)nearest == exact ? nearest : nextafterf(nearest, away);
    float result = hash & 1 ? other : nearest;
    const float further = result == other ? away : -away;
    for (int by = 1; by < ulps; by++)
        result = nextafterf(result, further);
    return result;
}

float approximate_exp2(float x)
{
    return isnan(x) ? x : moved(exp2((double)flushed(x)), x);
}

float approximate_rcp(float x)
{
    return isnan(x) ? x : moved(1 / (double)flushed(x), x);
}

float approximate_sqrt(float x)
{
    return isnan(x) || x < 0 ? NAN : moved(sqrt((double)flushed(x)), x);
}

float approximate_rsq(float x)
{
    return isnan(x) || x < 0 ? NAN : moved(1 / sqrt((double)flushed(x)), x);
}

float approximate_log2(float x)
{
    return isnan(x) || x < 0 ? NAN : moved(log2((double)flushed(x)), x);
}

float round_to_even(float x)
{
    return rintf(x);
}

float scale_by_power(float x, int32_t exponent)
{
    return ldexpf(x, exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent);
}

int32_t to_int(float x)
{
    return isnan(x) ? 0 : x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int32_t)x;
}

uint32_t to_unsigned(float x)
{
    return !(x > 0) ? 0 : x >= 0x1p32f ? UINT32_MAX : (uint32_t)x;
}
