/* The contexts of the calling thread. A context serves one thread at a time, so each thread has its own; the system
 * closes them when the thread ends. */
#include "bindings/contexts.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct entry {
    DLDevice device;
    copes_context *context;
    struct entry *next;
} entry;

static pthread_once_t started = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static void close_all(void *first)
{
    for (entry *each = first, *next; each != NULL; each = next) {
        next = each->next;
        copes_context_destroy(each->context);
        free(each);
    }
}

static void start(void)
{
    has_key = pthread_key_create(&key, close_all) == 0;
}

/* A library that is unloaded leaves contexts behind, but no thread must call close_all any more. */
__attribute__((destructor)) static void stop(void)
{
    if (has_key)
        pthread_key_delete(key);
}

copes_status contexts_get(DLDevice device, copes_context **context)
{
    if (pthread_once(&started, start) != 0 || !has_key)
        return COPES_ERROR_MEMORY;
    entry *first = pthread_getspecific(key);
    for (entry *each = first; each != NULL; each = each->next)
        if (each->device.device_type == device.device_type && each->device.device_id == device.device_id) {
            *context = each->context;
            return COPES_OK;
        }
    const copes_status status = copes_context_create(device, NULL, context);
    if (status != COPES_OK)
        return status;
    entry *made = malloc(sizeof *made);
    if (made != NULL)
        *made = (entry){device, *context, first};
    if (made == NULL || pthread_setspecific(key, made) != 0) {
        free(made);
        copes_context_destroy(*context);
        return COPES_ERROR_MEMORY;
    }
    return COPES_OK;
}
