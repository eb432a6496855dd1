/* Calls of a runtime that leave nothing behind in the caller's thread: neither another device or context as the current
 * one, nor an error for its next look. */
#ifndef COPES_MEMORY_CURRENT_H
#define COPES_MEMORY_CURRENT_H

#include "memory/runtime.h"

#include <stddef.h>

#ifdef COPES_FAMILY_HIP
/* HIP keeps the number of a device for each thread, and nothing else. */
typedef struct gpu_turn {
    int before, entered;
} gpu_turn;

static inline int gpu_enter(gpu_turn *turn, int device)
{
    turn->entered = hipGetDevice(&turn->before) == hipSuccess && hipSetDevice(device) == hipSuccess;
    return turn->entered ? 0 : -1;
}

static inline void gpu_return(const gpu_turn *turn)
{
    if (turn->entered)
        (void)hipSetDevice(turn->before);
}
#else
#include <cuda.h>

/* A function of the driver as of a version of CUDA. `function`: a pointer to where the pointer to it goes. 0, or -1 where
 * the driver does not have it. */
static inline int gpu_find_in_driver(const char *name, unsigned version, void *function)
{
    enum cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, (void **)function, version, cudaEnableDefault, &result);
#else
    (void)version;
    const cudaError_t error = cudaGetDriverEntryPoint(name, (void **)function, cudaEnableDefault, &result);
#endif
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? 0 : -1;
}

typedef struct gpu_turn {
    int entered;
} gpu_turn;

/* By the driver's functions: cudaSetDevice makes a context of a device that has none yet, which is what it would do to put
 * back a thread that never had one, and cannot put back a green context. The device's context is kept, as memory in it is. */
static inline int gpu_enter(gpu_turn *turn, int device)
{
    CUdevice found = 0;
    CUcontext context = NULL;
    __typeof__(&cuInit) start = NULL;
    __typeof__(&cuDeviceGet) get_device = NULL;
    __typeof__(&cuDevicePrimaryCtxRetain) retain = NULL;
    __typeof__(&cuCtxPushCurrent) push = NULL;
    turn->entered = gpu_find_in_driver("cuInit", 12000, &start) == 0 &&
                    gpu_find_in_driver("cuDeviceGet", 12000, &get_device) == 0 &&
                    gpu_find_in_driver("cuDevicePrimaryCtxRetain", 12000, &retain) == 0 &&
                    gpu_find_in_driver("cuCtxPushCurrent", 12000, &push) == 0 && start(0) == CUDA_SUCCESS &&
                    get_device(&found, device) == CUDA_SUCCESS && retain(&context, found) == CUDA_SUCCESS &&
                    push(context) == CUDA_SUCCESS;
    return turn->entered ? 0 : -1;
}

static inline void gpu_return(const gpu_turn *turn)
{
    CUcontext ours = NULL;
    __typeof__(&cuCtxPopCurrent) pop = NULL;
    if (turn->entered && gpu_find_in_driver("cuCtxPopCurrent", 12000, &pop) == 0)
        (void)pop(&ours);
}
#endif

/* Ends what gpu_enter began, whether it could or not: 0, or -1 where something failed in between. */
static inline int gpu_leave(const gpu_turn *turn, int succeeded)
{
    gpu_return(turn);
    if (!succeeded)
        (void)GPU(GetLastError)();
    return succeeded ? 0 : -1;
}

#endif
