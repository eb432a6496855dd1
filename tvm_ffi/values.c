/* tvm-ffi's values as C's. Objects are read where they lie: the caller keeps them for as long as the call takes. */
#include "tvm_ffi/values.h"

#include <string.h>

static void *content(const tvm_value *value)
{
    return (tvm_object *)value->pointer + 1;
}

const char *value_kind(const tvm_value *value)
{
    switch (value->type) {
    case TVM_NONE: return "None";
    case TVM_INTEGER: return "an integer";
    case TVM_BOOL: return "a bool";
    case TVM_FLOAT: return "a float";
    case TVM_RAW_STRING:
    case TVM_SMALL_STRING:
    case TVM_STRING: return "a string";
    case TVM_DLTENSOR:
    case TVM_TENSOR: return "a tensor";
    case TVM_SHAPE:
    case TVM_ARRAY:
    case TVM_LIST: return "a list";
    default: return "an object of another type";
    }
}

bool value_text(const tvm_value *value, tvm_text *text)
{
    switch (value->type) {
    case TVM_RAW_STRING: *text = (tvm_text){value->pointer, strlen(value->pointer)}; return true;
    case TVM_SMALL_STRING: *text = (tvm_text){value->small, value->small_size}; return true;
    case TVM_STRING: *text = *(const tvm_text *)content(value); return true;
    default: return false;
    }
}

bool value_integer(const tvm_value *value, int64_t *integer)
{
    if (value->type != TVM_INTEGER && value->type != TVM_BOOL)
        return false;
    *integer = value->integer;
    return true;
}

bool value_number(const tvm_value *value, double *number)
{
    int64_t integer;
    if (value->type == TVM_FLOAT)
        *number = value->number;
    else if (value_integer(value, &integer))
        *number = (double)integer;
    else
        return false;
    return true;
}

DLTensor *value_tensor(const tvm_value *value)
{
    if (value->type == TVM_DLTENSOR)
        return value->pointer;
    return value->type == TVM_TENSOR ? content(value) : NULL;
}

int64_t value_length(const tvm_value *value)
{
    const bool is_list = value->type == TVM_SHAPE || value->type == TVM_ARRAY || value->type == TVM_LIST;
    return is_list ? ((const tvm_span *)content(value))->size : -1;
}

bool value_item(const tvm_value *value, int64_t index, int64_t *integer)
{
    const void *items = ((const tvm_span *)content(value))->data;
    if (value->type != TVM_SHAPE)
        return value_integer((const tvm_value *)items + index, integer);
    *integer = ((const int64_t *)items)[index];
    return true;
}
