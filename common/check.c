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

static copes_status check_sums(const copes_call *call, const copes_share_slots *slots)
{
    const copes_tensor *first = call->out[COPES_FIRST_OUT], *given = call->in[slots->given],
                       *made = call->out[slots->made];
    const char *name = call->info->name, *result = call->info->out[COPES_FIRST_OUT]->name,
               *sums = call->info->out[slots->made]->name;
    if (!slots->taken && (copes_present(given) || copes_present(made)))
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: %s is given; it must be NULL but for %s", name,
                          copes_present(given) ? given->name : made->name, slots->where);
    if (!call->infers && !copes_present(first) && !copes_present(made))
        return copes_fail(COPES_ERROR_NULL,
                          slots->taken ? "%s: %s is NULL; it must be a tensor, or %s must be one"
                                       : "%s: %s is NULL; it must be a tensor",
                          name, result, sums);
    if (copes_present(given) && copes_present(made))
        return copes_fail(COPES_ERROR_NULL, "%s: %s and %s are given; one of them must be NULL", name, given->name,
                          sums);
    if (copes_present(first) && copes_present(made) && !slots->byproduct)
        return copes_fail(COPES_ERROR_NULL, "%s: %s and %s are given; one of them must be NULL", name, result, sums);
    return COPES_OK;
}

copes_status copes_check_shares(copes_call *call, const copes_share_slots *slots, const copes_spec *sums,
                                const char *extent)
{
    const copes_tensor *given = call->in[slots->given];
    COPES_TRY(check_sums(call, slots));
    call->passes = !copes_present(call->out[COPES_FIRST_OUT]) ? COPES_FIRST_PASS
                   : copes_present(given)                     ? COPES_SECOND_PASS
                                                              : COPES_BOTH_PASSES;
    if (!copes_present(given))
        return COPES_OK;
    COPES_TRY(copes_check_dtype(call, given, sums->dtype, ""));
    return copes_check_shape(call, given, sums->rank, sums->shape, extent);
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
