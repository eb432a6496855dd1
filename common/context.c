/* The list of backends in this build, and contexts on their devices. */
#include "common/context.h"

#include "common/reserved.h"
#include "common/status.h"

#include <stdlib.h>

static const copes_backend *const backends[] = {
    &copes_backend_cpu,
#ifdef COPES_WITH_CUDA
    &copes_backend_cuda,
#endif
#ifdef COPES_WITH_HIP
    &copes_backend_hip,
#endif
};

enum {
    BACKEND_COUNT = sizeof backends / sizeof backends[0],
    MOST_THREADS = 4096 /* OpenMP ends the process when it cannot start one */
};

size_t copes_backend_count(void)
{
    return BACKEND_COUNT;
}

const copes_backend_info *copes_backend_at(size_t index)
{
    return index < BACKEND_COUNT ? &backends[index]->info : NULL;
}

static const copes_backend *backend_of(DLDeviceType device_type)
{
    for (size_t i = 0; i < BACKEND_COUNT; i++)
        if (backends[i]->info.device_type == device_type)
            return backends[i];
    return NULL;
}

int32_t copes_device_count(DLDeviceType device_type)
{
    const copes_backend *backend = backend_of(device_type);
    return backend != NULL ? backend->device_count() : 0;
}

static const copes_backend *find_backend(DLDevice device)
{
    const copes_backend *backend = backend_of(device.device_type);
    if (backend == NULL)
        copes_fail(COPES_ERROR_UNSUPPORTED,
                   "device: type is %d, for which this build has no backend; copes_backend_at lists those it has",
                   (int)device.device_type);
    return backend;
}

size_t copes_variants(DLDeviceType type, const char **names, size_t capacity)
{
    const copes_backend *backend = backend_of(type);
    return backend != NULL ? backend->variants(names, names != NULL ? capacity : 0) : 0;
}

copes_status copes_device_summary(DLDevice device, char *text, size_t size)
{
    if (text == NULL || size == 0)
        return copes_fail(COPES_ERROR_NULL, "text is NULL or has no room; it must take a line");
    const copes_backend *backend = find_backend(device);
    if (backend == NULL)
        return COPES_ERROR_UNSUPPORTED;
    const int32_t count = backend->device_count();
    if (device.device_id < 0 || device.device_id >= (count > 0 ? count : 1))
        return copes_fail(COPES_ERROR_DEVICE, "device: id is %d; backend %s has %d devices", device.device_id,
                          backend->info.name, count);
    backend->summary(device.device_id, text, size);
    return COPES_OK;
}

copes_status copes_context_create(DLDevice device, const copes_context_options *options, copes_context **context)
{
    static const copes_context_options defaults = {0};
    if (context == NULL)
        return copes_fail(COPES_ERROR_NULL, "context is NULL; it must point to where the context goes");
    *context = NULL;
    options = options != NULL ? options : &defaults;
    const copes_backend *backend = find_backend(device);
    if (backend == NULL)
        return COPES_ERROR_UNSUPPORTED;
    if (options->threads < 0 || options->threads > MOST_THREADS)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "options: threads is %d; it must be 0 to %d", options->threads,
                          MOST_THREADS);
    if (!copes_all_zero(options->reserved, sizeof options->reserved))
        return copes_fail(COPES_ERROR_ATTRIBUTE, "options: " COPES_RESERVED_NOT_ZERO);
    const int32_t count = backend->device_count();
    if (device.device_id < 0 || device.device_id >= count)
        return copes_fail(COPES_ERROR_DEVICE, "device: id is %d; backend %s has %d devices", device.device_id,
                          backend->info.name, count);
    copes_context *made = malloc(sizeof *made);
    if (made == NULL)
        return copes_fail(COPES_ERROR_MEMORY, "context: %zu bytes could not be allocated", sizeof *made);
    *made = (copes_context){.backend = backend, .device = device};
    const copes_status status = backend->open(device.device_id, options, &made->state);
    if (status != COPES_OK)
        free(made);
    else
        *context = made;
    return status;
}

void copes_context_destroy(copes_context *context)
{
    if (context == NULL)
        return;
    context->backend->close(context->state);
    free(context);
}

copes_status copes_context_set_stream(copes_context *context, void *stream)
{
    if (context == NULL)
        return copes_fail(COPES_ERROR_NULL, "context is NULL; it must come from copes_context_create");
    return context->backend->set_stream(context->state, stream);
}
