/* How the host cuts tpa_decode for the tensor-core kernel: among how many blocks a query token's heads are shared out,
 * warps and stages of a block, and whether the blocks that share out its keys are a cluster, which merges within one
 * launch, or fill the device and leave parts to merge. */
#ifndef COPES_BACKENDS_CUDA_TPA_PLAN_H
#define COPES_BACKENDS_CUDA_TPA_PLAN_H

#include "backends/cuda/clusters.h"
#include "backends/cuda/tpa_combine.h"
#include "backends/gpu/divide.h"

namespace COPES_GPU
{

enum {
    MOST_WARPS = 12,
    MOST_COPIERS = 4,
    MOST_STAGES = 16,
    UNIT = 16, /* keys that begin a part: coefficients begin at 16 bytes there */
    BARRIER_BYTES = 2 * MOST_STAGES * 8,
    STATE_BYTES = MOST_WARPS * WARP_HEADS * 8 /* of all warps' rows */
};

/* Warps of a block, as far as registers reach: 168 or, for rows of 256 features, 255 a thread. */
__host__ __device__ constexpr int most_warps(int width)
{
    return width <= 128 ? (int)MOST_WARPS : 8;
}

/* A block's warps are (key groups, head tiles), the head tiles innermost, and after them those that copy. All of the
 * key groups form the query, and the first `readers` of them read keys. */
struct mma_plan {
    int width;
    int head_groups; /* blocks, or clusters of them, that a query token's heads are shared out among */
    int head_tiles;  /* of a block */
    int key_groups, readers, copiers;
    int cluster;   /* blocks of a cluster, which share out a part's keys */
    cache_cut cut; /* parts of a query token's keys, a cluster each */
    stage_ring ring;
    int query_parts;
    bool pairs;                                  /* neighbours of the output are written as one word */
    int shared;                                  /* bytes */
    divider by_place, by_cluster, by_n, by_tile; /* what a block divides to find its part, and a warp its tile */
};

inline int64_t divide_up(int64_t whole, int64_t part)
{
    return (whole + part - 1) / part;
}

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

/* Warps and stages. Every slot of the ring has one key group and one copier for good, so that each sees all its phases:
 * their numbers are powers of 2 and divide the number of slots. */
template <typename T>
inline bool plan_block(const queue &to, const copes_tpa_problem &problem, int head_groups, mma_plan *plan)
{
    const int64_t size = problem.d > problem.e ? problem.d : problem.e;
    plan->width = size <= 64 ? 64 : size <= 128 ? 128 : 256;
    const int warps = most_warps(plan->width);
    plan->head_groups = head_groups;
    plan->head_tiles = head_tiles_of(problem) / head_groups;
    plan->query_parts = parts_of_query<T>(problem.lse.data != nullptr);
    plan->ring = ring_of<T>(problem, plan->width);
    const int before = BARRIER_BYTES + 2 * STATE_BYTES,
              fixed = before + plan->head_tiles * query_bytes(plan->width, plan->query_parts);
    const int stages = (to.shared_memory - fixed) / plan->ring.bytes;
    if (plan->head_tiles >= warps || stages < 2)
        return false;
    plan->ring.stages = largest_power(stages < MOST_STAGES ? stages : MOST_STAGES);
    const int groups = warps * 3 / 4 / plan->head_tiles;
    plan->key_groups = largest_power(groups < plan->ring.stages ? groups : plan->ring.stages);
    const int copiers = warps - plan->head_tiles * plan->key_groups;
    plan->copiers = largest_power(copiers < MOST_COPIERS ? copiers : MOST_COPIERS);
    if (plan->copiers > plan->ring.stages)
        plan->copiers = plan->ring.stages;
    const int staging = fixed + plan->ring.stages * plan->ring.bytes;
    const int merging = before + block_outputs_bytes(plan->width, plan->key_groups, plan->head_tiles);
    plan->shared = staging > merging ? staging : merging;
    return plan->shared <= to.shared_memory;
}

/* What a cut costs, in keys that a multiprocessor reads at its share of the memory's rate. */
struct mma_cost {
    double queries, multiprocessors, bytes, slowness;
    double waiting; /* more than 1 where no stage comes while others are read */
    double tiles;
    int64_t m, round;

    template <typename T> static mma_cost of(const queue &to, const copes_tpa_problem &problem, const mma_plan &plan)
    {
        const double ranks = (double)(2 * problem.rk + problem.rv), size = sizeof(T);
        const double bytes =
            size * (double)(problem.h * (problem.rk + problem.rv) + problem.rk * problem.d + problem.rv * problem.e);
        /* measured: 26 clocks a key at two head tiles of 128 features and rank 1, where its bytes take 35 */
        const double slowness = (is_single<T> ? 3.5 : 0.625) * plan.head_tiles * plan.width * ranks / bytes;
        return {(double)(problem.b * problem.n * plan.head_groups),
                (double)to.multiprocessors,
                bytes,
                slowness,
                plan.ring.stages > plan.key_groups ? 1 : 1.3,
                (double)plan.head_tiles,
                problem.m,
                (int64_t)plan.key_groups * keys_of_stage(plan.width * (int)sizeof(T))};
    }

    /* `at_once` groups of heads are under way at a time, on `blocks` multiprocessors each. */
    double operator()(int64_t blocks, double at_once) const
    {
        const double waves = (double)divide_up((int64_t)queries, (int64_t)at_once);
        const double busy = (queries < at_once ? queries : at_once) * (double)blocks / multiprocessors;
        const int64_t keys = divide_up(divide_up(m, UNIT), blocks) * UNIT;
        const int64_t length = keys < round ? (keys + round) / 2 : divide_up(keys, round) * round;
        const double slow = keys > round ? slowness * waiting : slowness;
        const double latency = 20 * tiles; /* measured: some 700 clocks a tile, for its query and its outputs */
        return waves * ((double)length * (busy > slow ? busy : slow) + latency);
    }

    /* A second launch, about 3 microseconds. */
    double merge() const
    {
        return 1e5 / bytes;
    }
};

/* Chooses between a cluster of 1 to 16 blocks for each group of heads, of which so many run at a time, and parts
 * that fill the device, a pair of blocks each where there are clusters. Parts' outputs are to be few: they are held to
 * 1 % of the cache, or a megabyte. Returns what that costs. */
template <typename T> inline double plan_blocks(const queue &to, const copes_tpa_problem &problem, mma_plan *plan)
{
    const mma_cost cost = mma_cost::of<T>(to, problem, *plan);
    const int64_t queries = (int64_t)cost.queries, units = divide_up(problem.m, UNIT);
    double least = cost(1, to.multiprocessors);
    plan->cluster = 1;
    plan->cut.parts = 1;
    for (int size = 2; size <= MOST_CLUSTER; size++) {
        const int active = active_clusters(to, size);
        const double price = active > 0 ? cost(size, active) + 4.0 * size : INFINITY;
        if (price < least)
            least = price, plan->cluster = size;
    }
    const int pairs = active_clusters(to, 2), pair = pairs > 0 ? 2 : 1;
    const int64_t seats = pairs > 0 ? pairs : to.multiprocessors;
    const double share = 0.01 * cost.bytes * (double)(problem.m * problem.b * problem.n),
                 room = share < 0x1p20 ? 0x1p20 : share;
    for (int waves = 1; waves <= 3 && can_merge(problem); waves++) {
        const double most = room / ((double)(problem.b * problem.n * problem.h) * (double)(problem.e + 2) * 4);
        int64_t parts = seats * waves / queries;
        parts = (double)parts < most ? parts : (int64_t)most;
        const double at_once = parts > 0 ? (double)(seats / parts) : 0;
        const double price = at_once >= 1 ? cost(parts * pair, at_once) + cost.merge() : INFINITY;
        if (parts > 1 && price < least)
            least = price, plan->cluster = pair, plan->cut.parts = parts;
    }
    plan->cut.part = divide_up(units, plan->cut.parts * plan->cluster) * UNIT * plan->cluster;
    const int64_t stages = divide_up(plan->cut.part / plan->cluster, keys_of_stage(plan->width * (int)sizeof(T)));
    plan->by_place = divider(plan->cluster * plan->cut.parts);
    plan->by_cluster = divider(plan->cluster);
    plan->by_n = divider(problem.n);
    plan->by_tile = divider(plan->head_tiles);
    plan->readers = plan->key_groups;
    while (plan->readers > 1 && plan->readers / 2 >= stages)
        plan->readers /= 2;
    return least;
}

} // namespace COPES_GPU

#endif
