/* The devices that this build can time. */
#include "bench/device.h"

static const bench_device *const devices[] = {
    &bench_device_cpu,
#ifdef COPES_BENCH_CUDA
    &bench_device_cuda,
#endif
#ifdef COPES_BENCH_HIP
    &bench_device_hip,
#endif
};

const bench_device *bench_device_of(DLDeviceType type)
{
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        if (devices[i]->device_type == type)
            return devices[i];
    return NULL;
}
