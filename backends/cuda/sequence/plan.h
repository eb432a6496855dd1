/* How the host cuts a problem into slabs, and which kernel takes it: one for a cluster or a group, and how wide. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_PLAN_H
#define COPES_BACKENDS_CUDA_SEQUENCE_PLAN_H

#include "backends/cuda/launch.h"
#include "backends/cuda/sequence/costs.h"
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
inline bool take_skew(const resident_kernel &k, const gpu_device &device, slab_tiling *t)
{
    const int most = k.cooperative ? 3 * t->steps - 1 : lesser<int>(CLUSTER_SKEW, t->steps - 1);
    t->stages = t->steps + k.ahead;
    const int64_t room = (int64_t)device.shared_memory - (int64_t)k.memory.bytes(*t);
    if (room < 0)
        return false;
    t->skew = (int)lesser<int64_t>(most, room / k.memory.stage);
    t->stages += t->skew;
    return true;
}

/* How many tiles have rotations in use at once: the tiles of SETS slabs, which are prepared, read, agreed on or
 * written. */
inline int rotation_sets(const resident_kernel &k, const slab_tiling &t)
{
    if (changes_tiles(t))
        return k.sets;
    return lesser(k.sets, 1 + (k.sets - 2 + t.batch) / t.batch + (t.whole_tiles < t.tiles));
}

/* Unsigned: where there is no data yet, strides may be such that sums wrap. */
inline thread_strides strides_through(const resident_kernel &k, const copes_view &view, int64_t tokens, int64_t steps)
{
    const uint64_t size = (uint64_t)k.element, token = (uint64_t)tokens * (uint64_t)view.stride[1];
    const uint64_t back = (uint64_t)(steps * k.batch) * token;
    return {(int64_t)(token * size), (int64_t)(((uint64_t)view.stride[0] - back) * size)};
}

/* The cut of a problem into slabs for groups of so many blocks. False where it does not fit, or the device has no
 * such groups. */
inline bool cut(const resident_kernel &k, const gpu_device &device, const copes_lrpe_problem &problem, int blocks,
                slab_tiling *t)
{
    const int64_t units = problem.d / k.vector, step_tokens = (int64_t)k.batch * blocks * k.rows;
    const int64_t steps = (problem.n + step_tokens - 1) / step_tokens, tiles = problem.h * units / k.units;
    const bool cooperates = device.cooperative && blocks <= MOST_BLOCKS;
    const int active = !k.cooperative ? device.clusters[blocks] : cooperates ? device.multiprocessors / blocks : 0;
    if (active == 0 || problem.h * units % k.units != 0 || (k.after_softmax == coding::half && units % 2 != 0) ||
        tiles * problem.b > INT32_MAX / 2 || steps > MOST_STEPS)
        return false;
    const int64_t stride = blocks * k.rows; /* from a token of a thread to its next */
    /* nvcc 13 would misplace these calls among designated initializers. */
    const thread_strides x = strides_through(k, problem.x, stride, steps),
                         g = strides_through(k, problem.src, stride, steps),
                         result = strides_through(k, problem.dst, stride, steps);
    *t = {.blocks = blocks,
          .steps = (int)steps,
          .units = (int)units,
          .tiles = (int)tiles,
          .batch = (int)problem.b,
          .x = x,
          .g = g,
          .result = result};
    share_out(active, t);
    t->sets = rotation_sets(k, *t);
    t->prefetch_128 = bytes_together(k, *t) >= 256;
    return tiles * problem.b <= (int64_t)MOST_SLABS * t->groups && take_skew(k, device, t);
}

/* What a cut needs for a launch alone: there are many cuts to compare, and one to launch. */
inline void complete(const resident_kernel &k, slab_tiling *t)
{
    const int64_t slabs = divide_up((int64_t)t->tiles * t->batch, t->groups);
    t->of_units = divider(t->units);
    t->of_shared = divider(greater(t->tiles - t->whole_tiles, 1)); /* slabs past the last one need a divisor */
    t->words = words_before(*t, k.totals, slabs, 0);
}

/* Bytes of the totals and values through which a cooperative launch's groups agree (totals.h). */
inline int64_t agreement_bytes(const resident_kernel &k, const slab_tiling &t)
{
    return t.words * (int64_t)sizeof(uint64_t) + (int64_t)t.groups * t.blocks * k.columns * (int64_t)sizeof(float);
}

struct sequence_plan {
    const resident_kernel *kernel = nullptr;
    slab_tiling tiling = {};
    double cost = INFINITY;
};

/* Takes a cut for groups of so many blocks, if there is one and it is cheaper than the plan's. */
inline void consider(const resident_kernel &k, const gpu_device &device, const copes_lrpe_problem &problem, int blocks,
                     sequence_plan *plan)
{
    slab_tiling t;
    if (!cut(k, device, problem, blocks, &t))
        return;
    const double cost = cost_of(k, t);
    if (cost < plan->cost)
        *plan = {&k, t, cost};
}

/* The cheapest cut over all kernels that are allowed, all sizes of clusters, and up to 16 groups that share the
 * device. */
inline sequence_plan cheapest_cut(const resident_kernel *kernels, const gpu_device &device,
                                  const copes_lrpe_problem &problem, copes_plan *refusals)
{
    sequence_plan plan;
    const bool block = is_allowed(device, block_name, refusals), cluster = is_allowed(device, cluster_name, refusals);
    for (int blocks = 1; blocks <= MOST_CLUSTER; blocks++)
        if (blocks == 1 ? block : cluster)
            consider(kernels[CLUSTER_128], device, problem, blocks, &plan);
    const bool allowed[RESIDENT_WIDTHS] = {false, is_allowed(device, wide_group_name, refusals),
                                           is_allowed(device, group_name, refusals),
                                           is_allowed(device, narrow_group_name, refusals)};
    for (int groups = 1; groups <= MOST_GROUPS && groups <= device.multiprocessors; groups++)
        for (int width = GROUP_256; width <= GROUP_64; width++)
            if (allowed[width])
                consider(kernels[width], device, problem, device.multiprocessors / groups, &plan);
    return plan;
}

/* The kernel's arguments. */
struct resident_arguments {
    copes_lrpe_problem problem;
    slab_tiling tiling;
};

inline copes_status run_resident(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *workspace)
{
    const resident_arguments &all = tiling_of<resident_arguments>(plan);
    slab_tiling tiling = all.tiling;
    tiling.totals = static_cast<uint64_t *>(workspace);
    return launch_ex(queue, {plan.cluster, plan.cooperative}, planned<resident_function>(plan), grid_of(plan),
                     block_of(plan), (size_t)plan.shared, all.problem, tiling);
}

inline void take_cut(const copes_lrpe_problem &problem, const sequence_plan &chosen, copes_plan *plan)
{
    const resident_kernel &k = *chosen.kernel;
    slab_tiling t = chosen.tiling;
    complete(k, &t);
    set_launch(plan, dim3((unsigned)(t.blocks * t.groups)), (unsigned)k.block, (int64_t)k.memory.bytes(t));
    plan->cluster = k.cooperative ? 1 : t.blocks;
    plan->cooperative = k.cooperative;
    plan->workspace = k.cooperative ? agreement_bytes(k, t) : 0;
    set_tiling(plan, resident_arguments{problem, t});
    take<resident_function>(plan, t.blocks == 1 ? k.alone : k.variant, run_resident, k.kernel);
}

/* False where no allowed kernel has slabs that fit the device. */
inline bool plan_resident(const resident_kernel *kernels, const gpu_device &device, const copes_lrpe_problem &problem,
                          copes_plan *plan)
{
    const sequence_plan chosen = cheapest_cut(kernels, device, problem, plan);
    if (chosen.kernel == nullptr)
        return refuse(plan, cluster_name,
                      "no slab of the problem fits the shared memory of the blocks that would share it");
    if (problem.n >= LONG_SEQUENCE && chosen.cost > cost_of_two_readings(kernels[GROUP_128], device, problem) &&
        !asks_for_one(device))
        return refuse(plan, cluster_name, "two readings of memory take less time");
    take_cut(problem, chosen, plan);
    return true;
}

} // namespace COPES_GPU::sequence

#endif
