/* Softmax over rows by a cluster of blocks each, which only Hopper and newer chips have. */
#ifndef COPES_BACKENDS_CUDA_ACT_METHODS_H
#define COPES_BACKENDS_CUDA_ACT_METHODS_H

#include "backends/gpu/act/methods.h"
#include "backends/gpu/names.h"

namespace COPES_GPU::act
{

inline constexpr variant_word cluster_name = "softmax_cluster";

template <typename T, bool BACKWARD>
inline constexpr const char *name_of_cluster =
    variant_name<cluster_name, type_name<T>, direction_names[BACKWARD]>::text;

/* What a plan's run takes. */
struct cluster_tiling {
    act_strides rows;
    int blocks; /* of a cluster */
};

/* softmax_cluster.cu */
template <typename T, bool BACKWARD> bool take_cluster(copes_plan *plan);

} // namespace COPES_GPU::act

#endif
