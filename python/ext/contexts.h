/* The contexts of the calling thread, one for each device it has used. */
#ifndef COPES_PYTHON_CONTEXTS_H
#define COPES_PYTHON_CONTEXTS_H

#include <copes/copes.h>

/* Prepares contexts for use by threads; returns -1 where the system cannot. */
int contexts_start(void);

/* The thread's context of this device, made on first use and closed when the thread ends. */
copes_status contexts_get(DLDevice device, copes_context **context);

#endif
