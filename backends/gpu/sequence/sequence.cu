/* Softmax over the sequence: which method a problem goes to. */
#include "backends/gpu/sequence/methods.h"

namespace COPES_GPU::sequence
{

bool is_in_vectors(const copes_lrpe_problem &problem, int vector)
{
    const int64_t d = problem.d, encoded = problem.variant == COPES_LRPE_COSINE ? 2 * d : d;
    const int64_t plain[] = {problem.b, problem.n, problem.h, d}, wide[] = {problem.b, problem.n, problem.h, encoded};
    return in_vectors(problem.src, problem.backward ? wide : plain, 4, vector) &&
           in_vectors(problem.x, plain, 4, vector) &&
           in_vectors(problem.dst, problem.backward ? plain : wide, 4, vector);
}

template <typename T>
copes_status plan(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    if (problem.passes != COPES_BOTH_PASSES)
        return plan_pass<T>(device, problem, given, plan);
    copes_plan untold = {}; /* the passes' refusals, which are of no interest where a faster kernel is taken */
    const bool fast = plan_fast<T>(device, problem, given, plan),
               passes = takes_passes(device, problem, given, fast ? &untold : plan);
    if (!fast)
        COPES_TRY((passes ? plan_passes<T> : plan_columns<T>)(device, problem, given, plan));
    if (passes) /* also for a call whose cooperative launch the driver refuses, or whose tensors are not aligned */
        plan->workspace = greater(plan->workspace, parts_bytes(device, problem));
    return COPES_OK;
}

template copes_status plan<f32>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);
template copes_status plan<f16>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);
template copes_status plan<bf16>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);

template <typename... T> static void list_all(variant_list *list)
{
    (list_fast<T>(list), ...);
    (list_columns<T>(list), ...);
    (list_passes<T>(list), ...);
}

void list_variants(variant_list *list)
{
    list_all<f32, f16, bf16>(list);
    list_columns<any_type>(list);
    list_passes<any_type>(list);
}

} // namespace COPES_GPU::sequence
