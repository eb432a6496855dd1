/* Angles of lrpe on the GPU: how far each turns a position, what position a token has, and the phase of the two. */
#ifndef COPES_BACKENDS_GPU_ANGLES_H
#define COPES_BACKENDS_GPU_ANGLES_H

#include "backends/gpu/functions.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU
{

/* The turns per position of an angle, to 2^-64 turn, and NaN where theta is not finite, else 0. */
struct angle_step {
    uint32_t high, low;
    float poison;
};

/* The dimension of the grid that turns angle k; -1: none does, and the angle is 0. */
DEVICE int dimension_of(const copes_lrpe_problem &problem, int64_t k)
{
    for (int j = 0; j < problem.grid_rank; j++)
        if (k < problem.segment[j].end)
            return j;
    return -1;
}

DEVICE angle_step step_of(float theta)
{
    const uint64_t step = copes_phase_step(theta).high;
    return {(uint32_t)(step >> 32), (uint32_t)step, copes_phase_poison(theta)};
}

/* Of angle k, in dimension j of the grid. */
DEVICE angle_step step_of(const copes_lrpe_problem &problem, int64_t head, int64_t k, int j)
{
    if (j < 0)
        return {0, 0, 0};
    const int64_t e = problem.segment[j].theta_begin + k - problem.segment[j].begin;
    return step_of(read_narrow(problem.theta_dtype, problem.theta.data,
                               head * problem.theta.stride[0] + e * problem.theta.stride[1]));
}

/* A token's position in each dimension of the grid; false for one of the prefix or suffix. Here and below, an index
 * that is known only at run time would put the positions into memory. */
DEVICE bool find_positions(const copes_lrpe_problem &problem, int64_t token, int32_t position[COPES_MAX_GRID])
{
    int64_t rest = token - problem.prefix;
    if (rest < 0 || rest >= problem.length)
        return false;
#pragma unroll
    for (int j = COPES_MAX_GRID - 1; j > 0; j--) {
        if (j >= problem.grid_rank)
            continue;
        const int64_t above = problem.length <= INT32_MAX ? (int64_t)((uint32_t)rest / (uint32_t)problem.grid[j])
                                                          : rest / problem.grid[j];
        position[j] = (int32_t)(problem.offset[j] + rest - above * problem.grid[j]);
        rest = above;
    }
    position[0] = (int32_t)(problem.offset[0] + rest);
    return true;
}

/* The position in dimension j, of those found: with few conditions, since a loop over tokens would keep them all, and
 * on values that were read before, since a condition on which one to read is an index. */
DEVICE int32_t position_in(const int32_t (&position)[COPES_MAX_GRID], int j)
{
    static_assert(COPES_MAX_GRID == 4, "two pairs");
    const int32_t p0 = position[0], p1 = position[1], p2 = position[2], p3 = position[3];
    const int32_t low = (j & 1) != 0 ? p1 : p0, high = (j & 1) != 0 ? p3 : p2;
    return (j & 2) != 0 ? high : low;
}

/* Sine and cosine at a position. */
template <bool EXACTLY> DEVICE rotation rotation_at(const angle_step &step, int32_t position)
{
    return rotation_of<EXACTLY>(ZERO_PHASE + copes_phase_top(step.high, step.low, position), step.poison);
}

/* Where thing i of a unit's V lies in shared memory among those of a token, N of them in 16 bytes, in an order in which
 * a warp's reads meet no bank twice: the first N of every unit, then the next. */
template <int V, int N, typename Index> DEVICE Index unit_place(Index units, Index token, Index unit, Index i)
{
    return ((token * (V / N) + i / N) * units + unit) * N + i % N;
}

} // namespace COPES_GPU

#endif
