/* Softmax over the sequence by kernels that keep a slab on chip (resident.cu): their names, and their planner for one storage
 * type, encoding and role. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_METHODS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_METHODS_H

#include "backends/gpu/names.h"
#include "backends/gpu/plan.h"
#include "backends/gpu/sequence/column.h"

namespace COPES_GPU::sequence
{

/* Which features are turned together, if any. */
enum class coding { none, half, interleaved, cosine };

/* By the blocks that share a slab, and the bytes of a token that are the slab's width: one block, or the blocks of a cluster,
 * 128; a group of the blocks of a cooperative launch, 256, 128 or 64. */
inline constexpr variant_word block_name = "sequence_block", cluster_name = "sequence_cluster",
                              wide_group_name = "sequence_group_256", group_name = "sequence_group_128",
                              narrow_group_name = "sequence_group_64";

inline constexpr variant_word coding_names[] = {"none", "half", "interleaved", "cosine"};
inline constexpr variant_word resident_role_names[] = {"forward", "", "given", "kept"};

template <variant_word METHOD, typename T, coding C, role R>
inline constexpr const char *resident_variant =
    variant_name<METHOD, type_name<T>, coding_names[(int)C], resident_role_names[(int)R]>::text;

/* False: no kernel's slabs fit the device, or a cheaper one is refused. */
template <typename T, coding C, role R>
bool plan_resident(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan);

} // namespace COPES_GPU::sequence

#endif
