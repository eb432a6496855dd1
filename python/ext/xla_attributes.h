/* An operator's attributes, from XLA's values to the descriptor's. */
#ifndef COPES_PYTHON_XLA_ATTRIBUTES_H
#define COPES_PYTHON_XLA_ATTRIBUTES_H

#include <copes/copes.h>
#include <stdbool.h>
#include <xla/ffi/api/c_api.h>

/* An attribute of the call by its name, if it has this type; NULL: there is none. */
const void *xla_find(const XLA_FFI_Attrs *attributes, const char *name, XLA_FFI_AttrType type);

/* The integer of this name; false: there is none. */
bool xla_integer(const XLA_FFI_Attrs *attributes, const char *name, int64_t *to);

/* Writes those of the table that the call has. Their values are what infer() returned for the program, but programs can be
 * stored: NULL, or the name of one that this library cannot read. */
const char *xla_read_attributes(const copes_op_info *of, const XLA_FFI_Attrs *attributes, copes_op *op);

#endif
