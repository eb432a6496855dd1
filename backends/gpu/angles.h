/* Angles of lrpe on the GPU: the step of an angle, a token's positions, and the product of both, the phase. */
#ifndef COPES_BACKENDS_GPU_ANGLES_H
#define COPES_BACKENDS_GPU_ANGLES_H

#include "backends/gpu/divide.h"
#include "backends/gpu/functions.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU
{

/* The turns of an angle for one position, in units of 2^-64 turn. poison is NaN where theta is not finite, else 0. */
struct angle_step {
    uint32_t high, low;
    float poison;
};

/* Do positions come from a grid alone, and does each angle turn with one dimension? */
inline bool is_on_grid(const copes_lrpe_problem &problem)
{
    return problem.counted && problem.positions.data == nullptr && !problem.mixed;
}

/* Does each sequence have an offset of its own, from a tensor, on a grid whose positions fit 32 bits? */
inline bool has_offsets(const copes_lrpe_problem &problem)
{
    constexpr int64_t FAR = 1 << 30;
    return problem.counted && problem.positions.data != nullptr && !problem.mixed && problem.amplitude == 1 &&
           problem.grid_rank == 1 && problem.n < FAR && problem.offset[0] > -FAR && problem.offset[0] < FAR;
}

/* Does the problem need the general find_any_rotation? A grid of several dimensions whose tokens take more than 31 bits does, too. */
inline bool is_anywhere(const copes_lrpe_problem &problem)
{
    return !is_on_grid(problem) || problem.amplitude != 1 || (problem.grid_rank > 1 && problem.length > INT32_MAX);
}

/* Are tokens' angles neither a grid's nor those of sequences with offsets? */
inline bool is_scattered(const copes_lrpe_problem &problem)
{
    return is_anywhere(problem) && !has_offsets(problem);
}

/* Why kernels for grids alone do not take a problem; nullptr: they do. */
inline const char *refuse_anywhere(const copes_lrpe_problem &problem)
{
    const bool plain = !is_anywhere(problem) && problem.begin == 0 && problem.theta_sign == 1;
    return plain ? nullptr : "it has positions, a theta for each dimension, an amplitude, inverse or rotary_begin";
}

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

/* The theta of angle k in dimension j, negated for inverse. */
DEVICE float theta_of(const copes_lrpe_problem &problem, int64_t head, int64_t k, int j)
{
    const int64_t e = problem.segment[j].theta_begin + k - problem.segment[j].begin;
    const int64_t at = head * problem.theta.stride[0] + e * problem.theta.stride[1] + j * problem.theta.stride[2];
    return (float)problem.theta_sign * read_narrow(problem.theta_dtype, problem.theta.data, at);
}

DEVICE angle_step step_of(const copes_lrpe_problem &problem, int64_t head, int64_t k, int j)
{
    return j < 0 ? angle_step{0, 0, 0} : step_of(theta_of(problem, head, k, j));
}

/* The lengths of a grid's dimensions but the first, of a problem that is not anywhere. */
struct grid_lengths {
    divider of[COPES_MAX_GRID] = {};

    grid_lengths() = default;
    explicit grid_lengths(const copes_lrpe_problem &problem)
    {
        for (int j = 1; j < problem.grid_rank && problem.length > 0 && !is_anywhere(problem); j++)
            of[j] = divider(problem.grid[j]);
    }
};

/* A token's position in each dimension of the grid; false for a token of the prefix or suffix. Here and below, an index
 * known only at run time would put the positions into local memory. */
DEVICE bool find_positions(const copes_lrpe_problem &problem, const grid_lengths &grid, int64_t token,
                           int32_t position[COPES_MAX_GRID])
{
    int64_t rest = token - problem.prefix;
    if (rest < 0 || rest >= problem.length)
        return false;
#pragma unroll
    for (int j = COPES_MAX_GRID - 1; j > 0; j--) {
        if (j >= problem.grid_rank)
            continue;
        uint32_t place;
        rest = divide((uint32_t)rest, grid.of[j], &place);
        position[j] = (int32_t)(problem.offset[j] + place);
    }
    position[0] = (int32_t)(problem.offset[0] + rest);
    return true;
}

/* Selects the position in dimension j. Conditions are few, as a loop over tokens would keep the result of each in a
 * register. All positions are read first: a condition on which one to read would be an index. */
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

/* A position: the sum of an integer and a float32. A tensor gives one of them; the other is 0 there. */
struct token_position {
    int64_t whole;
    float real;
};

DEVICE token_position read_position(const copes_view &view, copes_dtype dtype, int64_t b, int64_t token, int j)
{
    const int64_t at = j * view.stride[0] + b * view.stride[1] + token * view.stride[2];
    if (dtype == COPES_F32)
        return {0, read_anywhere<float>(static_cast<const float *>(view.data) + at)};
    return {dtype == COPES_I64 ? read_anywhere<int64_t>(static_cast<const int64_t *>(view.data) + at)
                               : read_anywhere<int32_t>(static_cast<const int32_t *>(view.data) + at),
            0};
}

/* A token's position in dimension j, from the grid, a tensor or both; false for a token of the prefix or suffix. */
DEVICE bool find_any_position(const copes_lrpe_problem &problem, int64_t b, int64_t token, int j,
                              token_position &position)
{
    const int64_t place = token - problem.prefix;
    if (place < 0 || place >= problem.length)
        return false;
    int64_t inner = 1, along = 0; /* inner: tokens from one position of dimension j to the next */
    for (int i = j + 1; i < problem.grid_rank; i++)
        inner *= problem.grid[i];
    if (problem.counted)
        along = place / inner % problem.grid[j];
    position = {0, 0};
    if (problem.positions.data != nullptr)
        position = read_position(problem.positions, problem.positions_dtype, b, token, j);
    position.whole = (int64_t)((uint64_t)position.whole + (uint64_t)problem.offset[j] + (uint64_t)along);
    return true;
}

/* The phase of a position of any size, in units of 2^-64 turn; arbitrary where theta or the position is not finite. */
DEVICE uint64_t phase_of(const token_position &position, float theta)
{
    uint64_t phase = 0;
    if (copes_phase_poison(theta) == 0 && position.whole != 0)
        phase = copes_phase_exactly(position.whole, theta);
    if (copes_phase_poison(theta) == 0 && copes_phase_poison(position.real) == 0 && position.real != 0)
        phase += copes_phase_product(position.real, theta);
    return phase;
}

/* The rotation of a token by angle k, times the amplitude. */
[[maybe_unused]] OUT_OF_LINE rotation find_any_rotation(const copes_lrpe_problem &problem, int64_t b, int64_t token,
                                                        int64_t head, int64_t k)
{
    uint64_t phase = 0;
    float poison = 0;
    for (int j = 0; j < problem.grid_rank; j++) {
        token_position position;
        if (k < problem.segment[j].begin || k >= problem.segment[j].end ||
            !find_any_position(problem, b, token, j, position))
            continue;
        const float theta = theta_of(problem, head, k, j);
        phase += phase_of(position, theta);
        poison += copes_phase_poison(theta) + copes_phase_poison(position.real);
    }
    const rotation turned = rotation_of<true>(ZERO_PHASE + (uint32_t)(phase >> 32), poison);
    return {problem.amplitude * turned.cosine, problem.amplitude * turned.sine};
}

/* The index in shared memory of item i of a unit's V, where N items have 16 bytes. In each token the first N items of
 * every unit come first, then the next N of every unit, so that a warp's reads have no bank conflicts. */
template <int V, int N, typename Index> DEVICE Index unit_place(Index units, Index token, Index unit, Index i)
{
    return ((token * (V / N) + i / N) * units + unit) * N + i % N;
}

} // namespace COPES_GPU

#endif
