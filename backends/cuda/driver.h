/* Functions of the driver, which the runtime has no name for. They are found at run time, as the library works without a
 * driver, too. */
#ifndef COPES_BACKENDS_CUDA_DRIVER_H
#define COPES_BACKENDS_CUDA_DRIVER_H

#include "backends/gpu/queue.h"

#include <atomic>
#include <cuda.h>

namespace COPES_GPU
{

/* One of them as of a version of CUDA, as cuda.h counts them; nullptr where the driver is older. What is found is kept in
 * `known`. */
template <typename Function>
copes_status find_in_driver(const char *name, unsigned version, std::atomic<void *> *known, Function **function)
{
    void *found = known->load(std::memory_order_relaxed);
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSuccess;
    if (found == nullptr) {
#if CUDART_VERSION >= 12050
        COPES_TRY(status_of(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result), name));
#else
        COPES_TRY(status_of(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result), name));
#endif
        found = result == cudaDriverEntryPointSuccess ? found : nullptr;
        known->store(found, std::memory_order_relaxed);
    }
    *function = reinterpret_cast<Function *>(found);
    return COPES_OK;
}

/* Calls what may be the first of the thread's calls to ask for a context, which the runtime's functions would give it: that
 * of the current device. */
template <typename Call> copes_status call_driver(const char *name, Call call)
{
    CUresult error = call();
    if (error == CUDA_ERROR_INVALID_CONTEXT) {
        int device = 0;
        COPES_TRY(status_of(cudaGetDevice(&device), name));
        COPES_TRY(status_of(cudaSetDevice(device), name));
        error = call();
    }
    return status_of((cudaError_t)error, name); /* the runtime has the driver's numbers */
}

} // namespace COPES_GPU

#endif
