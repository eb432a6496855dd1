/* Launches of blocks that belong together, for HIP. AMD's GPUs have no clusters, and cooperative launches are not used:
 * each block is its own cluster, and no block waits for another. */
#ifndef COPES_BACKENDS_HIP_LAUNCH_H
#define COPES_BACKENDS_HIP_LAUNCH_H

#include "backends/gpu/queue.h"

namespace COPES_GPU
{

DEVICE void cluster_sync()
{
    __syncthreads();
}

DEVICE void grid_sync()
{
}

template <typename Value> DEVICE const Value *map_to_rank(const Value *here, uint32_t)
{
    return here;
}

struct launch_attributes {
    int cluster = 1;
    bool cooperative = false;
};

template <typename... Parameters>
copes_status launch_ex(const gpu_queue &queue, launch_attributes, void (*kernel)(Parameters...), dim3 blocks,
                       dim3 threads, size_t shared, std::type_identity_t<Parameters>... arguments)
{
    return launch(queue, kernel, blocks, threads, shared, arguments...);
}

} // namespace COPES_GPU

#endif
