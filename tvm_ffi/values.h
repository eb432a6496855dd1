/* tvm-ffi's values as C's. */
#ifndef COPES_TVM_FFI_VALUES_H
#define COPES_TVM_FFI_VALUES_H

#include "tvm_ffi/abi.h"

#include <dlpack/dlpack.h>
#include <stdbool.h>

/* What the value is, for a message: "an integer". */
const char *value_kind(const tvm_value *value);

/* Each is false, or NULL, where the value is of another type. */
bool value_text(const tvm_value *value, tvm_text *text);
bool value_integer(const tvm_value *value, int64_t *integer); /* a bool is 0 or 1 */
bool value_number(const tvm_value *value, double *number);
DLTensor *value_tensor(const tvm_value *value);

/* The length of a shape, an array or a list; -1: the value is none. value_item reads an element of one. */
int64_t value_length(const tvm_value *value);
bool value_item(const tvm_value *value, int64_t index, int64_t *integer);

#endif
