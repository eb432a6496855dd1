/* What the families share of checking tensors, and of taking them for checked. */
#include "common/family.h"

copes_status copes_require(const copes_call *call, const copes_tensor *tensor, const char *slot, const char *reason)
{
    if (copes_present(tensor))
        return COPES_OK;
    return copes_fail(COPES_ERROR_NULL, "%s: %s is NULL; %s", call->info->name, slot, reason);
}

copes_status copes_check_floating(const copes_call *call, const copes_tensor *tensor)
{
    if (copes_is_floating(tensor->dtype))
        return COPES_OK;
    return copes_fail(COPES_ERROR_DTYPE, "%s: %s has type %s; it must be %s", call->info->name, tensor->name,
                      copes_dtype_name(tensor->dtype), COPES_FLOATING_TYPES);
}

copes_status copes_check_dtype(const copes_call *call, const copes_tensor *tensor, copes_dtype dtype, const char *like)
{
    if (tensor->dtype == dtype)
        return COPES_OK;
    return copes_fail(COPES_ERROR_DTYPE, "%s: %s has type %s; it must be %s%s%s", call->info->name, tensor->name,
                      copes_dtype_name(tensor->dtype), copes_dtype_name(dtype), like[0] == '\0' ? "" : ", as ", like);
}

copes_status copes_check_shape(const copes_call *call, const copes_tensor *tensor, int rank, const int64_t *shape,
                               const char *like)
{
    bool same = tensor->rank == rank;
    for (int i = 0; i < rank && same; i++)
        same = tensor->shape[i] == shape[i];
    if (same)
        return COPES_OK;
    char is[COPES_SHAPE_TEXT], must_be[COPES_SHAPE_TEXT];
    return copes_fail(COPES_ERROR_SHAPE, "%s: %s has shape %s; it must be %s, %s", call->info->name, tensor->name,
                      copes_shape_text(tensor->rank, tensor->shape, is), copes_shape_text(rank, shape, must_be), like);
}

void *copes_view_data(const copes_tensor *tensor)
{
    static _Alignas(64) char somewhere; /* nothing is read or written there */
    if (!copes_present(tensor))
        return NULL;
    return tensor->data != NULL ? (void *)tensor->data : &somewhere;
}

copes_view copes_view_of(const copes_tensor *tensor)
{
    copes_view view = {.data = copes_view_data(tensor)};
    for (int i = 0; i < tensor->rank; i++)
        view.stride[i] = tensor->stride[i];
    return view;
}
