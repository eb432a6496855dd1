/* The context that a call makes current in the caller's thread, and the caller's own, which it puts back. These are contexts
 * of the driver and not devices of the runtime: the runtime says device 0 of a thread that has chosen none, and
 * cudaSetDevice(0) would then make a context on device 0. It would also replace a green context. */
#ifndef COPES_BACKENDS_CUDA_CURRENT_H
#define COPES_BACKENDS_CUDA_CURRENT_H

#include "backends/cuda/driver.h"

namespace COPES_GPU
{

/* Found when the first copes_context is opened. */
inline constinit driver_function<decltype(cuCtxGetCurrent)> get_current("cuCtxGetCurrent", 12000);
inline constinit driver_function<decltype(cuCtxPushCurrent)> push_current("cuCtxPushCurrent", 12000);
inline constinit driver_function<decltype(cuCtxPopCurrent)> pop_current("cuCtxPopCurrent", 12000);

/* The device's primary context, which is the runtime's. It is retained to the end of the process, as the runtime does: the
 * callers' memory is in it. */
inline copes_status find_primary_context(int device, void **primary)
{
    static constinit driver_function<decltype(cuDeviceGet)> get_device("cuDeviceGet", 12000);
    static constinit driver_function<decltype(cuDevicePrimaryCtxRetain)> retain("cuDevicePrimaryCtxRetain", 12000);
    CUdevice found = 0;
    CUcontext context = nullptr;
    COPES_TRY(require_in_driver(get_device, retain, get_current, push_current, pop_current));
    COPES_TRY(get_device.call("context", &found, device));
    COPES_TRY(retain.call("context", &context, found));
    *primary = context;
    return COPES_OK;
}

struct caller_state {
    bool changed = false;

    /* Makes the device's primary context current, unless a context of the device is: a green context stays. */
    copes_status enter(const gpu_queue &queue)
    {
        CUcontext current = nullptr;
        int device = -1;
        COPES_TRY(get_current.call("device", &current));
        if (current == queue.primary_context)
            return COPES_OK;
        if (current != nullptr)
            COPES_TRY(status_of(cudaGetDevice(&device), "device"));
        if (device == queue.id)
            return COPES_OK;
        COPES_TRY(push_current.call("device", static_cast<CUcontext>(queue.primary_context)));
        changed = true;
        return COPES_OK;
    }
    void leave() const
    {
        CUcontext ours;
        (void)pop_current(&ours);
    }
};

} // namespace COPES_GPU

#endif
