/* The devices that this build can time. */
#include "bench/device.h"

const bench_device *bench_device_of(DLDeviceType type)
{
    switch (type) {
    case kDLCPU: return &bench_device_cpu;
#ifdef COPES_BENCH_CUDA
    case kDLCUDA: return &bench_device_cuda;
#endif
#ifdef COPES_BENCH_HIP
    case kDLROCM: return &bench_device_hip;
#endif
    default: return NULL;
    }
}
