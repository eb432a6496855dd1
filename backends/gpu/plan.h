/* What planners fill in. A family has one planner for a storage type; it asks its variants, the fastest first, and the first
 * that takes the problem fills in the plan. Planners run on any host: they see a gpu_device, and never the device itself. */
#ifndef COPES_BACKENDS_GPU_PLAN_H
#define COPES_BACKENDS_GPU_PLAN_H

extern "C" {
#include "backends/backend.h"
}

#include "backends/gpu/names.h"
#include "backends/gpu/queue.h"

#include <string.h>
#include <type_traits>

namespace COPES_GPU
{

/* Enqueues a plan. The functions behind copes_plan.run and run_first have this type. */
typedef copes_status (*plan_run)(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan,
                                 void *workspace);

/* Notes that a variant does not take the problem. Returns false, which the variant's planner returns in turn. */
bool refuse(copes_plan *plan, const variant_word &variant, const char *reason);
bool refuse(copes_plan *plan, variant_word &&variant, const char *reason) = delete; /* the plan points to its letters */

/* May a planner ask a variant at all? `variant` is its name up to the "<". COPES_GPU_VARIANT names the only variant to
 * ask, or the variants not to ask, with a "-" before each (copes_variants). */
bool is_allowed(const gpu_device &device, const variant_word &variant, copes_plan *plan);

/* Does COPES_GPU_VARIANT name the only variant to ask? Then what is asked for is taken where it works, not where it is fast. */
inline bool asks_for_one(const gpu_device &device)
{
    return device.asked[0] != '\0' && device.asked[0] != '-';
}

/* Refuses a variant that has filled in the plan, for the tensors' addresses alone. Its workspace stays in the plan,
 * since a workspace must not depend on addresses. */
bool refuse_addresses(copes_plan *plan, const variant_word &variant);

void set_launch(copes_plan *plan, dim3 grid, dim3 block, int64_t shared);

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

/* The same, where kernels of type Kernel share `run`, which finds the plan's by planned<Kernel>. */
template <typename Kernel>
bool take(copes_plan *plan, const char *variant, plan_run run, std::type_identity_t<Kernel> *kernel)
{
    plan->kernel = reinterpret_cast<void (*)()>(kernel);
    return take(plan, variant, run);
}

template <typename Kernel> Kernel *planned(const copes_plan &plan)
{
    return reinterpret_cast<Kernel *>(plan.kernel);
}

/* Enqueues it. */
template <typename Kernel, typename... Arguments>
copes_status launch_plan(const gpu_queue &queue, const copes_plan &plan, const Arguments &...arguments)
{
    return launch(queue, planned<Kernel>(plan), grid_of(plan), block_of(plan), (size_t)plan.shared, arguments...);
}

/* The names of all variants of this build. Every family adds its own. */
struct variant_list {
    const char **names;
    size_t capacity, count;
    const char *sought; /* the letters of a name up to the "<" to look for */
    size_t length;      /* of them; 0: nothing is sought */
    bool found;

    void add(const char *name);
};

} // namespace COPES_GPU

#endif
