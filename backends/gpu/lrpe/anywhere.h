/* A block's rotations where positions come from a tensor, or a grid and theta have what kernels for grids do not take:
 * a theta for each dimension, an amplitude, inverse or rotary_begin. */
#ifndef COPES_BACKENDS_GPU_LRPE_ANYWHERE_H
#define COPES_BACKENDS_GPU_LRPE_ANYWHERE_H

#include "backends/gpu/lrpe/block_rotations.h"
#include "backends/gpu/lrpe/rows.h"

namespace COPES_GPU::lrpe
{

/* What rotations are made from. */
struct anywhere_plan : rotation_layout {
    copes_lrpe_problem problem;
    bool batch_as_heads; /* the kernel's heads are batch entries, which have positions of their own, and one theta */

    anywhere_plan() = default;
    anywhere_plan(const copes_lrpe_problem &of, bool batch_is_heads, int units, int v)
        : rotation_layout(of, units, v), problem(of), batch_as_heads(batch_is_heads)
    {
    }
    template <typename Arguments> DEVICE const Arguments &read(const Arguments &arguments)
    {
        return first_argument(arguments);
    }
    __device__ __forceinline__ int begin() const
    {
        return (int)problem.begin;
    }
    /* Is a token in the grid? */
    __device__ __forceinline__ bool contains(int token) const
    {
        return !problem.counted || (uint32_t)(token - prefix) < (uint32_t)length;
    }
    /* The position in dimension j of a token of a block at `place`. */
    __device__ __forceinline__ token_position find_position(const block_place &place, int token, int j) const
    {
        token_position position = {0, 0};
        if (problem.positions.data != nullptr)
            position = read_position(problem, batch_as_heads ? place.head : place.entry, token, j);
        const int64_t origin =
            problem.offset[j] +
            (problem.counted ? grid_dimension(*this, j).coordinate_of((uint32_t)(token - prefix)) : 0);
        position.whole = (int64_t)((uint64_t)position.whole + (uint64_t)origin);
        return position;
    }
    /* The dimensions that turn angle k: those from j to *end. */
    __device__ __forceinline__ int find_dimensions(int k, int *end) const
    {
        const int j = problem.mixed ? 0 : COPES_GPU::dimension_of(problem, k);
        *end = problem.mixed ? grid_rank : j + 1;
        return j < 0 ? *end : j;
    }
};

/* Writes the position as an integer of 32 bits; false: it is none. */
DEVICE bool is_narrow(const token_position &position, int32_t *narrow)
{
    const bool small = fabsf(position.real) < 0x1p30f;
    const int32_t real = small ? (int32_t)position.real : 0;
    const int64_t whole = (int64_t)((uint64_t)position.whole + (uint64_t)(int64_t)real);
    *narrow = (int32_t)whole;
    return small && (float)real == position.real && whole == *narrow;
}

/* A rotation's place in shared memory while its phase is still to be summed. */
struct phase_sum {
    uint32_t phase;
    float poison;
};
static_assert(sizeof(phase_sum) == sizeof(rotation));

/* Makes rotations by angle k of tokens `token`, `token` + `together`, .. of the block, up to the one that is `left` after
 * the first, and writes them from `to` on. Returns false if a position does not fit 32 bits; they are wrong then. Sums
 * of dimensions are kept in shared memory, as registers are few. */
template <bool EXACTLY>
DEVICE bool make_narrow_rotations(const anywhere_plan &plan, const block_place &place, int left, int k, int token,
                                  int together, rotation *to)
{
    const copes_lrpe_problem &problem = plan.problem;
    const int apart = together * (int)plan.angles.divisor;
    phase_sum *const sums = reinterpret_cast<phase_sum *>(to);
    bool narrow = true;
    int end, first = plan.find_dimensions(k, &end);
#pragma unroll 1
    for (int j = first; j < end; j++) {
        const angle_step step = step_of(problem, place.head, k, j);
        phase_sum *sum = sums;
        for (int t = token; t <= left; t += together, sum += apart) {
            int32_t position;
            narrow = is_narrow(plan.find_position(place, place.token + t, j), &position) && narrow;
            const phase_sum before = j == first ? phase_sum{ZERO_PHASE, 0} : *sum;
            *sum = {before.phase + copes_phase_top(step.high, step.low, position), before.poison + step.poison};
        }
    }
    for (int t = token; t <= left; t += together, to += apart) {
        const phase_sum sum = *reinterpret_cast<phase_sum *>(to);
        const bool turned = first < end && plan.contains(place.token + t);
        const rotation full = rotation_of<EXACTLY>(turned ? sum.phase : ZERO_PHASE, turned ? sum.poison : 0);
        *to = {problem.amplitude * full.cosine, problem.amplitude * full.sine};
    }
    return narrow;
}

/* The rotation of a token by angle k, whatever its positions. */
DEVICE rotation find_wide_rotation(const anywhere_plan &plan, const block_place &place, int token, int k)
{
    uint64_t phase = 0;
    float poison = 0;
    int end, j = plan.find_dimensions(k, &end);
#pragma unroll 1
    for (; j < end && plan.contains(token); j++) {
        const token_position position = plan.find_position(place, token, j);
        const float theta = theta_of(plan.problem, place.head, k, j);
        phase += phase_of(position, theta);
        poison += copes_phase_poison(theta) + copes_phase_poison(position.real);
    }
    const rotation turned = rotation_of<true>(ZERO_PHASE + (uint32_t)(phase >> 32), poison);
    return {plan.problem.amplitude * turned.cosine, plan.problem.amplitude * turned.sine};
}

/* Fills the block's rotations for tokens from place.token on, of which the last is `left` after the first, and waits for
 * all threads. Returns false if positions do not fit 32 bits; then make_any_rotations must do it. */
template <bool EXACTLY, bool, int V>
DEVICE bool make_rotations(const anywhere_plan &plan, const block_rotations<V> &rotations, const block_place &place,
                           int left)
{
    bool narrow = true;
    share_out(plan, rotations, [&](int k, int token, int together, rotation *to) {
        if (k < plan.problem.k)
            narrow = make_narrow_rotations<EXACTLY>(plan, place, left, k, token, together, to) && narrow;
    });
    return !any_of_block(!narrow);
}

/* The same for positions of any size. It is no part of its caller, so that it takes no registers where it is not needed. */
template <int V>
__device__ __noinline__ void make_any_rotations(const anywhere_plan &plan, block_rotations<V> rotations,
                                                block_place place, int left)
{
    share_out(plan, rotations, [&](int k, int token, int together, rotation *to) {
        for (int t = token; t <= left && k < plan.problem.k; t += together, to += together * (int)plan.angles.divisor)
            *to = find_wide_rotation(plan, place, place.token + t, k);
    });
    __syncthreads();
}

} // namespace COPES_GPU::lrpe

#endif
