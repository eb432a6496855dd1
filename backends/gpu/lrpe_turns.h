/* Sines and cosines of a block's tokens, made once in shared memory for all of its rows. What a thread needs for one is
 * kept few operations long, since at small batch they bind: sizes are 32 bits wide, divisions are multiplications, and
 * a thread makes one angle of several tokens, so that it finds the angle's step once. */
#ifndef COPES_BACKENDS_GPU_LRPE_TURNS_H
#define COPES_BACKENDS_GPU_LRPE_TURNS_H

#include "backends/gpu/angles.h"
#include "backends/gpu/divide.h"

namespace COPES_GPU
{

/* How angles come of tokens, for a problem whose sizes are below 2^31. */
struct turn_plan {
    const void *theta;
    copes_dtype theta_dtype;
    bool plain;                 /* theta is of aligned float32 */
    int theta_head, theta_step; /* strides */
    int prefix, length, grid_rank;
    int end[COPES_MAX_GRID], theta_shift[COPES_MAX_GRID]; /* of the segments; from an angle to its theta */
    int offset[COPES_MAX_GRID];
    divider grid[COPES_MAX_GRID];
    divider angles; /* a token's, in shared memory: V a unit */
    int tokens;     /* of a block */

    static bool fits(const copes_lrpe_problem &problem)
    {
        const int64_t head = problem.theta.stride[0], step = problem.theta.stride[1];
        return (head < 0 ? -head : head) * problem.h + (step < 0 ? -step : step) * problem.k <= INT32_MAX;
    }

    /* The step of angle k, which dimension j turns. */
    __device__ __forceinline__ angle_step step(int head, int k, int j) const
    {
        const int at = head * theta_head + (k + theta_shift[j]) * theta_step;
        return step_of(plain ? static_cast<const float *>(theta)[at] : read_narrow(theta_dtype, theta, at));
    }

    turn_plan() = default;
    turn_plan(const copes_lrpe_problem &problem, int angles_of_token)
        : theta(problem.theta.data), theta_dtype(problem.theta_dtype),
          plain(theta_dtype == COPES_F32 && reinterpret_cast<uintptr_t>(theta) % 4 == 0),
          theta_head((int)problem.theta.stride[0]), theta_step((int)problem.theta.stride[1]),
          prefix((int)problem.prefix), length((int)problem.length), grid_rank(problem.grid_rank),
          angles(angles_of_token), tokens(1)
    {
        for (int j = 0; j < grid_rank; j++) {
            end[j] = (int)problem.segment[j].end;
            theta_shift[j] = (int)(problem.segment[j].theta_begin - problem.segment[j].begin);
            offset[j] = (int)problem.offset[j];
            grid[j] = divider(problem.grid[j] > 0 ? problem.grid[j] : 1);
        }
    }
};

template <int V> struct block_turns {
    float *cosine, *sine;
    unsigned units;

    __device__ __forceinline__ block_turns(const turn_plan &plan, char *memory)
        : cosine(reinterpret_cast<float *>(memory)), sine(cosine + plan.tokens * plan.angles.divisor),
          units(plan.angles.divisor / V)
    {
    }
    __device__ __forceinline__ unsigned place(unsigned token, unsigned unit, unsigned i) const
    {
        return unit_place<V, 4, unsigned>(units, token, unit, i);
    }
    __device__ __forceinline__ void read(unsigned token, unsigned unit, turn (&turns)[V]) const
    {
#pragma unroll
        for (unsigned i = 0; i < V; i += 4) {
            const float4 c = *reinterpret_cast<const float4 *>(cosine + place(token, unit, i));
            const float4 s = *reinterpret_cast<const float4 *>(sine + place(token, unit, i));
            turns[i] = turn{c.x, s.x};
            turns[i + 1] = turn{c.y, s.y};
            turns[i + 2] = turn{c.z, s.z};
            turns[i + 3] = turn{c.w, s.w};
        }
    }
};

inline size_t block_turns_bytes(const turn_plan &plan)
{
    return (size_t)plan.tokens * plan.angles.divisor * 2 * sizeof(float);
}

/* The dimension of the grid that turns angle k; the grid's rank: none does, and the angle is 0. */
DEVICE int dimension_of(const turn_plan &plan, int k)
{
    int j = k < plan.end[0] ? 0 : 1;
#pragma unroll 1
    while (j > 0 && j < plan.grid_rank && k >= plan.end[j])
        j++;
    return j;
}

/* The position in dimension j of the token that is `rest` after the grid's first. */
DEVICE int32_t position_of(const turn_plan &plan, uint32_t rest, int j)
{
    uint32_t here = rest;
    if (plan.grid_rank == 1)
        return plan.offset[0] + (int32_t)rest;
#pragma unroll 1
    for (int i = plan.grid_rank - 1; i > 0 && i >= j; i--)
        rest = divide(rest, plan.grid[i], &here);
    return plan.offset[j] + (int32_t)(j > 0 ? here : rest);
}

/* Fills the block's turns for tokens first .. of a head, and waits for all threads. */
template <bool EXACTLY, int V>
DEVICE void make_turns(const turn_plan &plan, const block_turns<V> &turns, int head, int first)
{
    const uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const uint32_t threads = blockDim.x * blockDim.y * blockDim.z, angles = plan.angles.divisor;
    uint32_t begin = thread, token = 0, together = 1;
    if (plan.tokens > 1 && threads >= angles) {
        token = divide(thread, plan.angles, &begin);
        together = threads / plan.angles;
    }
    for (uint32_t k = begin; k < angles && token < together; k += threads) {
        const int j = dimension_of(plan, (int)k);
        const bool any = j < plan.grid_rank;
        const angle_step step = any ? plan.step(head, (int)k, j) : angle_step{0, 0, 0};
        uint32_t place = turns.place(token, k / V, k % V);
        for (uint32_t t = token; t < (uint32_t)plan.tokens; t += together, place += together * angles) {
            const uint32_t rest = (uint32_t)(first + (int)t - plan.prefix);
            const bool turned = any && rest < (uint32_t)plan.length;
            const turn at = turned ? turn_at<EXACTLY>(step, position_of(plan, rest, j)) : turn{1, 0};
            turns.cosine[place] = at.cosine;
            turns.sine[place] = at.sine;
        }
    }
    __syncthreads();
}

} // namespace COPES_GPU

#endif
