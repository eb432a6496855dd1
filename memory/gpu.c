/* The memory of a family of GPUs, through the runtime that memory/runtime.h names. */
#include "memory/memory.h"
#include "memory/runtime.h"

#include <stdint.h>

static void *allocate(int device, size_t bytes)
{
    void *memory = NULL;
    if (GPU(SetDevice)(device) != GPU(Success) || GPU(Malloc)(&memory, bytes > 0 ? bytes : 1) != GPU(Success))
        return NULL;
    return memory;
}

static void release(int device, void *memory)
{
    if (GPU(SetDevice)(device) == GPU(Success))
        (void)GPU(Free)(memory);
}

static int copy(int device, void *to, const void *from, size_t bytes, enum GPU(MemcpyKind) kind)
{
    const int ready = GPU(SetDevice)(device) == GPU(Success) && GPU(DeviceSynchronize)() == GPU(Success);
    return ready && GPU(Memcpy)(to, from, bytes, kind) == GPU(Success) ? 0 : -1;
}

static int write(int device, void *to, const void *from_host, size_t bytes)
{
    return copy(device, to, from_host, bytes, GPU(MemcpyHostToDevice));
}

static int read(int device, void *to_host, const void *from, size_t bytes)
{
    return copy(device, to_host, from, bytes, GPU(MemcpyDeviceToHost));
}

const device_memory GPU_MEMORY = {GPU_DEVICE_TYPE, allocate, release, write, read};
