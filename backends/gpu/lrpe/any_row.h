/* A row of tensors with any strides, alignment and number of features. Thirty-two threads share a row and go over its
 * pairs of features, one element at a time. */
#ifndef COPES_BACKENDS_GPU_LRPE_ANY_ROW_H
#define COPES_BACKENDS_GPU_LRPE_ANY_ROW_H

#include "backends/gpu/angles.h"
#include "backends/gpu/lrpe/rows.h"

namespace COPES_GPU::lrpe
{

inline constexpr int LANES = 32; /* threads of a row */

/* A row of every tensor. ANYWHERE: is_anywhere holds for the problem. A kernel has registers for one case only. */
template <bool ANYWHERE> struct any_row {
    const copes_lrpe_problem &problem;
    int64_t b, n, h;
    int32_t position[COPES_MAX_GRID];
    bool rotated, live; /* live: it is to be written */

    __device__ __forceinline__ any_pointer element(const copes_view &view, int64_t feature) const
    {
        return elements_of<any_type>(view, problem.dtype) +
               (b * view.stride[0] + n * view.stride[1] + h * view.stride[2] + feature * view.stride[3]);
    }
    __device__ __forceinline__ float read(const copes_view &view, int64_t feature) const
    {
        return read_scalar(element(view, feature));
    }
};

/* A unit of one angle: up to two features before the encoding, and up to two after it. */
struct any_unit {
    int64_t plain[2], encoded[2]; /* below 0: there is none */
    rotation rotations[1];
    bool rotated;
};

DEVICE int64_t count_units(const copes_lrpe_problem &problem)
{
    return problem.variant == COPES_LRPE_COSINE ? problem.d : problem.d - problem.k;
}

template <bool ANYWHERE> DEVICE any_unit find_any_unit(const any_row<ANYWHERE> &row, int64_t k)
{
    const copes_lrpe_problem &problem = row.problem;
    any_unit unit = {{k, -1}, {k, -1}, {{1, 0}}, k < problem.k};
    if (problem.variant == COPES_LRPE_COSINE) {
        unit.encoded[1] = problem.d + k;
    } else if (k >= problem.k) {
        unit.plain[0] = unit.encoded[0] = place_after(problem.begin, problem.d, problem.k + k);
    } else {
        const bool half = problem.pairing == COPES_LRPE_HALF;
        unit.plain[0] = unit.encoded[0] = problem.begin + (half ? k : 2 * k);
        unit.plain[1] = unit.encoded[1] = problem.begin + (half ? k + problem.k : 2 * k + 1);
    }
    if constexpr (ANYWHERE) {
        if (unit.rotated)
            unit.rotations[0] = find_any_rotation(problem, row.b, row.n, row.h, k);
        return unit;
    }
    const int j = row.rotated && unit.rotated ? COPES_GPU::dimension_of(problem, k) : -1;
    if (j >= 0)
        unit.rotations[0] = rotation_at<true>(step_of(problem, row.h, k, j), position_in(row.position, j));
    return unit;
}

/* Reads both features of a unit, from their plain or encoded places in a tensor. */
template <bool ANYWHERE>
DEVICE void read_pair(const any_row<ANYWHERE> &row, const copes_view &view, const int64_t (&place)[2], float (&x)[2][1])
{
    for (int i = 0; i < 2; i++)
        x[i][0] = place[i] >= 0 ? row.read(view, place[i]) : 0;
}

/* The softmax of a row: its largest element, and 1 / the sum of its terms. */
struct row_softmax {
    float most, scale;

    __device__ __forceinline__ float of(float x) const
    {
        return restored_term<any_type>(x, most) * scale;
    }
};

template <bool ANYWHERE> DEVICE row_softmax find_softmax(const any_row<ANYWHERE> &row, const copes_view &x, int lane)
{
    float most = -INFINITY;
    long_sum sum;
    for (int64_t i = lane; i < row.problem.d; i += LANES)
        most = fmaxf(most, row.read(x, i));
    most = max_of_lanes(most, LANES);
    for (int64_t i = lane; i < row.problem.d; i += LANES)
        sum.add(restored_term<any_type>(row.read(x, i), most));
    return {most, 1 / sum_of_lanes(sum.sum, LANES)};
}

/* Reads the gradient of a unit's encoded features, and turns it into the gradient of the plain ones. */
template <bool ANYWHERE> DEVICE void read_gradient(const any_row<ANYWHERE> &row, const any_unit &unit, float (&g)[2][1])
{
    read_pair(row, row.problem.src, unit.encoded, g);
    if (row.problem.variant == COPES_LRPE_COSINE)
        decode<encoding::cosine>(g, unit.rotations, true);
    else
        decode<encoding::half>(g, unit.rotations, unit.rotated);
}

} // namespace COPES_GPU::lrpe

#endif
