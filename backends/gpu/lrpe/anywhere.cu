/* lrpe at any positions, where heads, batch entries or nothing but a row's pairs share angles. */
#include "backends/gpu/lrpe/anywhere.h"
#include "backends/gpu/lrpe/batch.h"

namespace COPES_GPU::lrpe
{

inline constexpr variant_word anywhere_name = "lrpe_anywhere";

template <typename T, encoding E, activation A, bool BACKWARD>
__global__ void lrpe_anywhere(GPU_PARAMETER batch_arguments<anywhere_plan> argument)
{
    run_block<T, E, A, BACKWARD>(argument);
}

template <typename T, encoding E, activation A>
bool plan_anywhere(const gpu_device &device, const copes_lrpe_problem &problem, bool batch_as_heads, copes_plan *plan)
{
    row_shape shape;
    if (!is_allowed(device, anywhere_name, plan))
        return false;
    if (const char *why = refuse_shape<T, E>(problem, A == activation::softmax, &shape))
        return refuse(plan, anywhere_name, why);
    if (problem.begin % vector_length<T> != 0)
        return refuse(plan, anywhere_name, no_begin<T>);
    if (const char *why = theta_source::refuse(problem))
        return refuse(plan, anywhere_name, why);
    const batch_method<anywhere_plan> methods[2] = {{lrpe_anywhere<T, E, A, false>, 0},
                                                    {lrpe_anywhere<T, E, A, true>, 0}};
    const bool alone = !batch_as_heads && problem.positions.data != nullptr && problem.positions.stride[1] != 0;
    return plan_shared<anywhere_name, T, E, A>(device, problem, shape,
                                               anywhere_plan(problem, batch_as_heads, shape.units, vector_length<T>),
                                               alone ? 1 : entries_wanted<T, E, A>(problem), methods, plan);
}

#define LRPE_INSTANTIATE(T, E, A)                                                                                      \
    template bool plan_anywhere<T, encoding::E, activation::A>(const gpu_device &, const copes_lrpe_problem &, bool,   \
                                                               copes_plan *);
#include "backends/gpu/lrpe/instantiate.inc"
#include "backends/gpu/lrpe/instantiate_narrow.inc"
#undef LRPE_INSTANTIATE

void list_anywhere(variant_list *list)
{
#define LRPE_INSTANTIATE(T, E, A)                                                                                      \
    list->add(row_variant<anywhere_name, T, encoding::E, activation::A, false>);                                       \
    list->add(row_variant<anywhere_name, T, encoding::E, activation::A, true>);
#include "backends/gpu/lrpe/instantiate.inc"
#include "backends/gpu/lrpe/instantiate_narrow.inc"
}

} // namespace COPES_GPU::lrpe
