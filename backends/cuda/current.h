/* What a call makes current in the caller's thread, and puts back: a context, and not, as the runtime's functions have it, a
 * device. To the runtime a thread that has chosen nothing has device 0; cudaSetDevice(0) would put that back by making a
 * context on it, and would replace a green context or one of the driver's functions. */
#ifndef COPES_BACKENDS_CUDA_CURRENT_H
#define COPES_BACKENDS_CUDA_CURRENT_H

#include "backends/cuda/driver.h"

namespace COPES_GPU
{

/* What tells and changes it: found when a context is opened, as no call is without one. */
inline constinit driver_function<decltype(cuCtxGetCurrent)> get_current("cuCtxGetCurrent", 12000);
inline constinit driver_function<decltype(cuCtxPushCurrent)> push_current("cuCtxPushCurrent", 12000);
inline constinit driver_function<decltype(cuCtxPopCurrent)> pop_current("cuCtxPopCurrent", 12000);

/* The device's primary context, the one that the runtime uses. It is kept to the end of the process, as the runtime keeps it:
 * what callers allocate lives there. */
inline copes_status find_home(int device, void **home)
{
    static constinit driver_function<decltype(cuDeviceGet)> get_device("cuDeviceGet", 12000);
    static constinit driver_function<decltype(cuDevicePrimaryCtxRetain)> retain("cuDevicePrimaryCtxRetain", 12000);
    CUdevice found = 0;
    CUcontext context = nullptr;
    COPES_TRY(require_in_driver(get_device, retain, get_current, push_current, pop_current));
    COPES_TRY(get_device.call("context", &found, device));
    COPES_TRY(retain.call("context", &context, found));
    *home = context;
    return COPES_OK;
}

struct caller_state {
    bool changed = false;

    /* Makes the device's context current, unless one of the device is: a green one has what the caller wants used. */
    copes_status enter(const gpu_queue &queue)
    {
        CUcontext current = nullptr;
        int device = -1;
        COPES_TRY(get_current.call("device", &current));
        if (current == queue.home)
            return COPES_OK;
        if (current != nullptr)
            COPES_TRY(status_of(cudaGetDevice(&device), "device"));
        if (device == queue.id)
            return COPES_OK;
        COPES_TRY(push_current.call("device", static_cast<CUcontext>(queue.home)));
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
