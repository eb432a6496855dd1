/* lrpe on a grid where batch entries share angles. */
#include "backends/gpu/lrpe/batch.h"

namespace COPES_GPU::lrpe
{

inline constexpr variant_word batch_name = "lrpe_batch";

template <typename T, encoding E, activation A>
bool plan_batch(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    row_shape shape;
    if (!is_allowed(device, batch_name, plan))
        return false;
    if (const char *why = refuse_anywhere(problem))
        return refuse(plan, batch_name, why);
    if (const char *why = refuse_shape<T, E>(problem, A == activation::softmax, &shape))
        return refuse(plan, batch_name, why);
    if (const char *why = theta_source::refuse(problem))
        return refuse(plan, batch_name, why);
    return plan_shared<batch_name, T, E, A>(device, problem, shape,
                                            rotation_plan(problem, shape.units, vector_length<T>),
                                            entries_wanted<T, E, A>(problem), plan);
}

#define LRPE_INSTANTIATE(T, E, A)                                                                                      \
    template bool plan_batch<T, encoding::E, activation::A>(const gpu_device &, const copes_lrpe_problem &,            \
                                                            copes_plan *);
#include "backends/gpu/lrpe/instantiate.inc"
#undef LRPE_INSTANTIATE

void list_batch(variant_list *list)
{
#define LRPE_INSTANTIATE(T, E, A)                                                                                      \
    list->add(row_variant<batch_name, T, encoding::E, activation::A, false>);                                          \
    list->add(row_variant<batch_name, T, encoding::E, activation::A, true>);
#include "backends/gpu/lrpe/instantiate.inc"
}

} // namespace COPES_GPU::lrpe
