/* How the host plans tpa_mma: how many blocks share a query token's heads, the warps and stages of a block, and the
 * cut of the keys. */
#ifndef COPES_BACKENDS_CUDA_TPA_MMA_PLAN_H
#define COPES_BACKENDS_CUDA_TPA_MMA_PLAN_H

#include "backends/cuda/tpa/mma/combine.h"

namespace COPES_GPU::tpa::mma
{

enum {
    MOST_WARPS = 12,
    MOST_PRODUCERS = 4,
    MOST_STAGES = 16,
    ALIGNMENT = 16, /* of a block's first key, so that its coefficients begin at a multiple of 16 bytes */
    BARRIER_BYTES = 2 * MOST_STAGES * 8,
    STATE_BYTES = MOST_WARPS * WARP_HEADS * 8 /* a row_state for each row of each warp */
};

/* Most warps of a block. Registers limit them: a thread has 168, or 255 for rows of 256 features. */
__host__ __device__ constexpr int most_warps(int width)
{
    return width <= 128 ? (int)MOST_WARPS : 8;
}

/* The warps of a block, in this order:
 *   key_groups x head_tiles   consumers, head tiles innermost. All form the query. The first `consumers` key groups
 *                             read keys.
 *   producers                 copy the cache to shared memory. */
struct mma_plan {
    int width;
    int head_groups; /* groups of a query token's heads; blocks of one group share its keys */
    int head_tiles;  /* of 16 heads, of a block */
    int key_groups, consumers, producers;
    cluster_cut cut;
    stage_ring ring;
    int query_slices;
    bool pairs; /* two neighbours of the output are written as one word */
    int shared; /* bytes */
    divider by_tile;
};

inline int largest_power(int64_t most)
{
    int power = 1;
    while (power * 2 <= most)
        power *= 2;
    return power;
}

template <typename T> inline stage_ring ring_of(const copes_tpa_problem &problem, int width)
{
    const int64_t size = sizeof(T), row = width * size, keys = keys_of_stage((int)row);
    const auto coefficients = [=](int64_t rank) { return divide_up(keys * problem.h * rank * size, 128) * 128; };
    stage_ring ring = {};
    ring.av = (int)coefficients(problem.rk);
    ring.bk = (int)(ring.av + coefficients(problem.rv));
    ring.bv = (int)(ring.bk + keys * problem.rk * row);
    ring.bytes = (int)(ring.bv + keys * problem.rv * row);
    return ring;
}

inline int head_tiles_of(const copes_tpa_problem &problem)
{
    return (int)divide_up(problem.h, WARP_HEADS);
}

/* Plans the warps and stages of a block. Returns why shared memory or warps do not suffice; nullptr: they do.
 *
 * The numbers of key groups and of producers are powers of 2 which divide the number of slots. So one key group and
 * one producer have a slot throughout, and see every phase of its mbarriers. */
template <typename T>
inline const char *plan_block(const gpu_device &device, const copes_tpa_problem &problem, int head_groups,
                              mma_plan *plan)
{
    const int64_t size = problem.d > problem.e ? problem.d : problem.e;
    plan->width = size <= 64 ? 64 : size <= 128 ? 128 : 256;
    const int warps = most_warps(plan->width);
    plan->head_groups = head_groups;
    plan->head_tiles = head_tiles_of(problem) / head_groups;
    plan->query_slices = slices_of_query<T>(problem.lse.data != nullptr);
    plan->ring = ring_of<T>(problem, plan->width);
    const int before = BARRIER_BYTES + 2 * STATE_BYTES,
              fixed = before + plan->head_tiles * query_bytes(plan->width, plan->query_slices);
    const int stages = (device.shared_memory - fixed) / plan->ring.bytes;
    if (plan->head_tiles >= warps)
        return "a block has too few warps for its heads";
    if (stages < 2)
        return "a block's shared memory does not hold two stages of the cache beside the query";
    plan->ring.stages = largest_power(stages < MOST_STAGES ? stages : MOST_STAGES);
    const int groups = warps * 3 / 4 / plan->head_tiles;
    plan->key_groups = largest_power(groups < plan->ring.stages ? groups : plan->ring.stages);
    const int producers = warps - plan->head_tiles * plan->key_groups;
    plan->producers = largest_power(producers < MOST_PRODUCERS ? producers : MOST_PRODUCERS);
    if (plan->producers > plan->ring.stages)
        plan->producers = plan->ring.stages;
    const int staging = fixed + plan->ring.stages * plan->ring.bytes;
    const int merging = before + block_outputs_bytes(plan->width, plan->key_groups, plan->head_tiles);
    plan->shared = staging > merging ? staging : merging;
    return plan->shared <= device.shared_memory ? nullptr
                                                : "a block's shared memory does not hold the outputs of its warps";
}

/* Cuts a problem for blocks that plan_block has planned. Returns the cost of the cut. */
template <typename T>
inline double plan_blocks(const gpu_device &device, const copes_tpa_problem &problem, mma_plan *plan)
{
    const int stage = keys_of_stage(plan->width * (int)sizeof(T));
    const double bytes = bytes_of_key<T>(problem), ranks = (double)(2 * problem.rk + problem.rv);
    const cut_cost cost = {
        (double)(problem.b * problem.n * plan->head_groups),
        (double)device.multiprocessors,
        bytes,
        (is_f32<T> ? fitted::MMA_F32_BYTES_OF_FEATURE : fitted::MMA_BYTES_OF_FEATURE) * plan->head_tiles * plan->width *
            ranks / bytes,
        plan->ring.stages > plan->key_groups ? 1 : fitted::MMA_SLOWDOWN_WITHOUT_SPARE_STAGE,
        fitted::MMA_KEYS_OF_TILE * plan->head_tiles,
        problem.m,
        (int64_t)plan->key_groups * stage,
    };
    const double price = choose_cut(device, problem, cost, ALIGNMENT, &plan->cut);
    const int64_t stages = divide_up(plan->cut.cache.part / plan->cut.cluster, stage);
    plan->by_tile = divider(plan->head_tiles);
    plan->consumers = plan->key_groups;
    while (plan->consumers > 1 && plan->consumers / 2 >= stages)
        plan->consumers /= 2;
    return price;
}

} // namespace COPES_GPU::tpa::mma

#endif
