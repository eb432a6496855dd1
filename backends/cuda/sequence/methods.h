/* Softmax over the sequence by kernels that keep a slab on chip (resident.cu): their names, and the way to them. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_METHODS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_METHODS_H

#include "backends/gpu/names.h"
#include "backends/gpu/plan.h"
#include "backends/gpu/sequence/column.h"

namespace COPES_GPU::sequence
{

/* The encoding after softmax, and the pairing of rotate. */
enum class coding { none, half, interleaved, cosine };

/*   method                blocks that share a slab        bytes of a token in a slab
 *   sequence_block        one                             128
 *   sequence_cluster      a cluster's                     128
 *   sequence_group_256    a cooperative launch's group    256
 *   sequence_group_128                                    128
 *   sequence_group_64                                     64 */
inline constexpr variant_word block_name = "sequence_block", cluster_name = "sequence_cluster",
                              wide_group_name = "sequence_group_256", group_name = "sequence_group_128",
                              narrow_group_name = "sequence_group_64";

inline constexpr variant_word coding_names[] = {"none", "half", "interleaved", "cosine"};
inline constexpr variant_word resident_role_names[] = {"forward", "", "given", "kept"};

template <variant_word METHOD, typename T, coding C, role R>
inline constexpr const char *resident_variant =
    variant_name<METHOD, type_name<T>, coding_names[(int)C], resident_role_names[(int)R]>::text;

/* resident.cu: the four kernels of a storage type, encoding and role; their order is that of resident_width. */
struct resident_kernel;
template <typename T, coding C, role R> const resident_kernel *resident_kernels();

} // namespace COPES_GPU::sequence

#endif
