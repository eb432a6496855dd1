/* Memory of a device, seen from the host: what the harness needs of a backend besides the library itself. */
#ifndef COPES_TESTS_HARNESS_MEMORY_H
#define COPES_TESTS_HARNESS_MEMORY_H

#include <dlpack/dlpack.h>
#include <stddef.h>

typedef struct check_memory {
    DLDeviceType device_type;
    void *(*allocate)(int device, size_t bytes); /* aligned to 256 bytes; NULL where memory ran out */
    void (*release)(int device, void *memory);
    int (*write)(int device, void *to, const void *from_host, size_t bytes); /* 0, or -1 where the device failed */
    int (*read)(int device, void *to_host, const void *from, size_t bytes);  /* waits for the device's work first */
} check_memory;

/* NULL: no such device in this build. */
const check_memory *check_memory_of(DLDeviceType type);

#endif
