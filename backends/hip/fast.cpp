/* AMD's own kernels, which the planners of backends/gpu ask first. There are none yet, so the portable kernels take
 * every problem. There are no clusters either, and no launches that a stream with fewer compute units could not run. */
#include "backends/gpu/act/methods.h"
#include "backends/gpu/families.h"
#include "backends/gpu/sequence/methods.h"
#include "backends/gpu/tpa/methods.h"

namespace COPES_GPU
{

template <typename T>
bool act::plan_fast(const gpu_device &, const copes_act_problem &, const act_strides &, copes_plan *)
{
    return false;
}

template <typename T> void act::list_fast(variant_list *)
{
}

template <typename T> bool sequence::plan_fast(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *)
{
    return false;
}

template <typename T> void sequence::list_fast(variant_list *)
{
}

template <typename T> tpa::answer tpa::plan_fast(const gpu_device &, const copes_tpa_problem &, copes_plan *)
{
    return answer::refused;
}

template <typename T> void tpa::list_fast(variant_list *)
{
}

copes_status find_stream_resources(const gpu_queue &, gpu_queue *)
{
    return COPES_OK;
}

void count_clusters(gpu_queue *)
{
}

#define INSTANTIATE(T)                                                                                                 \
    template bool act::plan_fast<T>(const gpu_device &, const copes_act_problem &, const act::act_strides &,           \
                                    copes_plan *);                                                                     \
    template void act::list_fast<T>(variant_list *);                                                                   \
    template bool sequence::plan_fast<T>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);          \
    template void sequence::list_fast<T>(variant_list *);                                                              \
    template tpa::answer tpa::plan_fast<T>(const gpu_device &, const copes_tpa_problem &, copes_plan *);               \
    template void tpa::list_fast<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU
