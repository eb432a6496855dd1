/* Sines and cosines by a table in shared memory, for rotations that are needed once: a lookup and some 8
 * multiplications and additions, instead of two polynomials and the choice of a quarter turn. */
#ifndef COPES_BACKENDS_GPU_LRPE_SINCOS_TABLE_H
#define COPES_BACKENDS_GPU_LRPE_SINCOS_TABLE_H

#include "backends/gpu/functions.h"

namespace COPES_GPU::lrpe
{

enum { QUARTER = 64, WHOLE = 4 * QUARTER };

/* The rotations of phases a 256th of a turn apart, rounded to nearest. */
struct alignas(16) rotation_list {
    rotation rotations[WHOLE];
};

/* The sine by its series: x - x^3 / 3! + .. for x up to pi / 2. */
constexpr double sine_of(double x)
{
    double term = x, sum = 0;
    for (int i = 2; i < 26; i += 2) {
        sum += term;
        term *= -x * x / (i * (i + 1));
    }
    return sum;
}

constexpr rotation_list list_rotations()
{
    rotation_list list = {};
    for (int i = 0; i < WHOLE; i++) {
        const int rest = i % QUARTER;
        constexpr double STEP = 6.283185307179586477 / (int)WHOLE;
        const float sine = (float)sine_of(rest * STEP), cosine = (float)sine_of((QUARTER - rest) * STEP);
        const rotation quarters[] = {{cosine, sine}, {-sine, cosine}, {-cosine, -sine}, {sine, -cosine}};
        list.rotations[i] = quarters[i / QUARTER];
    }
    return list;
}

static __device__ const rotation_list all_rotations = list_rotations();

/* The list in shared memory. The rotation of a phase is the nearest one in the list, turned by a rest of up to pi /
 * 256. The series of the rest's sine ends at the third power, and of its cosine at the second. EXACTLY: for float32
 * results, to 1.02 units of 2^-24 or, near 0, where that is less, to 2 ulp; else to 1.51 such units and 2.2 ulp. */
template <bool EXACTLY> struct sincos_table {
    enum { BYTES = (int)sizeof(rotation_list) };
    rotation *rotations;

    __device__ __forceinline__ explicit sincos_table(char *memory) : rotations(reinterpret_cast<rotation *>(memory))
    {
    }

    __device__ __forceinline__ void fill(int thread, int threads) const
    {
#pragma unroll 1
        for (int i = thread; i < BYTES / (int)sizeof(uint4); i += threads)
            reinterpret_cast<uint4 *>(rotations)[i] = reinterpret_cast<const uint4 *>(all_rotations.rotations)[i];
    }
    /* The rotation of a phase in units of 2^-32 turn. */
    __device__ __forceinline__ rotation of(uint32_t phase) const
    {
        constexpr float RADIANS = 0x1.921fb6p-38f; /* in 2^-40 turn, the unit of rest */
        const uint32_t place = phase + (1u << 23);
        const rotation near = rotations[place >> 24];
        const float rest = (float)(int32_t)multiply_add(place, 1u << 8, 1u << 31), square = rest * rest;
        const float sine = rest * fmaf(square, -RADIANS * RADIANS * RADIANS / 6, RADIANS);
        const float less = square * (-RADIANS * RADIANS / 2); /* the rest's cosine minus 1 */
        if constexpr (EXACTLY)
            return {near.cosine + fmaf(near.cosine, less, -near.sine * sine),
                    near.sine + fmaf(near.sine, less, near.cosine * sine)};
        else
            return {fmaf(near.cosine, less, fmaf(-near.sine, sine, near.cosine)),
                    fmaf(near.sine, less, fmaf(near.cosine, sine, near.sine))};
    }
};

/* Polynomials instead of the table. */
template <bool EXACTLY> struct sincos_polynomial {
    enum { BYTES = 0 };

    __device__ __forceinline__ explicit sincos_polynomial(char *)
    {
    }

    __device__ __forceinline__ void fill(int, int) const
    {
    }

    __device__ __forceinline__ rotation of(uint32_t phase) const
    {
        return rotation_of<EXACTLY>(ZERO_PHASE + phase, 0);
    }
};

} // namespace COPES_GPU::lrpe

#endif
