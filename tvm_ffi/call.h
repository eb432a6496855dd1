/* One call of an operator, from pairs of a name and a value. */
#ifndef COPES_TVM_FFI_CALL_H
#define COPES_TVM_FFI_CALL_H

#include "tvm_ffi/abi.h"

#include <copes/copes.h>

/* Runs the operator. Returns -1 with an error raised. */
int call_run(copes_kind kind, const tvm_value *values, int32_t count);

/* The bytes of the workspace of a call, whose operator's name comes before the pairs. Likewise. */
int call_workspace_size(const tvm_value *values, int32_t count, size_t *size);

#endif
