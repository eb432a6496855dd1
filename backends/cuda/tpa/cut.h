/* How the host cuts the keys of a query token among blocks. Either all blocks are one cluster, which merges their
 * outputs in shared memory. Or the keys are cut into parts of one cluster each. Parts leave partial outputs in the
 * workspace, which the same blocks merge. */
#ifndef COPES_BACKENDS_CUDA_TPA_CUT_H
#define COPES_BACKENDS_CUDA_TPA_CUT_H

#include "backends/cuda/launch.h"
#include "backends/cuda/tpa/fitted.h"
#include "backends/gpu/divide.h"
#include "backends/gpu/tpa/merge.h"

namespace COPES_GPU::tpa
{

struct cluster_cut {
    int cluster;        /* blocks of a cluster */
    cache_cut cache;    /* parts of a query token's keys; a cluster has one part */
    divider by_place;   /* divides by the blocks of a query token */
    divider by_cluster; /* by the blocks of a cluster */
    divider by_n;       /* by the query tokens of a batch entry */
};

/* The work of a block: the heads from `head` on of a query token, and `count` of its keys from `begin` on. */
struct block_task {
    int64_t b, n, part;
    int head, count;
    int64_t begin;
};

/* Gives a block its keys. `place` numbers the blocks of a query token. A block's first key is a multiple of
 * ALIGNMENT. The blocks of a single cluster share the keys that the token sees. Parts have a fixed length, whatever
 * the token sees. */
template <int ALIGNMENT, bool NEIGHBOURS = false>
DEVICE void take_keys(block_task &task, const key_range &keys, const cluster_cut &cut, uint32_t place)
{
    const int64_t visible = keys.visible<NEIGHBOURS>(task.b, task.n);
    const uint32_t runs = (uint32_t)((visible + ALIGNMENT - 1) / ALIGNMENT); /* of ALIGNMENT keys */
    const int64_t shared_out = (int64_t)((runs + cut.cluster - 1) / cut.by_cluster) * ALIGNMENT;
    const int64_t length = cut.cache.parts > 1 ? (int64_t)((uint32_t)cut.cache.part / cut.by_cluster) : shared_out;
    task.begin = place * length;
    const int64_t left = visible - task.begin;
    task.count = (int)(left < 0 ? 0 : left < length ? left : length);
}

/* The cost of a cut. fitted.h defines its unit, a key. */
struct cut_cost {
    double queries; /* query tokens times their groups of heads */
    double multiprocessors;
    double bytes;    /* of a key */
    double slowness; /* the time of a key where arithmetic binds, not memory */
    double waiting;  /* multiplies slowness where no stage is filled while others are read */
    double latency;  /* of a block: it forms its query and finishes its outputs */
    int64_t m;       /* keys of the cache */
    int64_t round;   /* keys that a block reads until each of its warps has read one stage */

    /* `at_once` groups of heads run at a time. Each has `blocks` multiprocessors. */
    double operator()(int64_t blocks, double at_once, int alignment) const
    {
        const double waves = (double)divide_up((int64_t)queries, (int64_t)at_once);
        const double busy = (queries < at_once ? queries : at_once) * (double)blocks / multiprocessors;
        const int64_t keys = divide_up(divide_up(m, alignment), blocks) * alignment;
        const int64_t length = keys < round ? (keys + round) / 2 : divide_up(keys, round) * round;
        const double slow = keys > round ? slowness * waiting : slowness;
        return waves * ((double)length * (busy > slow ? busy : slow) + latency);
    }

    /* The cost of merging parts. */
    double merge() const
    {
        return fitted::BYTES_OF_MERGE / bytes;
    }
};

/* Bytes of a key: its coefficients and its features, of all ranks and heads. */
template <typename T> inline double bytes_of_key(const copes_tpa_problem &p)
{
    return (double)sizeof(T) * (double)(p.h * (p.rk + p.rv) + p.rk * p.d + p.rv * p.e);
}

/* Chooses the cheapest cut, and returns its cost. There are two kinds:
 *   one part   Each group of heads has one cluster, of 1 to 16 blocks. device.clusters says how many run at a time.
 *   parts      Each part has a cluster of two blocks, or one block where the device has no clusters. All blocks run at
 *              once, as blocks that wait for each other must. fitted.h limits the workspace for partial outputs. */
inline double choose_cut(const gpu_device &device, const copes_tpa_problem &problem, const cut_cost &cost,
                         int alignment, cluster_cut *cut)
{
    const int64_t queries = (int64_t)cost.queries, runs = divide_up(problem.m, alignment);
    double least = cost(1, device.multiprocessors, alignment);
    int64_t parts = 1;
    cut->cluster = 1;
    for (int size = 2; size <= MOST_CLUSTER; size++) {
        const int active = device.clusters[size];
        const double price =
            active > 0 ? cost(size, active, alignment) + fitted::KEYS_OF_CLUSTER_BLOCK * size : INFINITY;
        if (price < least)
            least = price, cut->cluster = size;
    }
    const int of_part = device.clusters[2] > 0 ? 2 : 1; /* blocks */
    const int64_t at_once = of_part == 2 ? device.clusters[2] : device.multiprocessors;
    const double share = fitted::MOST_PARTIALS * cost.bytes * (double)(problem.m * problem.b * problem.n),
                 limit = share < fitted::LEAST_BYTES_OF_PARTIALS ? fitted::LEAST_BYTES_OF_PARTIALS : share;
    const double most = limit / ((double)(problem.b * problem.n * problem.h) *
                                 (double)(partial_outputs::length(problem) * 4 + (int64_t)sizeof(row_state)));
    const int64_t each = can_merge(problem) ? lesser(at_once / queries, (int64_t)most) : 1;
    const double price = each > 1 ? cost(each * of_part, (double)(at_once / each), alignment) + cost.merge() : INFINITY;
    if (price < least)
        least = price, cut->cluster = of_part, parts = each;
    cut->cache = {parts, divide_up(runs, parts * cut->cluster) * alignment * cut->cluster};
    cut->by_place = divider(cut->cluster * parts);
    cut->by_cluster = divider(cut->cluster);
    cut->by_n = divider(problem.n);
    return least;
}

} // namespace COPES_GPU::tpa

#endif
