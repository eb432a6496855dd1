/* The array types met so far, and how each is read and made. */
#ifndef COPES_PYTHON_FRAMEWORKS_H
#define COPES_PYTHON_FRAMEWORKS_H

#include "python/ext/python.h"

#include "python/ext/exchange.h"
#include <stdbool.h>

typedef struct framework {
    PyTypeObject *type;
    PyObject *name;          /* the package's, interned: types of one framework share it */
    const exchange_api *api; /* NULL: the type has none */
    bool numpy;
    bool writable;     /* false: arrays of this type are never written to */
    PyObject *empty;   /* (like, shape or None for like's, dtype's name or None for like's) -> array */
    PyObject *scratch; /* (like, bytes) -> array on like's device */
    PyObject *finish;  /* None, or (array) -> what the caller gets */
    PyObject *stream;  /* None, or (device) -> the current stream's address */
    PyObject *pending; /* NULL, or (array) -> whether its memory is not what it stands for, such as a negative view's */
    PyObject *resolve; /* (array) -> one like it whose memory is */
    struct framework *next;
} framework;

/* Finds the package that the module is in, which need not be called copes. Returns -1 with an exception set. */
int frameworks_start(PyObject *module);

/* The framework of the object's type; NULL with an exception set where its type is no array's. */
const framework *framework_of(PyObject *object, const char *slot);

/* The stream on which calls for this device are to run. Returns -1 with an exception set where that fails. */
int framework_stream(const framework *of, DLDevice device, void **stream);

#endif
