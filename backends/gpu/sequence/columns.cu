/* Softmax over the sequence in one launch, alone or before an encoding, on any GPU and of any length. The blocks of a cluster
 * share a slab; without clusters one block has it. The block reads a slab twice. Memory bounds the first reading. The second
 * reading is bounded by the share of the slabs that the caches still hold. Where a vendor's own kernel can keep a slab on chip,
 * that kernel comes first. */
#include "backends/gpu/sequence/columns_plan.h"

namespace COPES_GPU::sequence
{

inline constexpr columns_method whole = {columns_name, COPES_BOTH_PASSES};

/* The kernel's arguments. */
struct columns_arguments {
    copes_lrpe_problem problem;
    columns_choice chosen;
};

static copes_status run_columns(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    const columns_arguments &all = tiling_of<columns_arguments>(plan);
    return all.chosen.launch(queue, all.problem, all.chosen.cut, nullptr);
}

void take_columns(const copes_lrpe_problem &problem, const columns_choice &chosen, copes_plan *plan)
{
    set_launch(plan, chosen.cut.grid, THREADS, 0);
    plan->cluster = chosen.cut.clusters ? (int)chosen.cut.blocks : 1;
    set_tiling(plan, columns_arguments{problem, chosen});
    take(plan, chosen.variant, run_columns);
}

template <typename T>
copes_status plan_columns(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    columns_choice chosen = {};
    COPES_TRY((choose_columns<whole, T>(device, problem, given, 0, &chosen)));
    take_columns(problem, chosen, plan);
    return COPES_OK;
}

template <typename T> void list_columns(variant_list *list)
{
    list_method<whole, T>(list);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status plan_columns<T>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);         \
    template void list_columns<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::sequence
