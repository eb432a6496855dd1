/* Which of Python's exceptions a status becomes, for every binding alike. */
#ifndef COPES_BINDINGS_ERROR_CLASS_H
#define COPES_BINDINGS_ERROR_CLASS_H

#include <copes/copes.h>

typedef enum error_class { ERROR_VALUE, ERROR_TYPE, ERROR_RUNTIME, ERROR_MEMORY } error_class;

/* Of a status that is not COPES_OK. */
static inline error_class error_class_of(copes_status status)
{
    switch (status) {
    case COPES_ERROR_NULL:
    case COPES_ERROR_DTYPE: return ERROR_TYPE;
    case COPES_ERROR_MEMORY: return ERROR_MEMORY;
    case COPES_ERROR_OP:
    case COPES_ERROR_WORKSPACE:
    case COPES_ERROR_UNSUPPORTED:
    case COPES_ERROR_BACKEND: return ERROR_RUNTIME;
    default: return ERROR_VALUE;
    }
}

#endif
