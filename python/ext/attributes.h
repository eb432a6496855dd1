/* An operator's attributes, from Python's values to the descriptor's. */
#ifndef COPES_PYTHON_ATTRIBUTES_H
#define COPES_PYTHON_ATTRIBUTES_H

#include "python/ext/python.h"

#include <copes/copes.h>

/* Writes one attribute; None leaves the default. Returns -1 with an exception set. */
int attribute_set(const copes_attribute_info *info, PyObject *value, copes_op *op);

#endif
