/* How the host cuts a tpa_decode problem for kernels whose blocks may be clusters: the blocks that share out a query
 * token's keys are a cluster, which merges within one launch, or fill the device and leave parts to merge. */
#ifndef COPES_BACKENDS_CUDA_TPA_CUT_H
#define COPES_BACKENDS_CUDA_TPA_CUT_H

#include "backends/cuda/launch.h"
#include "backends/gpu/divide.h"
#include "backends/gpu/tpa/merge.h"

namespace COPES_GPU::tpa
{

struct cluster_cut {
    int cluster;                        /* blocks of a cluster, which share out a part's keys */
    cache_cut cache;                    /* parts of a query token's keys, a cluster each */
    divider by_place, by_cluster, by_n; /* what a block divides to find its part: of places of a query token, say */
};

/* What a block has: a query token's heads from `head` on, and some of its keys. */
struct block_task {
    int64_t b, n, part;
    int head, count;
    int64_t begin;
};

/* Gives a block its keys: the blocks of a cluster share out what a query token sees, or a part of fixed length of it, in
 * units of UNIT keys; place: of a block among the token's. */
template <int UNIT>
DEVICE void take_keys(block_task &task, const key_range &keys, const cluster_cut &cut, uint32_t place)
{
    const int64_t visible = keys.visible(task.b, task.n);
    const uint32_t units = (uint32_t)((visible + UNIT - 1) / UNIT);
    const int64_t shared_out = (int64_t)((units + cut.cluster - 1) / cut.by_cluster) * UNIT;
    const int64_t length = cut.cache.parts > 1 ? (int64_t)((uint32_t)cut.cache.part / cut.by_cluster) : shared_out;
    task.begin = place * length;
    const int64_t left = visible - task.begin;
    task.count = (int)(left < 0 ? 0 : left < length ? left : length);
}

/* What a cut costs, in keys that a multiprocessor reads at its share of the memory's rate. */
struct cut_cost {
    double queries; /* query tokens times the groups that their heads are shared out in */
    double multiprocessors;
    double bytes;    /* of a key */
    double slowness; /* what a key costs a multiprocessor that has all of the memory's rate it can use */
    double waiting;  /* more than 1 where no stage comes while others are read */
    double latency;  /* of a block: its query and its outputs */
    int64_t m, round;

    /* `at_once` groups of heads are under way at a time, on `blocks` multiprocessors each. */
    double operator()(int64_t blocks, double at_once, int unit) const
    {
        const double waves = (double)divide_up((int64_t)queries, (int64_t)at_once);
        const double busy = (queries < at_once ? queries : at_once) * (double)blocks / multiprocessors;
        const int64_t keys = divide_up(divide_up(m, unit), blocks) * unit;
        const int64_t length = keys < round ? (keys + round) / 2 : divide_up(keys, round) * round;
        const double slow = keys > round ? slowness * waiting : slowness;
        return waves * ((double)length * (busy > slow ? busy : slow) + latency);
    }

    /* Of parts: about 3 microseconds, as when that was a second launch. With two thirds of that as many calls lose as gain. */
    double merge() const
    {
        return 1e5 / bytes;
    }
};

/* Bytes of a key, of all its ranks and heads. */
template <typename T> inline double bytes_of_key(const copes_tpa_problem &p)
{
    return (double)sizeof(T) * (double)(p.h * (p.rk + p.rv) + p.rk * p.d + p.rv * p.e);
}

/* Chooses between a cluster of 1 to 16 blocks for each group of heads, of which so many run at a time, and parts
 * that fill the device once, as those of blocks that meet have to, a pair of blocks each, or, where there are no clusters
 * to choose, one. Parts' outputs are to be few: they are held to 1 % of the cache, or a megabyte. Returns what that costs. */
inline double choose_cut(const gpu_device &device, const copes_tpa_problem &problem, const cut_cost &cost, int unit,
                         cluster_cut *cut)
{
    const int64_t queries = (int64_t)cost.queries, units = divide_up(problem.m, unit);
    double least = cost(1, device.multiprocessors, unit);
    int64_t parts = 1;
    cut->cluster = 1;
    for (int size = 2; size <= MOST_CLUSTER; size++) {
        const int active = device.clusters[size];
        const double price = active > 0 ? cost(size, active, unit) + 4.0 * size : INFINITY;
        if (price < least)
            least = price, cut->cluster = size;
    }
    const int pairs = device.clusters[2], pair = pairs > 0 ? 2 : 1;
    const int64_t seats = pairs > 0 ? pairs : device.multiprocessors;
    const double share = 0.01 * cost.bytes * (double)(problem.m * problem.b * problem.n),
                 room = share < 0x1p20 ? 0x1p20 : share;
    const double most = room / ((double)(problem.b * problem.n * problem.h) *
                                (double)(partial_outputs::length(problem) * 4 + (int64_t)sizeof(row_state)));
    const int64_t each = can_merge(problem) ? std::min(seats / queries, (int64_t)most) : 1;
    const double price = each > 1 ? cost(each * pair, (double)(seats / each), unit) + cost.merge() : INFINITY;
    if (price < least)
        least = price, cut->cluster = pair, parts = each;
    cut->cache = {parts, divide_up(units, parts * cut->cluster) * unit * cut->cluster};
    cut->by_place = divider(cut->cluster * parts);
    cut->by_cluster = divider(cut->cluster);
    cut->by_n = divider(problem.n);
    return least;
}

} // namespace COPES_GPU::tpa

#endif
