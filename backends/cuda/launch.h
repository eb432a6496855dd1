/* Launching blocks that belong together: as clusters, or all at once as a cooperative launch. */
#ifndef COPES_BACKENDS_CUDA_LAUNCH_H
#define COPES_BACKENDS_CUDA_LAUNCH_H

#include "backends/cuda/ptx/cluster.h"
#include "backends/gpu/queue.h"

namespace COPES_GPU
{

/* The seam's names for what backends/hip/launch.h has, too. */
using ptx::cluster_sync;
using ptx::grid_sync;
using ptx::map_to_rank;

struct launch_attributes {
    int cluster = 1;          /* blocks along x that form a cluster */
    bool cooperative = false; /* all blocks run at once, and may wait for each other */
};

/* A kernel with dynamic shared memory, which then has no other, may have all there is, not what a launch takes: the limit is
 * the kernel's, and contexts of other threads launch it with other sizes. */
inline cudaError_t set_attributes(const gpu_device &device, const void *kernel, const launch_attributes &of,
                                  size_t shared)
{
    cudaError_t error = cudaSuccess;
    if (shared > 0)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, device.shared_memory);
    if (error == cudaSuccess && of.cluster > 8) /* more than any device has to have */
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return error;
}

/* Is a launch refused because its blocks are to run at once? By what the device says of itself it has room for them, as they
 * are cut for that; but the driver may give a process less, as MPS does by its limits, or none of it at all. */
inline bool is_refused(const launch_attributes &of, cudaError_t error)
{
    return of.cooperative && (error == cudaErrorCooperativeLaunchTooLarge || error == cudaErrorNotSupported ||
                              error == cudaErrorLaunchOutOfResources);
}

template <typename... Parameters>
copes_status launch_ex(const gpu_queue &queue, const launch_attributes &of, void (*kernel)(Parameters...), dim3 blocks,
                       dim3 threads, size_t shared, std::type_identity_t<Parameters>... arguments)
{
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = queue.stream;
    config.attrs = attributes;
    if (of.cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs++].val.clusterDim = {(unsigned)of.cluster, 1, 1};
    }
    if (of.cooperative) {
        attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
        attributes[config.numAttrs++].val.cooperative = 1;
    }
    COPES_TRY(status_of(set_attributes(queue, reinterpret_cast<const void *>(kernel), of, shared), "launch"));
    const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
    queue.refused = is_refused(of, error);
    if (!queue.refused)
        return status_of(error, "launch");
    (void)cudaGetLastError();
    return COPES_ERROR_BACKEND; /* and no message: backend.cpp goes on without */
}

} // namespace COPES_GPU

#endif
