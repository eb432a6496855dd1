/* What the process has of tvm-ffi: errors, streams and memory. Its functions are looked up when a call needs them, so that the
 * library loads without tvm-ffi. */
#ifndef COPES_TVM_FFI_ENVIRONMENT_H
#define COPES_TVM_FFI_ENVIRONMENT_H

#include "bindings/error_class.h"

/* Raises an error of the caller's language. Without tvm-ffi the message goes to stderr. Returns -1. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int environment_fail(error_class class, const char *format, ...);

/* Raises what copes_last_error says. Returns 0 for COPES_OK, else -1. */
int environment_status(copes_status status);

/* The stream on which the caller has this device work; NULL on the CPU. Returns -1 with an error raised. */
int environment_stream(DLDevice device, void **stream);

/* Memory of the environment's allocator, which is that of the caller's tensors. *memory is NULL where there is no allocator.
 * *owner goes to environment_release. Returns -1 with an error raised. */
int environment_allocate(DLDevice device, size_t size, void **memory, void **owner);
void environment_release(void *owner);

#endif
