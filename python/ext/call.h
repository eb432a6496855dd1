/* One call of an operator, from Python's arguments to its results. */
#ifndef COPES_PYTHON_CALL_H
#define COPES_PYTHON_CALL_H

#include "python/ext/python.h"

#include <copes/copes.h>

/* run(kind, inputs..., outputs..., attributes...), each in the order of the library's table. An input is an array or
 * None. An output is an array to write to, None for a new one, or, for an optional slot, False to go without or True
 * for a new one (None is False there, but for the first output); one that exists before the call is an array or None. Returns the other
 * outputs, as a tuple where there are several. */
PyObject *call_run(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* Sets the exception that the status is, with the library's message. Returns 0 for COPES_OK, else -1. */
int call_status(copes_status status);

#endif
