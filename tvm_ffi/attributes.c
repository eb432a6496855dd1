/* An operator's attributes, read as the library's table describes them. Their ranges are the library's to check. */
#include "tvm_ffi/attributes.h"

#include "bindings/choice.h"
#include "tvm_ffi/environment.h"

#include <string.h>

static int refuse(const copes_op_info *of, const copes_attribute_info *info, const tvm_value *value, const char *needed)
{
    return environment_fail(ERROR_TYPE, "%s: %s is %s; it must be %s", of->name, info->name, value_kind(value), needed);
}

static int write_choice(const copes_op_info *of, const copes_attribute_info *info, const tvm_value *value, void *to)
{
    tvm_text text;
    if (!value_text(value, &text))
        return environment_fail(ERROR_TYPE, "%s: %s is %s; it must be a string, one of %s", of->name, info->name,
                                value_kind(value), info->choices);
    const int32_t index = choice_index(info->choices, text.data, text.size);
    if (index < 0)
        return environment_fail(ERROR_VALUE, "%s: %s is \"%.*s\"; it must be one of %s", of->name, info->name,
                                (int)(text.size < 100 ? text.size : 100), text.data, info->choices);
    memcpy(to, &index, sizeof index);
    return 0;
}

static int write_int32(const copes_op_info *of, const copes_attribute_info *info, const tvm_value *value, void *to)
{
    int64_t integer;
    if (!value_integer(value, &integer))
        return refuse(of, info, value, info->type == COPES_ATTRIBUTE_BOOL ? "a bool" : "an integer");
    const int32_t narrow = (int32_t)integer;
    if (narrow != integer)
        return environment_fail(ERROR_VALUE, "%s: %s is %lld; it must fit 32 bits", of->name, info->name,
                                (long long)integer);
    memcpy(to, &narrow, sizeof narrow);
    return 0;
}

static int write_double(const copes_op_info *of, const copes_attribute_info *info, const tvm_value *value, void *to)
{
    double number;
    if (!value_number(value, &number))
        return refuse(of, info, value, "a number");
    memcpy(to, &number, sizeof number);
    return 0;
}

/* A number stands for a list of one. */
static int write_list(const copes_op_info *of, const copes_attribute_info *info, const tvm_value *value, copes_op *op)
{
    int64_t *to = (int64_t *)(void *)((char *)op + info->offset);
    const bool is_list = info->count > 1 && value_length(value) >= 0;
    const int64_t length = is_list ? value_length(value) : 1;
    const char *needed = info->count > 1 ? "an integer or a list of integers" : "an integer";
    if (length > info->count)
        return environment_fail(ERROR_VALUE, "%s: %s has %lld numbers; it must have at most %d", of->name, info->name,
                                (long long)length, (int)info->count);
    for (int64_t i = 0; i < length; i++)
        if (!(is_list ? value_item(value, i, to + i) : value_integer(value, to)))
            return is_list ? environment_fail(ERROR_TYPE,
                                              "%s: %s is a list with something else than integers; it must "
                                              "be %s",
                                              of->name, info->name, needed)
                           : refuse(of, info, value, needed);
    if (info->rank_offset >= 0)
        *(int32_t *)(void *)((char *)op + info->rank_offset) = (int32_t)length;
    return 0;
}

int attribute_write(const copes_op_info *of, const copes_attribute_info *info, const tvm_value *value, copes_op *op)
{
    void *to = (char *)op + info->offset;
    if (value->type == TVM_NONE)
        return 0;
    switch (info->type) {
    case COPES_ATTRIBUTE_ENUM: return write_choice(of, info, value, to);
    case COPES_ATTRIBUTE_BOOL:
    case COPES_ATTRIBUTE_INT32:
    case COPES_ATTRIBUTE_AXIS: return write_int32(of, info, value, to);
    case COPES_ATTRIBUTE_INT64: return write_list(of, info, value, op);
    case COPES_ATTRIBUTE_DOUBLE: return write_double(of, info, value, to);
    }
    return environment_fail(ERROR_RUNTIME, "%s: %s has a type that tvm_ffi/ does not know", of->name, info->name);
}
