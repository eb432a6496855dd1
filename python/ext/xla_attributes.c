/* An operator's attributes, read as the library's table describes them. Their ranges are the library's to check. */
#include "python/ext/xla_attributes.h"

#include "bindings/choice.h"

static int64_t find(const XLA_FFI_Attrs *attributes, const char *name)
{
    const size_t length = strlen(name);
    for (int64_t i = 0; i < attributes->size; i++)
        if (attributes->names[i]->len == length && memcmp(attributes->names[i]->ptr, name, length) == 0)
            return i;
    return -1;
}

const void *xla_find(const XLA_FFI_Attrs *attributes, const char *name, XLA_FFI_AttrType type)
{
    const int64_t at = find(attributes, name);
    return at >= 0 && attributes->types[at] == type ? attributes->attrs[at] : NULL;
}

bool xla_integer(const XLA_FFI_Attrs *attributes, const char *name, int64_t *to)
{
    const XLA_FFI_Scalar *scalar = xla_find(attributes, name, XLA_FFI_AttrType_SCALAR);
    if (scalar == NULL || scalar->dtype != XLA_FFI_DataType_S64)
        return false;
    memcpy(to, scalar->value, sizeof *to);
    return true;
}

static bool read_choice(const copes_attribute_info *info, const XLA_FFI_Attrs *attributes, void *to)
{
    const XLA_FFI_ByteSpan *name = xla_find(attributes, info->name, XLA_FFI_AttrType_STRING);
    const int32_t index = name != NULL ? choice_index(info->choices, name->ptr, name->len) : -1;
    memcpy(to, &index, sizeof index);
    return index >= 0;
}

static bool read_int32(const copes_attribute_info *info, const XLA_FFI_Attrs *attributes, void *to)
{
    int64_t integer = 0;
    const bool found = xla_integer(attributes, info->name, &integer);
    const int32_t narrow = (int32_t)integer;
    memcpy(to, &narrow, sizeof narrow);
    return found && narrow == integer;
}

static bool read_double(const copes_attribute_info *info, const XLA_FFI_Attrs *attributes, void *to)
{
    const XLA_FFI_Scalar *scalar = xla_find(attributes, info->name, XLA_FFI_AttrType_SCALAR);
    if (scalar == NULL || scalar->dtype != XLA_FFI_DataType_F64)
        return false;
    memcpy(to, scalar->value, sizeof(double));
    return true;
}

static bool read_list(const copes_attribute_info *info, const XLA_FFI_Attrs *attributes, copes_op *op, void *to)
{
    if (info->count == 1)
        return xla_integer(attributes, info->name, to);
    const XLA_FFI_Array *list = xla_find(attributes, info->name, XLA_FFI_AttrType_ARRAY);
    if (list == NULL || list->dtype != XLA_FFI_DataType_S64 || list->size > (size_t)info->count)
        return false;
    memcpy(to, list->data, list->size * sizeof(int64_t));
    if (info->rank_offset >= 0)
        *(int32_t *)(void *)((char *)op + info->rank_offset) = (int32_t)list->size;
    return true;
}

static bool read(const copes_attribute_info *info, const XLA_FFI_Attrs *attributes, copes_op *op)
{
    void *to = (char *)op + info->offset;
    switch (info->type) {
    case COPES_ATTRIBUTE_ENUM: return read_choice(info, attributes, to);
    case COPES_ATTRIBUTE_BOOL:
    case COPES_ATTRIBUTE_INT32:
    case COPES_ATTRIBUTE_AXIS: return read_int32(info, attributes, to);
    case COPES_ATTRIBUTE_INT64: return read_list(info, attributes, op, to);
    case COPES_ATTRIBUTE_DOUBLE: return read_double(info, attributes, to);
    }
    return false;
}

const char *xla_read_attributes(const copes_op_info *of, const XLA_FFI_Attrs *attributes, copes_op *op)
{
    for (int i = 0; i < of->attribute_count; i++)
        if (find(attributes, of->attributes[i]->name) >= 0 && !read(of->attributes[i], attributes, op))
            return of->attributes[i]->name;
    return NULL;
}
