/* Numbers of tpa_decode as tensor cores take them: a query in parts that add up to it, since one part of 8 or 11 bits would
 * put percents on a probability. bf16 takes two, for scores to 2^-17, and a third where lse is wanted, which shows more;
 * f16 takes two, and float32 three of bf16. */
#ifndef COPES_BACKENDS_CUDA_TPA_PARTS_H
#define COPES_BACKENDS_CUDA_TPA_PARTS_H

#include "backends/gpu/storage.h"

namespace COPES_GPU::tpa
{

template <typename T> inline constexpr bool is_half = storage<T>::dtype == COPES_F16;
template <typename T> inline constexpr bool is_single = storage<T>::dtype == COPES_F32;

/* Where a lane stands in operands and results: lane 4 g + t has of each 8 x 8 elements row g and columns 2t, 2t + 1. */
struct lane_place {
    int lane, g, t;
};

DEVICE lane_place place_of_lane()
{
    const int lane = threadIdx.x % 32;
    return {lane, lane / 4, lane % 4};
}

template <typename T> __host__ __device__ constexpr int parts_of_query(bool lse)
{
    return is_single<T> || (!is_half<T> && lse) ? 3 : 2;
}

/* Rounds a pair and leaves what is lost, which is NaN of an infinity. */
template <typename T> DEVICE uint32_t take_finite_pair(float *pair)
{
    float rounded[2];
    const uint32_t word = storage<T>::pack(pair);
    storage<T>::unpack(word, rounded);
    for (int i = 0; i < 2; i++)
        pair[i] -= rounded[i];
    return word;
}

/* The same, but an infinity loses nothing. */
template <typename T> DEVICE uint32_t take_pair(float *pair)
{
    const uint32_t word = take_finite_pair<T>(pair);
    for (int i = 0; i < 2; i++)
        pair[i] = pair[i] == pair[i] ? pair[i] : 0;
    return word;
}

/* The same for a query of float32 in bfloat16, whose infinities are in its last part, and 0 in others: that part alone
 * meets nothing but the high parts of keys, while the low ones may be 0, or of the other sign, and make NaN of them. */
DEVICE uint32_t take_query_pair(float *pair, bool last)
{
    float finite[2];
    for (int i = 0; i < 2; i++)
        finite[i] = last || fabsf(pair[i]) < INFINITY ? pair[i] : pair[i] == pair[i] ? 0 : pair[i];
    const uint32_t word = take_finite_pair<bf16>(finite);
    for (int i = 0; i < 2; i++)
        pair[i] = fabsf(pair[i]) < INFINITY ? finite[i] : pair[i];
    return word;
}

/* The biased exponent of what a row's query is divided by, so that f16 holds it: its largest feature becomes 2^8 or
 * so. */
DEVICE uint32_t query_exponent(float most)
{
    const uint32_t exponent = __float_as_uint(most) >> 23 & 255;
    return exponent < 16 ? 1 : exponent > 254 ? 127 : exponent - 8;
}

} // namespace COPES_GPU::tpa

#endif
