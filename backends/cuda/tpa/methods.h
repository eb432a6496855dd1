/* What only NVIDIA's chips run of tpa_decode, by method. Problems have passed dispatch.cu. */
#ifndef COPES_BACKENDS_CUDA_TPA_METHODS_H
#define COPES_BACKENDS_CUDA_TPA_METHODS_H

#include "backends/gpu/names.h"
#include "backends/gpu/tpa/methods.h"

namespace COPES_GPU::tpa
{

/* mma/mma.cu: tensor cores by warps, for 8.0 and newer. */
namespace mma
{
inline constexpr variant_word name = "tpa_mma";

/* Does a block's shared memory suffice for the smallest share of the heads? */
template <typename T> bool fits(const gpu_device &device, const copes_tpa_problem &problem);
template <typename T> void plan(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan);
template <typename T> void list(variant_list *list);
} // namespace mma

/* wgmma/wgmma.cu: Hopper's tensor cores by warpgroups, for ranks of 1, and in float32 for any. */
namespace wgmma
{
inline constexpr variant_word name = "tpa_wgmma";

template <typename T> bool plan(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan);
template <typename T> void list(variant_list *list);
} // namespace wgmma

} // namespace COPES_GPU::tpa

#endif
