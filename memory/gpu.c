/* The memory of a family of GPUs, through the runtime that memory/runtime.h names. */
#include "memory/current.h"
#include "memory/memory.h"

#include <stdint.h>

static void *allocate(int device, size_t bytes)
{
    gpu_turn turn;
    void *memory = NULL;
    const int done = gpu_enter(&turn, device) == 0 && GPU(Malloc)(&memory, bytes > 0 ? bytes : 1) == GPU(Success);
    return gpu_leave(&turn, done) == 0 ? memory : NULL;
}

static void release(int device, void *memory)
{
    gpu_turn turn;
    const int done = gpu_enter(&turn, device) == 0 && GPU(Free)(memory) == GPU(Success);
    (void)gpu_leave(&turn, done);
}

/* When it returns the copy is done, also for streams that do not wait for the default one: Memcpy itself may come back while
 * the last bytes from the host are still on their way. */
static int copy(int device, void *to, const void *from, size_t bytes, enum GPU(MemcpyKind) kind)
{
    gpu_turn turn;
    const int done = gpu_enter(&turn, device) == 0 && GPU(DeviceSynchronize)() == GPU(Success) &&
                     GPU(Memcpy)(to, from, bytes, kind) == GPU(Success) && GPU(DeviceSynchronize)() == GPU(Success);
    return gpu_leave(&turn, done);
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
