/* How tensor cores take the numbers of tpa_decode. They multiply 16-bit numbers of 11 bits (f16) or 8 bits (bf16). A
 * query rounded to so few bits would change a probability by percents. So a number is split into slices: 16-bit
 * numbers that add up to it.
 *   storage   slices of the query   bits   why
 *   bf16      2                     16     scores are good to 2^-17
 *   bf16      3, with lse           24     lse shows smaller errors
 *   f16       2                     22
 *   f32       3, of bf16            24     bf16 has the exponents of float32 */
#ifndef COPES_BACKENDS_CUDA_TPA_SLICES_H
#define COPES_BACKENDS_CUDA_TPA_SLICES_H

#include "backends/gpu/storage.h"

namespace COPES_GPU::tpa
{

template <typename T> inline constexpr bool is_f16 = storage<T>::dtype == COPES_F16;
template <typename T> inline constexpr bool is_f32 = storage<T>::dtype == COPES_F32;

/* A lane's place in operands and results. Lane 4 g + t has row g and columns 2t and 2t + 1 of each 8 x 8 elements. */
struct lane_place {
    int lane, g, t;
};

DEVICE lane_place place_of_lane()
{
    const int lane = threadIdx.x % 32;
    return {lane, lane / 4, lane % 4};
}

template <typename T> __host__ __device__ constexpr int slices_of_query(bool lse)
{
    return is_f32<T> || (!is_f16<T> && lse) ? 3 : 2;
}

/* Rounds a pair to a word of two 16-bit numbers, the next slice, and leaves the rest in the pair. The rest of an
 * infinity is NaN. */
template <typename T> DEVICE uint32_t take_finite_pair(float *pair)
{
    float rounded[2];
    const uint32_t word = storage<T>::pack(pair);
    storage<T>::unpack(word, rounded);
    for (int i = 0; i < 2; i++)
        pair[i] -= rounded[i];
    return word;
}

/* The same, but the rest of an infinity is 0. */
template <typename T> DEVICE uint32_t take_pair(float *pair)
{
    const uint32_t word = take_finite_pair<T>(pair);
    for (int i = 0; i < 2; i++)
        pair[i] = pair[i] == pair[i] ? pair[i] : 0;
    return word;
}

/* The same for a query of float32 in slices of bf16. An infinity is in the last slice, and the other slices are 0.
 * The last slice meets only the first slices of keys. The other slices of a key may be 0 or of the other sign, and
 * would make NaN of an infinity. */
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

/* The biased exponent of a power of 2 that divides a row's query, so that f16 holds it. The largest feature becomes
 * about 2^8. */
DEVICE uint32_t query_exponent(float most)
{
    const uint32_t exponent = __float_as_uint(most) >> 23 & 255;
    return exponent < 16 ? 1 : exponent > 254 ? 127 : exponent - 8;
}

} // namespace COPES_GPU::tpa

#endif
