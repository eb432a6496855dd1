/* What a call makes current in the caller's thread, and puts back: a device's number, which is all that HIP's runtime keeps
 * for a thread. To read and to set it makes nothing on any device, nor has a thread that has chosen none another state
 * than one that has chosen device 0. */
#ifndef COPES_BACKENDS_HIP_CURRENT_H
#define COPES_BACKENDS_HIP_CURRENT_H

#include "backends/gpu/queue.h"

namespace COPES_GPU
{

inline copes_status find_home(int, void **)
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
