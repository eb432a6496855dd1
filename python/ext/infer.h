/* What a call of an operator makes, of descriptions alone: for frameworks that trace a program before there are arrays. */
#ifndef COPES_PYTHON_INFER_H
#define COPES_PYTHON_INFER_H

#include "python/ext/python.h"

/* infer(operator, device_type, device_id, inputs..., outputs..., attributes...), each in the order of the library's table. An
 * input is a pair (shape, dtype's name) or None; an output is True or False, one that exists before the call a pair or None.
 * Returns (outputs, attributes, workspace): the pairs of the outputs that there are, the attributes with None for what has its
 * default and axes counted from the end, and the bytes of scratch memory on that device. */
PyObject *infer_call(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif
