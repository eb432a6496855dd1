/* A context: a device of a backend, and the backend's own state for it. */
#ifndef COPES_COMMON_CONTEXT_H
#define COPES_COMMON_CONTEXT_H

#include "backends/backend.h"

struct copes_context {
    const copes_backend *backend;
    DLDevice device;
    void *state;
};

#endif
