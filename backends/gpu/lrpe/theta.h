/* The elements of theta's gradient, shared out among blocks: each has up to 32 neighbouring ones, which all of its warps
 * sum in a fixed order, so that the bits are the same each time. */
#ifndef COPES_BACKENDS_GPU_LRPE_THETA_H
#define COPES_BACKENDS_GPU_LRPE_THETA_H

#include "backends/gpu/reduce.h"
#include "backends/gpu/storage.h"

extern "C" {
#include "backends/backend.h"
}

namespace COPES_GPU::lrpe
{

inline constexpr int THETA_LANES = 32, THETA_WARPS = 16; /* of a block */

/* A block's elements of theta: columns from `first` on of a row, in dimension j if each dimension has a theta. */
struct theta_place {
    int64_t row, first;
    int j;
};

/* How theta is cut. */
struct theta_tiling {
    copes_lrpe_problem problem;
    int64_t columns, groups; /* columns of theta, and groups of 32 columns */
    int rows, sets;          /* sets: thetas of a head, one or one for each dimension */
    bool scalar;             /* one column turns all angles */
};

DEVICE theta_place find_theta(const theta_tiling &tiling)
{
    const int64_t row = blockIdx.x / tiling.groups;
    return {row % tiling.rows, blockIdx.x % tiling.groups * THETA_LANES, (int)(row / tiling.rows)};
}

/* A theta that has one row for all heads has a stride of 0. A column that turns nothing has a gradient of 0. */
inline theta_tiling cut_theta(const copes_lrpe_problem &problem)
{
    const copes_view &view = problem.grad_theta;
    theta_tiling tiling = {problem, problem.e, 0, 0, 0, view.stride[1] == 0};
    tiling.groups = (tiling.columns + THETA_LANES - 1) / THETA_LANES;
    tiling.rows = view.stride[0] == 0 ? 1 : (int)problem.h;
    tiling.sets = problem.mixed ? problem.grid_rank : 1;
    return tiling;
}

/* Calls add(k, j) for each angle k, and the dimension j that turns it, by which the element of a thread counts. */
template <typename Add>
DEVICE void for_each_angle(const theta_tiling &tiling, const theta_place &place, int lane, const Add &add)
{
    const copes_lrpe_problem &problem = tiling.problem;
    const int first = problem.mixed ? place.j : 0, end = problem.mixed ? place.j + 1 : problem.grid_rank;
    for (int j = first; j < end; j++) {
        const copes_segment &segment = problem.segment[j];
        int64_t k = tiling.scalar ? segment.begin + lane : segment.begin + place.first + lane - segment.theta_begin;
        for (bool more = k >= segment.begin; more && k < segment.end; more = tiling.scalar, k += THETA_LANES)
            add(k, j);
    }
}

/* Adds up the sums of a block's warps, and writes its elements. All threads add up, as all lanes of a warp of 64 must. */
DEVICE void write_theta(const theta_tiling &tiling, const theta_place &place, int lane, int warp, float sum)
{
    __shared__ float sums[THETA_WARPS][THETA_LANES];
    sums[warp][lane] = sum;
    __syncthreads();
    float total = 0;
    for (int i = 0; i < THETA_WARPS; i++)
        total += sums[i][lane];
    if (tiling.scalar)
        total = sum_of_lanes(total, THETA_LANES);
    const int64_t e = place.first + lane;
    const copes_view &view = tiling.problem.grad_theta;
    if (warp == 0 && e < tiling.columns)
        write_scalar(static_cast<f32 *>(view.data) + place.row * view.stride[0] + e * view.stride[1] +
                         place.j * view.stride[2],
                     total);
}

} // namespace COPES_GPU::lrpe

#endif
