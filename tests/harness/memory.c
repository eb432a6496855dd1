/* The memory of the CPU. */
#include "tests/harness/memory.h"

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

static const check_memory cpu = {kDLCPU, cpu_allocate, cpu_release, cpu_copy, cpu_copy};

const check_memory *check_memory_of(DLDeviceType type)
{
    return type == kDLCPU ? &cpu : NULL;
}
