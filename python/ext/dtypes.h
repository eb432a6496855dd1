/* The types of DLPack by the names that NumPy, JAX and others give them. */
#ifndef COPES_PYTHON_DTYPES_H
#define COPES_PYTHON_DTYPES_H

#include "python/ext/python.h"

#include <dlpack/dlpack.h>

enum { DLPACK_BOOL = 6, DLPACK_FLOAT8_E4M3FN = 10 }; /* which headers of DLPack 0.6 lack */

/* Returns -1 with an exception set, which names the slot, where no operator has such a type. */
int dtype_of_name(PyObject *name, const char *slot, DLDataType *dtype);

/* NULL: it has none here. */
const char *dtype_name(DLDataType dtype);

/* Sets the exception for an array of a type that DLPack lacks, or of which no operator knows. */
void refuse_dtype(const char *slot, PyObject *name);

#endif
