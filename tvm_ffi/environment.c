/* tvm-ffi's functions, found by name among what the process has loaded for all to see, as tvm-ffi's own package loads its
 * library. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "tvm_ffi/environment.h"

#include "tvm_ffi/abi.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef void raise_error(const char *kind, const char *message);
typedef void *get_stream(int32_t device_type, int32_t device_id);
typedef void *get_allocator(void);
typedef int allocate_tensor(DLTensor *prototype, void **tensor);
typedef int release_object(void *object);

/* ISO C has no cast from data's addresses to functions', POSIX has both alike. */
#define FIND(type, name, to)                                                                                           \
    do {                                                                                                               \
        void *const found = dlsym(RTLD_DEFAULT, name);                                                                 \
        memcpy(&(to), &found, sizeof found);                                                                           \
    } while (0)

int environment_fail(error_class class, const char *format, ...)
{
    static const char *const kinds[] = {[ERROR_VALUE] = "ValueError",
                                        [ERROR_TYPE] = "TypeError",
                                        [ERROR_RUNTIME] = "RuntimeError",
                                        [ERROR_MEMORY] = "MemoryError"};
    char message[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    raise_error *raise;
    FIND(raise_error, "TVMFFIErrorSetRaisedFromCStr", raise);
    if (raise != NULL)
        raise(kinds[class], message);
    else
        fprintf(stderr, "copes: %s: %s (libtvm_ffi, which would carry this error, is not loaded)\n", kinds[class],
                message);
    return -1;
}

int environment_status(copes_status status)
{
    if (status == COPES_OK)
        return 0;
    const error_class class = error_class_of(status);
    return environment_fail(class, "%s", class == ERROR_MEMORY ? "out of memory" : copes_last_error());
}

int environment_stream(DLDevice device, void **stream)
{
    *stream = NULL;
    if (device.device_type == kDLCPU)
        return 0;
    get_stream *get;
    FIND(get_stream, "TVMFFIEnvGetStream", get);
    if (get == NULL)
        return environment_fail(ERROR_RUNTIME,
                                "libtvm_ffi, which knows the current stream, is not loaded with RTLD_GLOBAL");
    *stream = get(device.device_type, device.device_id);
    return 0;
}

int environment_allocate(DLDevice device, size_t size, void **memory, void **owner)
{
    *memory = *owner = NULL;
    get_allocator *get;
    allocate_tensor *allocate;
    FIND(get_allocator, "TVMFFIEnvGetDLPackManagedTensorAllocator", get);
    FIND(allocate_tensor, "TVMFFIEnvTensorAlloc", allocate);
    if (get == NULL || allocate == NULL || get() == NULL)
        return 0;
    int64_t shape[] = {(int64_t)size};
    DLTensor prototype = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
    if (allocate(&prototype, owner) != 0)
        return -1;
    const DLTensor *made = (const DLTensor *)(const void *)((const tvm_object *)*owner + 1);
    *memory = (char *)made->data + made->byte_offset;
    return 0;
}

void environment_release(void *owner)
{
    release_object *release;
    if (owner == NULL)
        return;
    FIND(release_object, "TVMFFIObjectDecRef", release);
    release(owner);
}
