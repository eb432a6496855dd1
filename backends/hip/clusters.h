/* Clusters of blocks, which AMD's GPUs do not have: each block is one. */
#ifndef COPES_BACKENDS_HIP_CLUSTERS_H
#define COPES_BACKENDS_HIP_CLUSTERS_H

#include "backends/gpu/queue.h"

namespace COPES_GPU
{

DEVICE uint32_t cluster_rank()
{
    return 0;
}

DEVICE void synchronize_cluster()
{
    __syncthreads();
}

DEVICE void synchronize_grid()
{
}

template <typename Value> DEVICE const Value *in_cluster(const Value *here, uint32_t)
{
    return here;
}

/* How the blocks of a launch belong together: not at all. */
struct gang {
    int cluster = 1;
    bool meets = false;
};

template <typename... Parameters>
copes_status launch_gang(const queue &to, gang, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared,
                         std::type_identity_t<Parameters>... arguments)
{
    return launch(to, kernel, blocks, threads, shared, arguments...);
}

} // namespace COPES_GPU

#endif
