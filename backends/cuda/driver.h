/* Functions of the driver, which the runtime has no name for. They are found at run time, as the library works without a
 * driver, too. */
#ifndef COPES_BACKENDS_CUDA_DRIVER_H
#define COPES_BACKENDS_CUDA_DRIVER_H

#include "backends/gpu/queue.h"

#include <atomic>
#include <cuda.h>

namespace COPES_GPU
{

/* One of them as of a version of CUDA, as cuda.h counts them. To be `constinit`: the library has no guards for statics. */
template <typename Function> class driver_function
{
    const char *name;
    unsigned version;
    std::atomic<Function *> known = nullptr;

  public:
    constexpr driver_function(const char *name, unsigned version) : name(name), version(version)
    {
    }
    /* Looks for it, once it is found no more. `found`: false where the driver is older. */
    copes_status find(bool *found)
    {
        *found = known.load(std::memory_order_relaxed) != nullptr;
        if (*found)
            return COPES_OK;
        void *function = nullptr;
        cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSuccess;
#if CUDART_VERSION >= 12050
        COPES_TRY(
            status_of(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &result), name));
#else
        COPES_TRY(status_of(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result), name));
#endif
        *found = result == cudaDriverEntryPointSuccess && function != nullptr;
        if (*found)
            known.store(reinterpret_cast<Function *>(function), std::memory_order_relaxed);
        return COPES_OK;
    }
    /* Calls it, once it is found. */
    template <typename... Arguments> CUresult operator()(Arguments... arguments) const
    {
        return known.load(std::memory_order_relaxed)(arguments...);
    }
    /* The same; an error is told. It is not the runtime's, which has the same numbers, but keeps what the caller left there. */
    template <typename... Arguments> copes_status call(const char *what, Arguments... arguments) const
    {
        const CUresult error = (*this)(arguments...);
        return error == CUDA_SUCCESS ? COPES_OK : fail_of((cudaError_t)error, what);
    }
};

/* Looks for several. `found`: all of them. */
template <typename... Functions> copes_status find_in_driver(bool *found, Functions &...functions)
{
    copes_status status = COPES_OK;
    *found = true;
    ((status = *found ? functions.find(found) : COPES_OK, status == COPES_OK) && ...);
    return status;
}

/* Fails where one is missing. */
template <typename... Functions> copes_status require_in_driver(Functions &...functions)
{
    bool found;
    COPES_TRY(find_in_driver(&found, functions...));
    return found ? COPES_OK
                 : copes_fail(COPES_ERROR_BACKEND, "the CUDA driver is too old; it must be of 12.0 or later");
}

} // namespace COPES_GPU

#endif
