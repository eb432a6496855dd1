/* A block's rotations where positions come from a tensor, or a grid and theta have what kernels for grids do not take:
 * a theta for each dimension, an amplitude, inverse or rotary_begin. Each position is read once, into shared memory,
 * while theta is on its way. */
#ifndef COPES_BACKENDS_GPU_LRPE_ANYWHERE_H
#define COPES_BACKENDS_GPU_LRPE_ANYWHERE_H

#include "backends/gpu/lrpe/block_rotations.h"
#include "backends/gpu/lrpe/rows.h"

#include <string.h>

namespace COPES_GPU::lrpe
{

/* A token's position in a dimension, in shared memory. */
struct block_position {
    token_position exact;
    float value; /* for theta's gradient alone */

    __device__ __forceinline__ bool is_narrow() const
    {
        return exact.real == 0 && exact.whole == (int32_t)exact.whole;
    }
};

/* What rotations are made from. */
struct anywhere_plan : rotation_layout {
    theta_source theta;
    copes_view positions; /* (m, B, N), or absent */
    copes_dtype positions_dtype;
    bool counted, mixed;
    bool batch_as_heads; /* the kernel's heads are batch entries, which have positions of their own, and one theta */
    int first, k;        /* the first feature that turns, and the angles */
    divider dimensions;  /* of a token's positions */
    float theta_sign, amplitude;
    int64_t offset[COPES_MAX_GRID];

    anywhere_plan() = default;
    anywhere_plan(const copes_lrpe_problem &problem, bool batch_is_heads, int units, int v)
        : rotation_layout(problem, units, v), theta(problem), positions(problem.positions),
          positions_dtype(problem.positions_dtype), counted(problem.counted), mixed(problem.mixed),
          batch_as_heads(batch_is_heads), first((int)problem.begin), k((int)problem.k), dimensions(problem.grid_rank),
          theta_sign((float)problem.theta_sign), amplitude(problem.amplitude)
    {
        memcpy(offset, problem.offset, sizeof offset);
    }
    size_t bytes() const
    {
        return rotation_layout::bytes() + (size_t)tokens * (size_t)grid_rank * sizeof(block_position);
    }
    template <typename Arguments> DEVICE const Arguments &read(const Arguments &arguments)
    {
        return first_argument(arguments);
    }
    __device__ __forceinline__ int begin() const
    {
        return first;
    }
    __device__ __forceinline__ int count_angles() const
    {
        return read_again(*this).k;
    }
    /* Where the positions of a block's tokens are: after its rotations, a token's dimensions side by side. */
    __device__ __forceinline__ block_position *positions_after(rotation *rotations) const
    {
        return reinterpret_cast<block_position *>(rotations + (uint32_t)tokens * angles.divisor);
    }
    /* Is a token in the grid? */
    __device__ __forceinline__ bool contains(int token) const
    {
        return !counted || (uint32_t)(token - prefix) < (uint32_t)length;
    }
    /* The position in dimension j of a token of a block at `place`; 0 for one outside the grid. */
    __device__ __forceinline__ token_position find_position(const block_place &place, int token, int j) const
    {
        token_position position = {0, 0};
        if (!contains(token))
            return position;
        if (positions.data != nullptr)
            position = read_position(positions, positions_dtype, batch_as_heads ? place.head : place.entry, token, j);
        const int64_t origin =
            offset[j] + (counted ? grid_dimension(*this, j).coordinate_of((uint32_t)(token - prefix)) : 0);
        position.whole = (int64_t)((uint64_t)position.whole + (uint64_t)origin);
        return position;
    }
    /* The first and the last of the dimensions that turn angle a. */
    __device__ __forceinline__ int first_dimension(int a) const
    {
        return mixed ? 0 : min(dimension_of(theta, grid_rank, a), grid_rank - 1);
    }
    __device__ __forceinline__ int last_dimension(int first_one) const
    {
        return mixed ? grid_rank - 1 : first_one;
    }
    /* The theta of an angle in a dimension that turns it; 0 past the last segment, and for one that is none of K. */
    __device__ __forceinline__ float read_theta(int head, int a, int j) const
    {
        return a < min(k, theta.end[j]) ? theta.at(head, a, j) : 0;
    }
    /* Its step, negated for inverse. */
    __device__ __forceinline__ angle_step step(float theta_read) const
    {
        return step_of(theta_sign * theta_read);
    }
};

/* Moves a real part that is an integer to the whole part. */
DEVICE token_position in_whole(token_position position)
{
    if (position.real != 0 && fabsf(position.real) < 0x1p30f && truncf(position.real) == position.real) {
        position.whole = (int64_t)((uint64_t)position.whole + (uint64_t)(int64_t)position.real);
        position.real = 0;
    }
    return position;
}

/* Writes the positions of a block's tokens, of which the last is `left` after place.token; VALUED: as numbers, too. Returns
 * false if one that this thread wrote does not fit 32 bits. */
template <bool VALUED>
DEVICE bool write_positions(const anywhere_plan &plan, const block_place &place, int left, block_position *to)
{
    const uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const uint32_t end = (uint32_t)(left + 1) * plan.dimensions.divisor;
    bool narrow = true;
    for (uint32_t i = thread; i < end; i += blockDim.x * blockDim.y * blockDim.z) {
        uint32_t j;
        const uint32_t token = divide(i, plan.dimensions, &j);
        block_position here = {in_whole(plan.find_position(place, place.token + (int)token, (int)j)), 0};
        if (VALUED)
            here.value = (float)here.exact.whole + here.exact.real;
        to[i] = here;
        narrow = narrow && here.is_narrow();
    }
    return narrow;
}

/* The first angle of a thread's share, and its step in the first dimension that turns it. */
struct first_angle {
    int k;
    angle_step step;
};

template <encoding E, int V>
DEVICE first_angle find_first_angle(const anywhere_plan &plan, const block_rotations<E, V> &rotations,
                                    const rotation_share &share, int head)
{
    const int k = (int)rotations.angle_at(plan, share.begin);
    return {k, plan.step(plan.read_theta(head, k, plan.first_dimension(k)))};
}

/* Makes rotations by angle k of tokens `token`, `token` + `together`, .. up to `left`, and writes them from `to` on. Until
 * the last dimension that turns the angle, a rotation's place keeps the sum of phases, as registers are few. */
template <bool EXACTLY>
DEVICE void make_narrow_rotations(const anywhere_plan &plan, const block_place &place, const block_position *positions,
                                  int left, const first_angle &ready, int k, int token, int together, rotation *to)
{
    const int rank = plan.grid_rank, apart = together * (int)plan.angles.divisor;
    const int first = plan.first_dimension(k), last = plan.last_dimension(first);
#pragma unroll 1
    for (int j = first; j <= last; j++) {
        const angle_step step = j == first && k == ready.k ? ready.step : plan.step(plan.read_theta(place.head, k, j));
        rotation *at = to;
        for (int t = token; t <= left; t += together, at += apart) {
            const rotation before = j == first ? rotation{__uint_as_float(ZERO_PHASE), 0} : *at;
            const uint32_t phase = __float_as_uint(before.cosine) +
                                   copes_phase_top(step.high, step.low, (int32_t)positions[t * rank + j].exact.whole);
            const float poison = before.sine + (plan.contains(place.token + t) ? step.poison : 0);
            if (j < last) {
                *at = {__uint_as_float(phase), poison};
                continue;
            }
            const rotation full = rotation_of<EXACTLY>(phase, poison);
            *at = {plan.amplitude * full.cosine, plan.amplitude * full.sine};
        }
    }
}

/* The rotation of a token, whose positions are given, by angle k. */
DEVICE rotation find_wide_rotation(const anywhere_plan &plan, const block_place &place, const block_position *positions,
                                   int token, int k)
{
    uint64_t phase = 0;
    float poison = 0;
    const int first = plan.first_dimension(k), last = plan.last_dimension(first);
#pragma unroll 1
    for (int j = first; j <= last && k < plan.theta.end[j] && plan.contains(token); j++) {
        const token_position position = positions[j].exact;
        const float theta = plan.theta_sign * plan.read_theta(place.head, k, j);
        phase += phase_of(position, theta);
        poison += copes_phase_poison(theta) + copes_phase_poison(position.real);
    }
    const rotation turned = rotation_of<true>(ZERO_PHASE + (uint32_t)(phase >> 32), poison);
    return {plan.amplitude * turned.cosine, plan.amplitude * turned.sine};
}

/* Fills the block's rotations for tokens from place.token on, of which the last is `left` after the first, once their
 * positions are written, and waits for all threads. `narrow`: what write_positions returned. Returns false if a position
 * of the block does not fit 32 bits; then make_any_rotations must do it. */
template <bool EXACTLY, encoding E, int V>
DEVICE bool make_rotations_at(const anywhere_plan &argument, const block_rotations<E, V> &rotations,
                              const rotation_share &share, const first_angle &ready, bool narrow,
                              const block_place &place, int left)
{
    if (any_of_block(!narrow))
        return false;
    const anywhere_plan &plan = read_again(argument);
    const block_position *positions = plan.positions_after(rotations.rotations);
    make_share(plan, rotations, share, [&](int k, int token, int together, rotation *to) {
        if (k < plan.k)
            make_narrow_rotations<EXACTLY>(plan, place, positions, left, ready, k, token, together, to);
    });
    __syncthreads();
    return true;
}

/* The same with all that comes before. */
template <bool EXACTLY, bool, encoding E, int V>
DEVICE bool make_rotations(const anywhere_plan &plan, const block_rotations<E, V> &rotations, const block_place &place,
                           int left)
{
    const rotation_share share(plan);
    const int k = (int)rotations.angle_at(plan, share.begin);
    const float theta =
        plan.read_theta(place.head, k, plan.first_dimension(k)); /* on its way while positions are read */
    const bool narrow = write_positions<false>(plan, place, left, plan.positions_after(rotations.rotations));
    return make_rotations_at<EXACTLY>(plan, rotations, share, {k, plan.step(theta)}, narrow, place, left);
}

/* The same for positions of any size. It is no part of its caller, so that it takes no registers where it is not needed. */
template <encoding E, int V>
OUT_OF_LINE void make_any_rotations(const anywhere_plan &argument, block_rotations<E, V> rotations, block_place place,
                                    int left)
{
    const anywhere_plan &plan = read_again(argument);
    const block_position *positions = plan.positions_after(rotations.rotations);
    make_share(plan, rotations, rotation_share(plan), [&](int k, int token, int together, rotation *to) {
        for (int t = token; t <= left && k < plan.k; t += together, to += together * (int)plan.angles.divisor)
            *to = find_wide_rotation(read_again(plan), place, positions + t * plan.grid_rank, place.token + t, k);
    });
    __syncthreads();
}

} // namespace COPES_GPU::lrpe

#endif
