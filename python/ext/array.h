/* An array of Python seen as a DLTensor, without a copy. */
#ifndef COPES_PYTHON_ARRAY_H
#define COPES_PYTHON_ARRAY_H

#include "python/ext/frameworks.h"
#include <copes/copes.h>

typedef struct array {
    DLTensor tensor;
    int64_t shape[COPES_MAX_RANK], strides[COPES_MAX_RANK];
    const framework *framework; /* NULL: a Buffer, which only the library itself makes */
    PyObject *owner;            /* what the view lives in; NULL where the object itself keeps it */
    bool read_only;
    bool resolved; /* the view is of a copy, as the object's own memory is not what it stands for */
} array;

/* Views the object. Returns -1 with an exception set, which names the slot, where it is no array that copes can see.
 * The view holds a reference where it needs one: close it, also after a failure. */
int array_open(PyObject *object, const char *slot, array *view);

/* Likewise for what the library or a framework made for it, which may be a Buffer. */
int array_open_made(PyObject *object, const char *slot, array *view);
void array_close(array *view);

/* Sets the exception for more dimensions than the library has, and returns -1. */
int array_refuse_rank(const char *slot, Py_ssize_t rank);

#endif
