/* The contexts of the calling thread. A context serves one thread at a time, so each thread has its own; the system
 * closes them when the thread ends. */
#include "python/ext/contexts.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct entry {
    DLDevice device;
    copes_context *context;
    struct entry *next;
} entry;

static pthread_key_t key;

static void close_all(void *first)
{
    for (entry *each = first, *next; each != NULL; each = next) {
        next = each->next;
        copes_context_destroy(each->context);
        free(each);
    }
}

int contexts_start(void)
{
    return pthread_key_create(&key, close_all) == 0 ? 0 : -1;
}

copes_status contexts_get(DLDevice device, copes_context **context)
{
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
