/* Memory of the library's own as an array of Python, exported through DLPack: results for frameworks whose arrays
 * cannot be written to, which import it without a copy. */
#ifndef COPES_PYTHON_BUFFER_H
#define COPES_PYTHON_BUFFER_H

#include "python/ext/python.h"

#include <dlpack/dlpack.h>

/* Makes the type Buffer and adds it to the module. Returns -1 with an exception set. */
int buffer_start(PyObject *module);

/* A new buffer of this shape and type on this device, contiguous, its content undefined. */
PyObject *buffer_new(const DLTensor *description);

/* Is it a buffer? Then *tensor views it. */
int buffer_view(PyObject *object, DLTensor *tensor);

#endif
