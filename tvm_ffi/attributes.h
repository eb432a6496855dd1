/* An operator's attributes, from tvm-ffi's values to the descriptor's. */
#ifndef COPES_TVM_FFI_ATTRIBUTES_H
#define COPES_TVM_FFI_ATTRIBUTES_H

#include "tvm_ffi/values.h"

#include <copes/copes.h>

/* Writes one attribute; None leaves the default. Returns -1 with an error raised. */
int attribute_write(const copes_op_info *of, const copes_attribute_info *info, const tvm_value *value, copes_op *op);

#endif
