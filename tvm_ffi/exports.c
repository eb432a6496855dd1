/* The functions that tvm-ffi finds in the library: tvm_ffi.load_module("libcopes.so").act_forward is __tvm_ffi_act_forward. */
#include "tvm_ffi/call.h"

/* One for each kind of the header, by its name in the table. */
#define OPERATOR(name, kind)                                                                                           \
    COPES_API int __tvm_ffi_##name(void *self, const tvm_value *values, int32_t count, tvm_value *result);             \
    int __tvm_ffi_##name(void *self, const tvm_value *values, int32_t count, tvm_value *result)                        \
    {                                                                                                                  \
        (void)self;                                                                                                    \
        *result = (tvm_value){.type = TVM_NONE};                                                                       \
        return call_run(kind, values, count);                                                                          \
    }

OPERATOR(act_forward, COPES_ACT_FORWARD)
OPERATOR(act_backward, COPES_ACT_BACKWARD)
OPERATOR(lrpe_forward, COPES_LRPE_FORWARD)
OPERATOR(lrpe_backward, COPES_LRPE_BACKWARD)
OPERATOR(tpa_decode, COPES_TPA_DECODE)
OPERATOR(qk_norm_rope_forward, COPES_QK_NORM_ROPE_FORWARD)
OPERATOR(qk_norm_rope_backward, COPES_QK_NORM_ROPE_BACKWARD)
OPERATOR(attention_merge_forward, COPES_ATTENTION_MERGE_FORWARD)
OPERATOR(attention_merge_backward, COPES_ATTENTION_MERGE_BACKWARD)

COPES_API int __tvm_ffi_workspace_size(void *self, const tvm_value *values, int32_t count, tvm_value *result);

int __tvm_ffi_workspace_size(void *self, const tvm_value *values, int32_t count, tvm_value *result)
{
    (void)self;
    size_t size = 0;
    const int status = call_workspace_size(values, count, &size);
    *result = (tvm_value){.type = TVM_INTEGER, .integer = (int64_t)size};
    return status;
}
