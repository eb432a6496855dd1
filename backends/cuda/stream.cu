/* How many multiprocessors of its device a stream has: all, or those of its green context. A cooperative launch must not have
 * more blocks than run on these at once: it would be refused or, in a graph, never end. */
#include "backends/cuda/driver.h"
#include "backends/gpu/families.h"

#include <string.h>

namespace COPES_GPU
{

/* Stands for the kernels that fill a multiprocessor with one block. */
static __global__ void fill_multiprocessor()
{
}

static int clusters_at_once(const gpu_queue &queue, int size)
{
    const void *kernel = reinterpret_cast<const void *>(fill_multiprocessor);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {(unsigned)size, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)size);
    config.blockDim = dim3(32);
    config.dynamicSmemBytes = (size_t)queue.shared_memory;
    config.stream = queue.stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int count = 0;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, queue.shared_memory) == cudaSuccess &&
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
        cudaOccupancyMaxActiveClusters(&count, kernel, &config) == cudaSuccess)
        return count;
    (void)cudaGetLastError(); /* the device has no clusters of this size */
    return 0;
}

void count_clusters(gpu_queue *queue)
{
    for (int size = 1; size <= MOST_CLUSTER; size++)
        queue->clusters[size] = queue->architecture >= 90 ? clusters_at_once(*queue, size) : 0;
}

#if CUDA_VERSION >= 12040 /* before that there are no green contexts */
/* A default stream has the multiprocessors of the context that is current. The stream itself is not asked, as the question
 * would invalidate a capture of another stream. Contexts are told apart by their ids, which are never given again. */
static copes_status ask_context(const gpu_queue &before, gpu_queue *queue, const void **green, CUdevResource *has)
{
    static constinit driver_function<decltype(cuCtxGetId)> get_id("cuCtxGetId", 12000);
    static constinit driver_function<decltype(cuCtxGetCurrent)> get_context("cuCtxGetCurrent", 12000);
    static constinit driver_function<decltype(cuCtxGetDevResource)> get_resource("cuCtxGetDevResource", 12040);
    const CUcontext current = nullptr;
    CUcontext context = nullptr;
    bool found;
    COPES_TRY(find_in_driver(&found, get_id, get_context, get_resource));
    if (!found)
        return COPES_OK;
    COPES_TRY(get_id.call("context", current, &queue->context_id));
    if (queue->context_id == before.context_id) {
        const cudaStream_t stream = queue->stream;
        *queue = before;
        queue->stream = stream;
        return COPES_OK;
    }
    COPES_TRY(get_context.call("context", &context));
    /* A context that is not green has no such resource. */
    if (get_resource(context, has, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS)
        *green = context;
    return COPES_OK;
}

static copes_status ask_stream(const gpu_queue &queue, const void **green, CUdevResource *has)
{
    static constinit driver_function<decltype(cuStreamGetGreenCtx)> get_context("cuStreamGetGreenCtx", 12040);
    static constinit driver_function<decltype(cuGreenCtxGetDevResource)> get_resource("cuGreenCtxGetDevResource",
                                                                                      12040);
    CUgreenCtx context = nullptr;
    bool found;
    COPES_TRY(find_in_driver(&found, get_context, get_resource));
    if (!found)
        return COPES_OK;
    COPES_TRY(get_context.call("stream", queue.stream, &context));
    if (context != nullptr)
        COPES_TRY(get_resource.call("stream", context, has, CU_DEV_RESOURCE_TYPE_SM));
    *green = context;
    return COPES_OK;
}

copes_status find_stream_resources(const gpu_queue &before, gpu_queue *queue)
{
    const bool by_default =
        queue->stream == nullptr || queue->stream == cudaStreamLegacy || queue->stream == cudaStreamPerThread;
    const void *green = nullptr;
    CUdevResource has = {};
    COPES_TRY(by_default ? ask_context(before, queue, &green, &has) : ask_stream(*queue, &green, &has));
    const int multiprocessors = (int)has.sm.smCount;
    if (green == nullptr || multiprocessors >= queue->multiprocessors)
        return COPES_OK;
    queue->green_context = green;
    queue->multiprocessors = multiprocessors;
    if (green == before.green_context && multiprocessors == before.multiprocessors)
        memcpy(queue->clusters, before.clusters, sizeof before.clusters); /* to count takes microseconds */
    else
        count_clusters(queue);
    return COPES_OK;
}
#else
copes_status find_stream_resources(const gpu_queue &, gpu_queue *)
{
    return COPES_OK;
}
#endif

} // namespace COPES_GPU
