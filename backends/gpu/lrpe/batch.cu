/* lrpe on a grid where batch entries share angles. */
#include "backends/gpu/lrpe/batch.h"

namespace COPES_GPU::lrpe
{

inline constexpr variant_word batch_name = "lrpe_batch";

/* Registers of a thread: as few as lose nothing to memory, so that the blocks of a short call run at once. A compiler that may choose takes
 * a few more. */
template <typename T, encoding E, activation A, bool BACKWARD> constexpr int batch_registers()
{
    constexpr bool cosine = E == encoding::cosine, none = A == activation::none;
    if (sizeof(T) == 4)
        return cosine                              ? (none && !BACKWARD ? 40 : 48)
               : none                              ? (BACKWARD ? 48 : 56)
               : BACKWARD && A != activation::silu ? 56
                                                   : 64;
    if (cosine)
        return BACKWARD ? 56 : none ? 48 : A == activation::elementwise ? 64 : 56;
    return none ? 56 : A == activation::softmax ? 64 : 72;
}

template <typename T, encoding E, activation A, bool BACKWARD>
__global__ void MOST_REGISTERS(batch_registers<T, E, A, BACKWARD>())
    lrpe_batch(GPU_PARAMETER batch_arguments<rotation_plan> argument)
{
    run_block<T, E, A, BACKWARD>(argument);
}

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
    const batch_method<rotation_plan> methods[2] = {
        {lrpe_batch<T, E, A, false>, batch_registers<T, E, A, false>()},
        {lrpe_batch<T, E, A, true>, batch_registers<T, E, A, true>()},
    };
    return plan_shared<batch_name, T, E, A>(device, problem, shape,
                                            rotation_plan(problem, shape.units, vector_length<T>),
                                            entries_wanted<T, E, A>(problem), methods, plan);
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
