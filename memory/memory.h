/* Memory of a device, seen from the host: what tools, tests and bench need of a device besides the library itself. */
#ifndef COPES_MEMORY_MEMORY_H
#define COPES_MEMORY_MEMORY_H

#include <dlpack/dlpack.h>
#include <stddef.h>

typedef struct device_memory {
    DLDeviceType device_type;
    void *(*allocate)(int device, size_t bytes); /* aligned to 256 bytes; NULL where memory ran out */
    void (*release)(int device, void *memory);
    int (*write)(int device, void *to, const void *from_host, size_t bytes); /* 0, or -1 where the device failed */
    int (*read)(int device, void *to_host, const void *from, size_t bytes);  /* waits for the device's work first */
} device_memory;

/* NULL: no such device in this build. */
const device_memory *device_memory_of(DLDeviceType type);

extern const device_memory device_memory_cuda, device_memory_hip;

#endif
