/* The elements of theta's gradient, shared out among blocks: each has LANES neighbouring ones or fewer, and many groups of LANES
 * threads, whose sums are added up in a fixed order, so that the bits are the same each time. */
#ifndef COPES_BACKENDS_GPU_LRPE_THETA_H
#define COPES_BACKENDS_GPU_LRPE_THETA_H

#include "backends/gpu/reduce.h"
#include "backends/gpu/storage.h"

extern "C" {
#include "backends/backend.h"
}

namespace COPES_GPU::lrpe
{

/* A block's elements of theta: columns from `first` on of a row, in dimension j if each dimension has a theta. */
struct theta_place {
    int64_t row, first;
    int j;
};

/* How theta is cut. */
template <int LANES> struct theta_tiling {
    copes_lrpe_problem problem;
    int64_t columns, pieces; /* columns of theta, and pieces of LANES columns */
    int rows, sets;          /* sets: thetas of a head, one or one for each dimension */
    bool scalar;             /* one column turns all angles */

    /* A theta that has one row for all heads has a stride of 0. A column that turns nothing has a gradient of 0. */
    explicit theta_tiling(const copes_lrpe_problem &of)
        : problem(of), columns(of.e), pieces((of.e + LANES - 1) / LANES),
          rows(of.grad_theta.stride[0] == 0 ? 1 : (int)of.h), sets(of.mixed ? of.grid_rank : 1),
          scalar(of.grad_theta.stride[1] == 0)
    {
    }
    int64_t blocks() const
    {
        return pieces * rows * sets;
    }
    __device__ __forceinline__ theta_place place() const
    {
        const int64_t row = blockIdx.x / pieces;
        return {row % rows, blockIdx.x % pieces * LANES, (int)(row / rows)};
    }
};

/* Calls add(k, j) for each angle k, and the dimension j that turns it, by which the element of a thread counts. */
template <int LANES, typename Add>
DEVICE void for_each_angle(const theta_tiling<LANES> &tiling, const theta_place &place, int lane, const Add &add)
{
    const copes_lrpe_problem &problem = tiling.problem;
    const int first = problem.mixed ? place.j : 0, end = problem.mixed ? place.j + 1 : problem.grid_rank;
    for (int j = first; j < end; j++) {
        const copes_segment &segment = problem.segment[j];
        int64_t k = tiling.scalar ? segment.begin + lane : segment.begin + place.first + lane - segment.theta_begin;
        for (bool more = k >= segment.begin; more && k < segment.end; more = tiling.scalar, k += LANES)
            add(k, j);
    }
}

/* Adds up the sums of a block's threads, and writes its elements. Every thread must call it. */
template <int LANES, int THREADS>
DEVICE void write_theta(const theta_tiling<LANES> &tiling, const theta_place &place, int lane, float sum)
{
    float total = sum_of_columns<LANES, THREADS>(sum);
    if (tiling.scalar)
        total = sum_of_lanes(total, LANES);
    const int64_t e = place.first + lane;
    const copes_view &view = tiling.problem.grad_theta;
    if (threadIdx.x < LANES && e < tiling.columns)
        write_scalar(static_cast<f32 *>(view.data) + place.row * view.stride[0] + e * view.stride[1] +
                         place.j * view.stride[2],
                     total);
}

} // namespace COPES_GPU::lrpe

#endif
