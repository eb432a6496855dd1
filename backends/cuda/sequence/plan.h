/* How the host cuts a problem into slabs, and which kernel takes it: one for a cluster or a group, and how wide. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_PLAN_H
#define COPES_BACKENDS_CUDA_SEQUENCE_PLAN_H

#include "backends/cuda/launch.h"
#include "backends/cuda/sequence/costs.h"
#include "backends/cuda/sequence/totals.h"
#include "backends/gpu/sequence/methods.h"

namespace COPES_GPU::sequence
{

enum { MOST_STEPS = 1 << 10, MOST_GROUPS = 16 };

/* Shares slabs out among as many groups as the device runs at once. */
inline void share_out(int64_t active, slab_tiling *t)
{
    const int64_t slabs = (int64_t)t->tiles * t->batch;
    t->groups = (int)(active < slabs ? active : slabs);
    t->whole_tiles = t->tiles / t->groups * t->groups;
    t->whole_slabs = t->whole_tiles / t->groups * t->batch;
}

/* Gives the agreement as many steps as there is room for in the ring, and as the kernel allows (shared.h): less than
 * one slab's in a cluster, less than three slabs' in a cooperative launch. False where there is no room at all. */
template <typename K> bool take_skew(const gpu_device &device, slab_tiling *t)
{
    const int most = K::COOPERATIVE ? 3 * t->steps - 1 : lesser<int>(CLUSTER_SKEW, t->steps - 1);
    t->stages = t->steps + K::AHEAD;
    const int64_t room = (int64_t)device.shared_memory - (int64_t)block_memory<K>::bytes(*t);
    if (room < 0)
        return false;
    t->skew = (int)lesser<int64_t>(most, room / K::STAGE_BYTES);
    t->stages += t->skew;
    return true;
}

/* How many tiles have rotations in use at once: the tiles of SETS slabs, which are prepared, read, agreed on or
 * written. */
template <typename K> int rotation_sets(const slab_tiling &t)
{
    constexpr int SLABS = block_memory<K>::SETS;
    return changes_tiles(t) ? SLABS : lesser(SLABS, 1 + (SLABS - 2 + t.batch) / t.batch + (t.whole_tiles < t.tiles));
}

/* Unsigned: where there is no data yet, strides may be such that sums wrap. */
template <typename K> thread_strides strides_through(const copes_view &view, int64_t tokens, int64_t steps)
{
    const uint64_t size = sizeof(typename K::T), token = (uint64_t)tokens * (uint64_t)view.stride[1];
    const uint64_t back = (uint64_t)(steps * K::BATCH) * token;
    return {(int64_t)(token * size), (int64_t)(((uint64_t)view.stride[0] - back) * size)};
}

/* The cut of a problem into slabs for groups of so many blocks. False where it does not fit, or the device has no
 * such groups. */
template <typename K> bool cut(const gpu_device &device, const copes_lrpe_problem &problem, int blocks, slab_tiling *t)
{
    const int64_t units = problem.d / K::N, step_tokens = (int64_t)K::BATCH * blocks * K::ROWS;
    const int64_t steps = (problem.n + step_tokens - 1) / step_tokens, tiles = problem.h * units / K::UNITS;
    const bool cooperates = device.cooperative && blocks <= MOST_BLOCKS;
    const int active = !K::COOPERATIVE ? device.clusters[blocks] : cooperates ? device.multiprocessors / blocks : 0;
    if (active == 0 || problem.h * units % K::UNITS != 0 || (K::C == coding::half && units % 2 != 0) ||
        tiles * problem.b > INT32_MAX / 2 || steps > MOST_STEPS)
        return false;
    const int64_t stride = blocks * K::ROWS; /* from a token of a thread to its next */
    /* nvcc 13 would misplace these calls among designated initializers. */
    const thread_strides x = strides_through<K>(problem.x, stride, steps),
                         g = strides_through<K>(problem.src, stride, steps),
                         result = strides_through<K>(problem.dst, stride, steps);
    *t = {.blocks = blocks,
          .steps = (int)steps,
          .units = (int)units,
          .tiles = (int)tiles,
          .batch = (int)problem.b,
          .x = x,
          .g = g,
          .result = result};
    share_out(active, t);
    t->sets = rotation_sets<K>(*t);
    t->prefetch_128 = bytes_together<K>(*t) >= 256;
    return tiles * problem.b <= (int64_t)block_memory<K>::MOST_SLABS * t->groups && take_skew<K>(device, t);
}

enum class cut_kind { none, cluster, wide_group, group, narrow_group };

struct sequence_plan {
    cut_kind kind = cut_kind::none;
    slab_tiling tiling = {};
    double cost = INFINITY;
    int64_t workspace = 0;
};

/* Takes a cut for groups of so many blocks, if there is one and it is cheaper than the plan's. */
template <typename K>
void consider(const gpu_device &device, const copes_lrpe_problem &problem, cut_kind kind, int blocks,
              sequence_plan *plan)
{
    slab_tiling t;
    if (!cut<K>(device, problem, blocks, &t) || cost_of<K>(t) >= plan->cost)
        return;
    *plan = {kind, t, cost_of<K>(t)};
    if constexpr (K::COOPERATIVE)
        plan->workspace = (int64_t)group_totals<K>::bytes(t);
}

/* The kernels of an encoding and direction: slabs of 128 bytes in a cluster, and of 256, 128 and 64 in a cooperative
 * launch. */
template <typename T, coding C, role R> struct instances {
    typedef kernel_of<T, C, R, 8> cluster;
    typedef kernel_of<T, C, R, 16, scope::cooperative> wide_group;
    typedef kernel_of<T, C, R, 8, scope::cooperative> group;
    typedef kernel_of<T, C, R, 4, scope::cooperative> narrow_group;
};

/* The cheapest cut over all kernels that are allowed, all sizes of clusters, and up to 16 groups that share the
 * device. */
template <typename T, coding C, role R>
sequence_plan plan_of(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *refusals)
{
    typedef instances<T, C, R> all;
    sequence_plan plan;
    const bool block = is_allowed(device, block_name, refusals), cluster = is_allowed(device, cluster_name, refusals);
    for (int blocks = 1; blocks <= MOST_CLUSTER; blocks++)
        if (blocks == 1 ? block : cluster)
            consider<typename all::cluster>(device, problem, cut_kind::cluster, blocks, &plan);
    const bool wide = is_allowed(device, wide_group_name, refusals), group = is_allowed(device, group_name, refusals),
               narrow = is_allowed(device, narrow_group_name, refusals);
    for (int groups = 1; groups <= MOST_GROUPS && groups <= device.multiprocessors; groups++) {
        const int blocks = device.multiprocessors / groups;
        if (wide)
            consider<typename all::wide_group>(device, problem, cut_kind::wide_group, blocks, &plan);
        if (group)
            consider<typename all::group>(device, problem, cut_kind::group, blocks, &plan);
        if (narrow)
            consider<typename all::narrow_group>(device, problem, cut_kind::narrow_group, blocks, &plan);
    }
    if (plan.kind == cut_kind::none)
        refuse(refusals, cluster_name,
               "no slab of the problem fits the shared memory of the blocks that would share it");
    else if (problem.n >= LONG_SEQUENCE && plan.cost > cost_of_two_readings<typename all::group>(device, problem) &&
             !asks_for_one(device)) {
        refuse(refusals, cluster_name, "two readings of memory take less time");
        plan.kind = cut_kind::none;
    }
    return plan;
}

} // namespace COPES_GPU::sequence

#endif
