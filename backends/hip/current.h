/* A call makes its device current in the caller's thread, and then puts the caller's back. For a thread, HIP's runtime
 * keeps only a device's number. Setting it creates nothing on the device, and a thread that has chosen no device is
 * like one that has chosen device 0. */
#ifndef COPES_BACKENDS_HIP_CURRENT_H
#define COPES_BACKENDS_HIP_CURRENT_H

#include "backends/gpu/queue.h"

namespace COPES_GPU
{

inline copes_status find_primary_context(int, void **)
{
    return COPES_OK;
}

struct caller_state {
    bool changed = false;
    int before = 0;

    copes_status enter(const gpu_queue &queue)
    {
        COPES_TRY(status_of(hipGetDevice(&before), "device"));
        if (before != queue.id)
            COPES_TRY(status_of(hipSetDevice(queue.id), "device"));
        changed = before != queue.id;
        return COPES_OK;
    }
    void leave() const
    {
        (void)hipSetDevice(before);
    }
};

} // namespace COPES_GPU

#endif
