/* The methods of tpa_decode that only NVIDIA's chips run. dispatch.cu checks a problem before it asks them. */
#ifndef COPES_BACKENDS_CUDA_TPA_METHODS_H
#define COPES_BACKENDS_CUDA_TPA_METHODS_H

#include "backends/gpu/names.h"
#include "backends/gpu/tpa/methods.h"

namespace COPES_GPU::tpa
{

/* mma/mma.cu: tensor cores by warps, for compute capability 8.0 and newer. */
namespace mma
{
inline constexpr variant_word name = "tpa_mma";

/* Why a block cannot take even the smallest share of the heads; nullptr: it can. */
template <typename T> const char *refuse_block(const gpu_device &device, const copes_tpa_problem &problem);
template <typename T> void plan(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan);
template <typename T> void list(variant_list *list);
} // namespace mma

/* wgmma/wgmma.cu: Hopper's tensor cores by warpgroups, for ranks of 1; in float32 for any rank. */
namespace wgmma
{
inline constexpr variant_word name = "tpa_wgmma";

template <typename T> bool plan(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan);
template <typename T> void list(variant_list *list);
} // namespace wgmma

} // namespace COPES_GPU::tpa

#endif
