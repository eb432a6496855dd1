/* Launching blocks that belong together, as clusters or as a whole. */
#ifndef COPES_BACKENDS_CUDA_CLUSTERS_H
#define COPES_BACKENDS_CUDA_CLUSTERS_H

#include "backends/cuda/cluster.h"
#include "backends/gpu/queue.h"

namespace COPES_GPU
{

/* How the blocks of a launch belong together: so many along x form a cluster; all of them may meet, and so run at once. */
struct gang {
    int cluster = 1;
    bool meets = false;
};

/* A kernel with dynamic shared memory, which then has no other, may have all there is, not what a launch takes: the limit is
 * the kernel's, and contexts of other threads launch it with other sizes. */
inline cudaError_t set_attributes(const queue &to, const void *kernel, const gang &of, size_t shared)
{
    cudaError_t error = cudaSuccess;
    if (shared > 0)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, to.shared_memory);
    if (error == cudaSuccess && of.cluster > 8) /* more than any device has to have */
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return error;
}

/* Is a launch refused because its blocks are to run at once? By what the device says of itself it has room for them, as they
 * are cut for that; but the driver may give a process less, as MPS does by its limits, or none of it at all. */
inline bool is_refused(const gang &of, cudaError_t error)
{
    return of.meets && (error == cudaErrorCooperativeLaunchTooLarge || error == cudaErrorNotSupported ||
                        error == cudaErrorLaunchOutOfResources);
}

/* Enqueues a kernel whose blocks are a gang. */
template <typename... Parameters>
copes_status launch_gang(const queue &to, const gang &of, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                         size_t shared, std::type_identity_t<Parameters>... arguments)
{
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = to.stream;
    config.attrs = attributes;
    if (of.cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs++].val.clusterDim = {(unsigned)of.cluster, 1, 1};
    }
    if (of.meets) {
        attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
        attributes[config.numAttrs++].val.cooperative = 1;
    }
    COPES_TRY(status_of(set_attributes(to, reinterpret_cast<const void *>(kernel), of, shared), "launch"));
    const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
    to.refused = is_refused(of, error);
    if (!to.refused)
        return status_of(error, "launch");
    (void)cudaGetLastError();
    return COPES_ERROR_BACKEND; /* and no message: backend.cpp goes on without */
}

} // namespace COPES_GPU

#endif
