/* An operator's attributes, from Python's values to the descriptor's. */
#ifndef COPES_PYTHON_ATTRIBUTES_H
#define COPES_PYTHON_ATTRIBUTES_H

#include "python/ext/python.h"

#include <copes/copes.h>

/* Writes one attribute of an operator; None leaves the default. `rank` is that of the input which an axis is of. Returns -1
 * with an exception set. */
int attribute_set(const copes_op_info *of, int index, PyObject *value, int rank, copes_op *op);

#endif
