/* Python's header, as the stable ABI of 3.10 has it, so that one build serves every version from there. */
#ifndef COPES_PYTHON_PYTHON_H
#define COPES_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <pyconfig.h> /* for Py_GIL_DISABLED: free-threaded builds have no stable ABI before 3.15 */
#if !defined(Py_LIMITED_API) && !defined(Py_GIL_DISABLED)
#define Py_LIMITED_API 0x030a0000
#endif
#include <Python.h>

#endif
