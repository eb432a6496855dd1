/* The contexts of the calling thread, one for each device it has used: what every binding runs its calls in. */
#ifndef COPES_BINDINGS_CONTEXTS_H
#define COPES_BINDINGS_CONTEXTS_H

#include <copes/copes.h>

/* The thread's context of this device, made on first use and closed when the thread ends. Errors: those of
 * copes_context_create, and MEMORY without a message. */
copes_status contexts_get(DLDevice device, copes_context **context);

#endif
