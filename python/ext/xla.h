/* The operators as XLA calls them, in JAX's compiled programs, by its foreign function interface. */
#ifndef COPES_PYTHON_XLA_H
#define COPES_PYTHON_XLA_H

#include "python/ext/python.h"

/* The handler for each of XLA's platforms: a dict of capsules, as JAX registers them. */
PyObject *xla_handlers(PyObject *module, PyObject *unused);

#endif
