/* Families whose planners are still part of their launches. */
#include "backends/gpu/families.h"
#include "backends/gpu/kernels.h"

namespace COPES_GPU
{

static const gpu_queue &queue_of(const gpu_device &device)
{
    return static_cast<const gpu_queue &>(device);
}

namespace lrpe
{
template <typename T>
static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &, void *workspace)
{
    return run_lrpe<T>(queue, problem.lrpe, workspace);
}

template <typename T> copes_status plan(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    if (problem.softmax == COPES_OVER_SEQUENCE)
        return sequence::plan<T>(device, problem, false, plan);
    plan->workspace = lrpe_workspace<T>(queue_of(device), problem);
    take(plan, "lrpe<>", run<T>);
    return COPES_OK;
}

void list_variants(variant_list *list)
{
    list->add("lrpe<>");
}
template copes_status plan<f32>(const gpu_device &, const copes_lrpe_problem &, copes_plan *);
template copes_status plan<f16>(const gpu_device &, const copes_lrpe_problem &, copes_plan *);
template copes_status plan<bf16>(const gpu_device &, const copes_lrpe_problem &, copes_plan *);
} // namespace lrpe

namespace sequence
{
struct tiling {
    copes_lrpe_problem problem;
    bool given;
};

template <typename T>
static copes_status run(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *workspace)
{
    const tiling &t = tiling_of<tiling>(plan);
    return run_sequence<T>(queue, t.problem, t.given, workspace);
}

template <typename T>
copes_status plan(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    plan->workspace = sequence_workspace<T>(queue_of(device), problem, given);
    set_tiling(plan, tiling{problem, given});
    take(plan, "sequence<>", run<T>);
    return COPES_OK;
}

void list_variants(variant_list *list)
{
    list->add("sequence<>");
}
template copes_status plan<f32>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);
template copes_status plan<f16>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);
template copes_status plan<bf16>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);
} // namespace sequence

namespace tpa
{
template <typename T>
static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &, void *workspace)
{
    return run_tpa<T>(queue, problem.tpa, workspace);
}

template <typename T> copes_status plan(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan)
{
    plan->workspace = tpa_workspace<T>(queue_of(device), problem);
    take(plan, "tpa<>", run<T>);
    return COPES_OK;
}

void list_variants(variant_list *list)
{
    list->add("tpa<>");
}
template copes_status plan<f32>(const gpu_device &, const copes_tpa_problem &, copes_plan *);
template copes_status plan<f16>(const gpu_device &, const copes_tpa_problem &, copes_plan *);
template copes_status plan<bf16>(const gpu_device &, const copes_tpa_problem &, copes_plan *);
} // namespace tpa

} // namespace COPES_GPU
