/* What planners fill in. A family has one planner for a storage type; it asks its variants, the fastest first, and the first
 * that takes the problem fills in the plan. Planners run on any host: they see a gpu_device, and never the device itself. */
#ifndef COPES_BACKENDS_GPU_PLAN_H
#define COPES_BACKENDS_GPU_PLAN_H

extern "C" {
#include "backends/backend.h"
}

#include "backends/gpu/queue.h"

#include <string.h>
#include <string_view>
#include <type_traits>

namespace COPES_GPU
{

/* Enqueues what a plan says; of the family's own type behind copes_plan.run. */
typedef copes_status (*plan_run)(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan,
                                 void *workspace);

/* Notes that a variant does not take the problem. False, as what the variant's planner returns then. */
inline bool refuse(copes_plan *plan, std::string_view variant, const char *reason)
{
    if (plan->refused < COPES_PLAN_REFUSALS)
        plan->refusal[plan->refused++] = {variant.data(), reason};
    return false;
}

/* May a variant be asked at all? Not where another one is forced. `variant` is its name up to the "<". */
inline bool is_allowed(const gpu_device &device, std::string_view variant, copes_plan *plan)
{
    if (device.forced[0] == '\0' || variant == device.forced)
        return true;
    return refuse(plan, variant, "COPES_GPU_VARIANT forces another");
}

/* How a variant is launched. */
inline void set_launch(copes_plan *plan, dim3 grid, dim3 block, int64_t shared)
{
    const int64_t blocks[3] = {grid.x, grid.y, grid.z}, threads[3] = {block.x, block.y, block.z};
    memcpy(plan->grid, blocks, sizeof blocks);
    memcpy(plan->block, threads, sizeof threads);
    plan->shared = shared;
}

inline dim3 grid_of(const copes_plan &plan)
{
    return dim3((unsigned)plan.grid[0], (unsigned)plan.grid[1], (unsigned)plan.grid[2]);
}

inline dim3 block_of(const copes_plan &plan)
{
    return dim3((unsigned)plan.block[0], (unsigned)plan.block[1], (unsigned)plan.block[2]);
}

/* The variant's own part of a plan. */
template <typename Tiling> void set_tiling(copes_plan *plan, const Tiling &tiling)
{
    static_assert(std::is_trivially_copyable_v<Tiling> && sizeof tiling <= COPES_PLAN_TILING && alignof(Tiling) <= 16);
    memcpy(plan->tiling, &tiling, sizeof tiling);
}

template <typename Tiling> const Tiling &tiling_of(const copes_plan &plan)
{
    return *reinterpret_cast<const Tiling *>(plan.tiling);
}

/* Ends a planner that takes the problem; `variant` is the full name. */
inline bool take(copes_plan *plan, const char *variant, plan_run run)
{
    plan->variant = variant;
    plan->run = reinterpret_cast<void (*)()>(run);
    return true;
}

/* The names of all variants that are built, which every family adds its own to. */
struct variant_list {
    const char **names;
    size_t capacity, count;
    const char *sought; /* a name up to the "<", to find out whether it is there, or nullptr */
    bool found;

    void add(const char *name)
    {
        if (count < capacity)
            names[count] = name;
        count++;
        const size_t length = sought == nullptr ? 0 : strlen(sought);
        found = found || (length > 0 && strncmp(name, sought, length) == 0 && name[length] == '<');
    }
};

} // namespace COPES_GPU

#endif
