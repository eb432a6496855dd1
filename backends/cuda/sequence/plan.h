/* How the host cuts a problem into slabs, and by which of the kernels: for a cluster or a group, and how wide. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_PLAN_H
#define COPES_BACKENDS_CUDA_SEQUENCE_PLAN_H

#include "backends/cuda/launch.h"
#include "backends/cuda/sequence/totals.h"

#include <algorithm>

namespace COPES_GPU::sequence
{

enum { MOST_STEPS = 1 << 10, SKEW = 3, MOST_GROUPS = 16 };

/* Shares slabs out among as many clusters as the device runs at once. */
inline void share_out(int64_t active, slab_tiling *t)
{
    const int64_t slabs = (int64_t)t->pairs * t->batch;
    t->clusters = (int)(active < slabs ? active : slabs);
    t->whole = t->pairs / t->clusters * t->clusters;
    t->rounds = t->whole / t->clusters * t->batch;
}

/* The steps that it takes a group to agree, the more the shorter they are. */
template <typename U> double agreement_of(int ranks)
{
    if (!U::ROTATED)
        return 4.6 + 0.045 * ranks;
    return U::BACKWARD ? 2.7 + 0.015 * ranks : 3 + 0.018 * ranks;
}

/* Takes as many steps for the blocks to agree as there is room for, and are of use: few in a cluster; in a group those of
 * nearly three slabs. False where there is no room at all. */
template <typename U> bool take_skew(const gpu_device &device, slab_tiling *t)
{
    const int most = U::GROUPED ? 3 * t->steps - 1 : std::min<int>(SKEW, t->steps - 1);
    t->slots = t->steps + U::AHEAD;
    const int64_t room = (int64_t)device.shared_memory - (int64_t)block_memory<U>::bytes(*t);
    if (room < 0)
        return false;
    t->skew = (int)std::min<int64_t>(most, room / U::SLOT);
    t->slots += t->skew;
    return true;
}

/* Bytes of a token that a cluster has side by side, and that all of them together have. */
template <typename U> inline constexpr int PIECE_BYTES = U::LANES * (U::C == coding::half ? 8 : 16);
template <typename U> int bytes_together(const slab_tiling &t)
{
    return PIECE_BYTES<U> * t.clusters;
}

/* Is each slab that a cluster shares with others of another pair than its last? Else all are of one. */
inline bool changes_pairs(const slab_tiling &t)
{
    return t.whole < t.pairs && t.clusters % (t.pairs - t.whole) != 0;
}

/* The pairs whose rotations may be in use at once: of four slabs, or eight, which are prepared, read, agreed on or written. */
template <typename U> int rotation_sets(const slab_tiling &t)
{
    constexpr int SLABS = block_memory<U>::SETS;
    return changes_pairs(t) ? SLABS : std::min(SLABS, 1 + (SLABS - 2 + t.batch) / t.batch + (t.whole < t.pairs));
}

/* Unsigned, as where there is no data yet strides may be such that sums wrap. */
template <typename U> thread_strides strides_through(const copes_view &view, int64_t tokens, int64_t steps)
{
    const uint64_t size = sizeof(typename U::T), token = (uint64_t)tokens * (uint64_t)view.stride[1];
    const uint64_t back = (uint64_t)(steps * U::BATCH) * token;
    return {(int64_t)(token * size), (int64_t)(((uint64_t)view.stride[0] - back) * size)};
}

/* The cut of a problem into slabs for clusters of `ranks` blocks; false where it does not fit, or the device has no such
 * clusters. */
template <typename U> bool cut(const gpu_device &device, const copes_lrpe_problem &problem, int ranks, slab_tiling *t)
{
    const int64_t units = problem.d / U::N, step = (int64_t)U::BATCH * ranks * U::ROWS;
    const int64_t steps = (problem.n + step - 1) / step, pairs = problem.h * units / U::LANES;
    const bool groups = device.cooperative && ranks <= MOST_BLOCKS;
    const int active = !U::GROUPED ? device.clusters[ranks] : groups ? device.multiprocessors / ranks : 0;
    if (active == 0 || problem.h * units % U::LANES != 0 || (U::C == coding::half && units % 2 != 0) ||
        pairs * problem.b > INT32_MAX / 2 || steps > MOST_STEPS)
        return false;
    const int64_t tokens = ranks * U::ROWS; /* between a thread's */
    /* As calls among designated initializers, nvcc 13 would misplace them all. */
    const thread_strides x = strides_through<U>(problem.x, tokens, steps),
                         g = strides_through<U>(problem.src, tokens, steps),
                         result = strides_through<U>(problem.dst, tokens, steps);
    *t = {.ranks = ranks,
          .steps = (int)steps,
          .units = (int)units,
          .pairs = (int)pairs,
          .batch = (int)problem.b,
          .x = x,
          .g = g,
          .to = result};
    share_out(active, t);
    t->sets = rotation_sets<U>(*t);
    t->around = bytes_together<U>(*t) >= 256;
    return pairs * problem.b <= (int64_t)block_memory<U>::MOST * t->clusters && take_skew<U>(device, t);
}

/* What slabs of some width cost beside others, as measured. Clusters side by side share lines of memory if they come to
 * them at about the same time, as they do so far that it hardly matters how few bytes each has; but what is of no whole
 * number of lines comes again with the next slabs. Of an odd number of groups those that share lines are not neighbours
 * on the device. */
template <typename U> double width_cost(const slab_tiling &t)
{
    constexpr int PIECE = PIECE_BYTES<U>;
    const int together = bytes_together<U>(t);
    const double lines = together < 64 ? 3 : together % 128 != 0 ? 1.8 : 1, odd = t.clusters % 2;
    if (U::C == coding::half && PIECE == 64)
        return lines * ((U::BACKWARD ? 0.97 + 0.35 / t.clusters : 1 + 0.15 / t.clusters) + 0.2 * odd);
    if (PIECE < 64)
        return lines * 1.8;
    if (U::LANES < 8)
        return lines * ((U::BACKWARD ? 1.06 : 1.25) + 1.5 * odd);
    if (U::BACKWARD)
        return lines * (U::LANES == 8 ? 1 : U::ROTATED ? 1.03 : 1.5);
    return lines * (U::LANES > 8 ? 1 : 1.15);
}

/* The time of a cut, in units of a thread: slabs that a cluster takes one after another, and a step more for what each
 * begins and ends with; where blocks have to agree what of that the skew leaves uncovered, in a cluster about one step;
 * and two for new rotations, where each of the slabs that are shared is of another pair. A group takes some to begin with. */
template <typename U> double cost_of(const slab_tiling &t)
{
    const int64_t slabs = (int64_t)t.pairs * t.batch, rounds = (slabs + t.clusters - 1) / t.clusters;
    const double agreeing = U::GROUPED ? std::max(0.0, agreement_of<U>(t.ranks) - t.skew) : t.ranks > 1;
    const double turning = U::ROTATED && changes_pairs(t) ? 2.0 * (double)(rounds - t.rounds) : 0;
    const double steps = (double)rounds * (t.steps + 1 + agreeing) + turning;
    return (steps * width_cost<U>(t) + (U::GROUPED ? 6.5 : 0)) * U::BATCH * U::THREADS;
}

enum class cut_kind { none, cluster, wide_group, group, narrow_group };

struct sequence_plan {
    cut_kind kind = cut_kind::none;
    slab_tiling tiling = {};
    double cost = INFINITY;
    int64_t workspace = 0;
};

/* Takes a cut for groups of `ranks` blocks, if there is one and it is cheaper than the plan's. */
template <typename U>
void consider(const gpu_device &device, const copes_lrpe_problem &problem, cut_kind kind, int ranks,
              sequence_plan *plan)
{
    slab_tiling t;
    if (!cut<U>(device, problem, ranks, &t) || cost_of<U>(t) >= plan->cost)
        return;
    *plan = {kind, t, cost_of<U>(t)};
    if constexpr (U::GROUPED)
        plan->workspace = (int64_t)group_totals<U>::bytes(t);
}

/* The kernels of an encoding and direction: slabs of 128 bytes in a cluster, and of 256, 128 and 64 in a group. */
template <typename T, coding C, role R> struct instances {
    typedef unit_of<T, C, R, 8> cluster;
    typedef unit_of<T, C, R, 16, scope::group> wide_group;
    typedef unit_of<T, C, R, 8, scope::group> group;
    typedef unit_of<T, C, R, 4, scope::group> narrow_group;
};

/* The cheapest cut over all kernels that are allowed, sizes of clusters, and ways to share out the device among up to 16
 * groups. */
template <typename T, coding C, role R>
sequence_plan plan_of(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *refusals)
{
    typedef instances<T, C, R> all;
    sequence_plan plan;
    const bool block = is_allowed(device, block_name, refusals), cluster = is_allowed(device, cluster_name, refusals);
    for (int ranks = 1; ranks <= MOST_CLUSTER; ranks++)
        if (ranks == 1 ? block : cluster)
            consider<typename all::cluster>(device, problem, cut_kind::cluster, ranks, &plan);
    const bool wide = is_allowed(device, wide_group_name, refusals), group = is_allowed(device, group_name, refusals),
               narrow = is_allowed(device, narrow_group_name, refusals);
    for (int groups = 1; groups <= MOST_GROUPS && groups <= device.multiprocessors; groups++) {
        const int ranks = device.multiprocessors / groups;
        if (wide)
            consider<typename all::wide_group>(device, problem, cut_kind::wide_group, ranks, &plan);
        if (group)
            consider<typename all::group>(device, problem, cut_kind::group, ranks, &plan);
        if (narrow)
            consider<typename all::narrow_group>(device, problem, cut_kind::narrow_group, ranks, &plan);
    }
    if (plan.kind == cut_kind::none)
        refuse(refusals, cluster_name,
               "no slab of the problem fits the shared memory of the blocks that would share it");
    return plan;
}

} // namespace COPES_GPU::sequence

#endif
