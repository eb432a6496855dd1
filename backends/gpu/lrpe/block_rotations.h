/* Sines and cosines of a block's tokens, made once in shared memory for all of its rows. At small batch this arithmetic
 * binds, so it is kept short: sizes are 32 bits wide, divisions are multiplications, and a thread makes one angle of
 * several tokens, so that it finds the angle's step once. */
#ifndef COPES_BACKENDS_GPU_LRPE_BLOCK_ROTATIONS_H
#define COPES_BACKENDS_GPU_LRPE_BLOCK_ROTATIONS_H

#include "backends/gpu/angles.h"
#include "backends/gpu/divide.h"
#include "backends/gpu/lrpe/rows.h"

namespace COPES_GPU::lrpe
{

/* How a block's rotations lie in shared memory, and the grid that tokens lie on, for a problem whose sizes are below 2^31. */
struct rotation_layout {
    divider angles; /* of a token, in shared memory: V a unit */
    divider firsts; /* rotations of a token in its units' first 16 bytes */
    int tokens;     /* of a block */
    int prefix, length, grid_rank;
    divider grid[COPES_MAX_GRID], inner[COPES_MAX_GRID]; /* inner: tokens from one place of a dimension to the next */

    rotation_layout() = default;
    rotation_layout(const copes_lrpe_problem &problem, int units, int v)
        : angles(units * v), firsts(units * (16 / (int)sizeof(rotation))), tokens(1), prefix((int)problem.prefix),
          length((int)problem.length), grid_rank(problem.grid_rank)
    {
        int64_t tokens_of_place = 1;
        for (int j = grid_rank - 1; j >= 0; j--) {
            const int64_t places = problem.counted && length > 0 ? problem.grid[j] : 1; /* an empty grid may be huge */
            grid[j] = divider(places);
            inner[j] = divider(tokens_of_place);
            tokens_of_place *= places;
        }
    }
    size_t bytes() const
    {
        return (size_t)tokens * angles.divisor * sizeof(rotation);
    }
};

/* Where theta is, for a problem whose sizes are below 2^31. */
struct theta_source {
    const void *data;
    copes_dtype dtype;
    bool plain;                                     /* aligned float32 */
    int head, step, dimension;                      /* strides */
    int end[COPES_MAX_GRID], shift[COPES_MAX_GRID]; /* a segment's end, and the way from an angle to its theta */

    theta_source() = default;
    explicit theta_source(const copes_lrpe_problem &problem)
        : data(problem.theta.data), dtype(problem.theta_dtype),
          plain(dtype == COPES_F32 && reinterpret_cast<uintptr_t>(data) % 4 == 0), head((int)problem.theta.stride[0]),
          step((int)problem.theta.stride[1]), dimension((int)problem.theta.stride[2])
    {
        for (int j = 0; j < problem.grid_rank; j++) {
            end[j] = (int)problem.segment[j].end;
            shift[j] = (int)(problem.segment[j].theta_begin - problem.segment[j].begin);
        }
    }
    /* Why indices of 32 bits do not do; nullptr: they do. */
    static const char *refuse(const copes_lrpe_problem &problem)
    {
        const int64_t lengths[] = {problem.h, problem.k, problem.grid_rank};
        int64_t reach = 0;
        for (int i = 0; i < 3; i++)
            reach += (problem.theta.stride[i] < 0 ? -problem.theta.stride[i] : problem.theta.stride[i]) * lengths[i];
        return reach <= INT32_MAX ? nullptr : "theta's strides reach past 2^31 elements";
    }
    /* The theta by which dimension j turns angle k. */
    __device__ __forceinline__ float at(int h, int k, int j) const
    {
        const int place = h * head + (k + shift[j]) * step + j * dimension;
        return plain ? static_cast<const float *>(data)[place] : read_narrow(dtype, data, place);
    }
};

/* The numbers that a grid's rotations are made from. */
struct rotation_plan : rotation_layout {
    theta_source theta;
    int offset[COPES_MAX_GRID], k; /* k: the angles of a token */

    template <typename Arguments> DEVICE const Arguments &read(const Arguments &arguments)
    {
        return arguments;
    }
    __device__ __forceinline__ int begin() const
    {
        return 0;
    }
    __device__ __forceinline__ int count_angles() const
    {
        return k;
    }

    rotation_plan() = default;
    rotation_plan(const copes_lrpe_problem &problem, int units, int v)
        : rotation_layout(problem, units, v), theta(problem), k((int)problem.k)
    {
        for (int j = 0; j < grid_rank; j++)
            offset[j] = (int)problem.offset[j];
    }
};

/* The rotations of a block's tokens, in an order in which a warp's reads of units have no bank conflicts. */
template <encoding E, int V> struct block_rotations {
    static constexpr int N = 16 / (int)sizeof(rotation);
    rotation *rotations;
    unsigned units;

    __device__ __forceinline__ block_rotations(const rotation_layout &plan, char *memory)
        : rotations(reinterpret_cast<rotation *>(memory)), units(plan.angles.divisor / V)
    {
    }
    __device__ __forceinline__ void read(unsigned token, unsigned unit, rotation (&to)[V]) const
    {
        const float4 *from = reinterpret_cast<const float4 *>(rotations + unit_place<V, N>(units, token, unit, 0u));
#pragma unroll
        for (unsigned i = 0; i < V; i += N, from += units) {
            const float4 both = *from;
            to[i] = rotation{both.x, both.y};
            to[i + 1] = rotation{both.z, both.w};
        }
    }
    /* The angle at place `at` of a token's rotations. */
    template <typename Plan> __device__ __forceinline__ unsigned angle_at(const Plan &plan, unsigned at) const
    {
        uint32_t rest;
        const unsigned first = divide(at, plan.firsts, &rest) * N;
        if (E == encoding::interleaved)
            return angle_of<E, V>((uint32_t)plan.count_angles(), rest / N, first + rest % N);
        return rest / N * V + first + rest % N;
    }
};

/* A thread's share of its block's rotations: the angle at place `begin`, and at every `threads`th from there, of tokens
 * `token`, `token` + `together`, .. */
struct rotation_share {
    uint32_t begin, token, together, threads;

    __device__ __forceinline__ explicit rotation_share(const rotation_layout &layout)
        : begin((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x), token(0), together(1),
          threads(blockDim.x * blockDim.y * blockDim.z)
    {
        if (layout.tokens > 1 && threads >= layout.angles.divisor) {
            token = divide(begin, layout.angles, &begin);
            together = threads / layout.angles;
            if (token >= together) /* there is nothing for the thread */
                begin = layout.angles.divisor;
        }
    }
};

/* Calls make(k, token, together, to) for each angle k of a thread's share, whose rotations are from `to` on, a token's
 * `angles` after the last one's. */
template <typename Plan, encoding E, int V, typename Make>
DEVICE void make_share(const Plan &plan, const block_rotations<E, V> &rotations, const rotation_share &share,
                       const Make &make)
{
    const uint32_t angles = plan.angles.divisor;
    for (uint32_t at = share.begin; at < angles; at += share.threads)
        make((int)rotations.angle_at(plan, at), (int)share.token, (int)share.together,
             rotations.rotations + (share.token * angles + at));
}

/* The dimension that turns angle k; `rank`: none does, and the angle is 0. */
DEVICE int dimension_of(const theta_source &theta, int rank, int k)
{
    int j = k < theta.end[0] ? 0 : 1;
#pragma unroll 1
    while (j > 0 && j < rank && k >= theta.end[j])
        j++;
    return j;
}

struct grid_dimension {
    divider inner, places;

    __device__ __forceinline__ grid_dimension(const rotation_layout &layout, int j)
        : inner(layout.inner[j]), places(layout.grid[j])
    {
    }
    /* The coordinate of the token that is `rest` after the grid's first. */
    __device__ __forceinline__ int32_t coordinate_of(uint32_t rest) const
    {
        uint32_t here;
        divide(rest / inner, places, &here);
        return (int32_t)here;
    }
};

/* Makes the rotations of tokens `token`, `token` + `together`, .. of the block. Their phases begin at `phase` and are
 * `advance` apart. BY_PRODUCT: two of three rotations are products of the third, exact to an ulp or so of 1. */
template <bool EXACTLY, bool BY_PRODUCT>
DEVICE void make_rotations_on_line(const rotation_plan &plan, uint64_t phase, uint64_t advance, float poison, int token,
                                   int together, rotation *to)
{
    const int apart = together * (int)plan.angles.divisor;
    const auto rotation_at_phase = [&](uint64_t at) {
        return rotation_of<EXACTLY>(ZERO_PHASE + (uint32_t)(at >> 32), poison);
    };
    if (!BY_PRODUCT || plan.tokens <= 2 * together) {
        for (int t = token; t < plan.tokens; t += together, to += apart, phase += advance)
            *to = rotation_at_phase(phase);
        return;
    }
    const rotation on = rotation_at_phase(advance), back = {on.cosine, -on.sine};
    for (int t = token; t < plan.tokens; t += 3 * together, to += 3 * apart, phase += 3 * advance) {
        const rotation middle = rotation_at_phase(phase + advance);
        to[0] = middle * back;
        if (t + together < plan.tokens)
            to[apart] = middle;
        if (t + 2 * together < plan.tokens)
            to[2 * apart] = middle * on;
    }
}

/* Makes one angle's rotations of tokens `token`, `token` + `together`, .. of the block, and writes them from `to` on.
 * The block's first token is `first`. */
template <bool EXACTLY, bool BY_PRODUCT>
DEVICE void make_rotations_of_angle(const rotation_plan &plan, const angle_step &step, int j, int first, int token,
                                    int together, rotation *to)
{
    const uint32_t begin = (uint32_t)(first - plan.prefix), length = (uint32_t)plan.length;
    if (plan.grid_rank == 1 && j == 0 && begin < length && plan.tokens <= (int)(length - begin)) {
        const uint64_t rotations = (uint64_t)step.high << 32 | step.low, advance = rotations * (uint32_t)together;
        const uint64_t phase = rotations * (uint64_t)(int64_t)(plan.offset[0] + (int)begin + token);
        make_rotations_on_line<EXACTLY, BY_PRODUCT>(plan, phase, advance, step.poison, token, together, to);
        return;
    }
    const int apart = together * (int)plan.angles.divisor;
    const grid_dimension dimension(plan, min(j, plan.grid_rank - 1));
    const int32_t offset = plan.offset[min(j, plan.grid_rank - 1)];
#pragma unroll 1
    for (int t = token; t < plan.tokens; t += together, to += apart) {
        const uint32_t rest = begin + (uint32_t)t;
        const bool rotated = j < plan.grid_rank && rest < length;
        *to = rotated ? rotation_at<EXACTLY>(step, offset + dimension.coordinate_of(rest)) : rotation{1, 0};
    }
}

/* Fills the block's rotations for a head's tokens from place.token on, and waits for all threads. */
template <bool EXACTLY, bool BY_PRODUCT, encoding E, int V>
DEVICE bool make_rotations(const rotation_plan &plan, const block_rotations<E, V> &rotations, const block_place &place,
                           int)
{
    make_share(plan, rotations, rotation_share(plan), [&](int k, int token, int together, rotation *to) {
        const int j = dimension_of(plan.theta, plan.grid_rank, k);
        const angle_step step = j < plan.grid_rank ? step_of(plan.theta.at(place.head, k, j)) : angle_step{0, 0, 0};
        make_rotations_of_angle<EXACTLY, BY_PRODUCT>(plan, step, j, place.token, token, together, to);
    });
    __syncthreads();
    return true;
}

template <encoding E, int V>
DEVICE void make_any_rotations(const rotation_plan &, const block_rotations<E, V> &, const block_place &, int)
{
}

} // namespace COPES_GPU::lrpe

#endif
