/* The memory of the CPU, and which table is which device's. */
#include "memory/memory.h"

#include <stdlib.h>
#include <string.h>

static void *cpu_allocate(int device, size_t bytes)
{
    (void)device;
    return aligned_alloc(256, (bytes + 511) / 256 * 256);
}

static void cpu_release(int device, void *memory)
{
    (void)device;
    free(memory);
}

static int cpu_copy(int device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memcpy(to, from, bytes);
    return 0;
}

static const device_memory cpu = {kDLCPU, cpu_allocate, cpu_release, cpu_copy, cpu_copy};

const device_memory *device_memory_of(DLDeviceType type)
{
    switch (type) {
    case kDLCPU: return &cpu;
#ifdef COPES_WITH_CUDA
    case kDLCUDA: return &device_memory_cuda;
#endif
#ifdef COPES_WITH_HIP
    case kDLROCM: return &device_memory_hip;
#endif
    default: return NULL;
    }
}
