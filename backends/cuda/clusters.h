/* Clusters of blocks, as the host sees them: which there are, and launching. */
#ifndef COPES_BACKENDS_CUDA_CLUSTERS_H
#define COPES_BACKENDS_CUDA_CLUSTERS_H

#include "backends/cuda/cluster.h"
#include "backends/gpu/queue.h"

namespace COPES_GPU
{

enum { MOST_CLUSTER = 16 }; /* blocks of a cluster, as no device has more */

/* Clusters of `size` blocks that run at a time, where a multiprocessor has one block; 0 where the device has none of
 * that size. Devices of one model differ, by which of their multiprocessors are left out. */
int active_clusters(const queue &to, int size);

/* Blocks of the largest cluster that is a power of two: 1 where there are none. */
inline int largest_cluster(const queue &to)
{
    int size = MOST_CLUSTER;
    while (size > 1 && active_clusters(to, size) == 0)
        size /= 2;
    return size;
}

/* Enqueues a kernel, with one attribute or none, and with dynamic shared memory only if it has no other. Such a kernel may
 * then have all there is, not what this launch takes: the limit is the kernel's, and contexts of other threads launch it
 * with other sizes. */
template <typename... Parameters>
copes_status launch_as(const cudaLaunchAttribute *attribute, const queue &to, void (*kernel)(Parameters...),
                       dim3 blocks, dim3 threads, size_t shared, std::type_identity_t<Parameters>... arguments)
{
    const void *function = reinterpret_cast<const void *>(kernel);
    cudaLaunchAttribute attributes[1] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = to.stream;
    config.attrs = attributes;
    if (attribute != nullptr)
        attributes[config.numAttrs++] = *attribute;
    if (shared > 0)
        COPES_TRY(
            status_of(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, to.shared_memory),
                      "launch"));
    return status_of(cudaLaunchKernelEx(&config, kernel, arguments...), "launch");
}

/* Enqueues a kernel whose blocks, `cluster` of them along x at a time, form clusters. */
template <typename... Parameters>
copes_status launch_clusters(const queue &to, void (*kernel)(Parameters...), dim3 blocks, int cluster, dim3 threads,
                             size_t shared, std::type_identity_t<Parameters>... arguments)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {(unsigned)cluster, 1, 1};
    if (cluster > 8) { /* more than any device has to have */
        const void *function = reinterpret_cast<const void *>(kernel);
        const cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (error != cudaSuccess)
            return status_of(error, "launch");
    }
    return launch_as(cluster > 1 ? &attribute : nullptr, to, kernel, blocks, threads, shared, arguments...);
}

/* Enqueues a kernel all of whose blocks run at once. */
template <typename... Parameters>
copes_status launch_together(const queue &to, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared,
                             std::type_identity_t<Parameters>... arguments)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    return launch_as(&attribute, to, kernel, blocks, threads, shared, arguments...);
}

} // namespace COPES_GPU

#endif
