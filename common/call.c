/* copes_infer, copes_workspace_size and copes_run: a call is read, checked, planned and handed to its backend. */
#include "common/context.h"
#include "common/family.h"

/* Reads one row of slots. `required` slots must be there; those that the operator lacks must not. `types`: the types of
 * those that are not any of the floating ones. */
static copes_status read_slots(const copes_call *call, const copes_slot_info *slots, int count, DLTensor *const *given,
                               copes_tensor *tensors, const char *row, const char *const *types)
{
    for (int i = 0; i < count; i++) {
        if (slots[i].name == NULL && given[i] != NULL)
            return copes_fail(COPES_ERROR_NULL,
                              "%s: %s[%d] is given; the operator has no such slot, so it must be NULL",
                              call->info->name, row, i);
        if (slots[i].name == NULL || (given[i] == NULL && slots[i].optional))
            continue;
        if (given[i] == NULL)
            return copes_fail(COPES_ERROR_NULL, "%s: %s is NULL; it must be a tensor", call->info->name, slots[i].name);
        const char *const taken = types != NULL && types[i] != NULL ? types[i] : COPES_FLOATING_TYPES;
        COPES_TRY(copes_tensor_read(call->info->name, slots[i].name, taken, given[i], &tensors[i]));
    }
    return COPES_OK;
}

/* What both entry points check first: the descriptor and the inputs. Outputs are only noted as asked for. */
static copes_status read_call(const copes_op *op, const copes_args *args, copes_call *call, const copes_family **family)
{
    *call = (copes_call){.op = op};
    if (op == NULL)
        return copes_fail(COPES_ERROR_NULL, "op is NULL; it must point to a descriptor");
    call->info = copes_op_find(op->kind, family);
    if (call->info == NULL)
        return copes_fail(COPES_ERROR_OP, "op: kind is %d; it must be one of copes_kind, 1 to %d", (int)op->kind,
                          (int)COPES_TPA_DECODE);
    if (args == NULL)
        return copes_fail(COPES_ERROR_NULL, "%s: args is NULL; it must point to the tensors", call->info->name);
    return read_slots(call, call->info->in, COPES_MAX_INPUTS, args->in, call->in, "in", (*family)->types);
}

static copes_status check_device(const copes_call *call, const copes_tensor *tensor, DLDevice device, const char *whose)
{
    if (!copes_present(tensor) ||
        (tensor->device.device_type == device.device_type && tensor->device.device_id == device.device_id))
        return COPES_OK;
    return copes_fail(COPES_ERROR_DEVICE, "%s: %s is on device (%d, %d); it must be on %s, (%d, %d)", call->info->name,
                      tensor->name, (int)tensor->device.device_type, tensor->device.device_id, whose,
                      (int)device.device_type, device.device_id);
}

static copes_status check_inputs_together(const copes_call *call)
{
    const copes_tensor *first = NULL;
    for (int i = 0; i < COPES_MAX_INPUTS; i++) {
        if (first == NULL && copes_present(&call->in[i]))
            first = &call->in[i];
        if (first != NULL)
            COPES_TRY(check_device(call, &call->in[i], first->device, "the device of the first input"));
    }
    return COPES_OK;
}

/* An operator may ask for more elements than its inputs have memory for: tpa's o takes its lengths from several. */
static copes_status check_specs(const copes_call *call)
{
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        const copes_spec *spec = &call->spec[i];
        int64_t bytes = copes_dtype_size(spec->dtype);
        for (int j = 0; j < spec->rank && bytes >= 0; j++)
            bytes = copes_multiply(bytes, spec->shape[j] > 0 ? spec->shape[j] : 1);
        if (!copes_present(&call->out[i]) || bytes >= 0)
            continue;
        char text[COPES_SHAPE_TEXT];
        return copes_fail(COPES_ERROR_SIZE, "%s: %s is to have shape %s of %s; its size in bytes must fit 63 bits",
                          call->info->name, call->out[i].name, copes_shape_text(spec->rank, spec->shape, text),
                          copes_dtype_name(spec->dtype));
    }
    return COPES_OK;
}

copes_status copes_infer(const copes_op *op, const copes_args *args)
{
    copes_call call;
    const copes_family *family;
    COPES_TRY(read_call(op, args, &call, &family));
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) { /* their contents do not count yet, only that they are asked for */
        if (args->out[i] == NULL)
            continue;
        if (call.info->out[i].name == NULL)
            return copes_fail(COPES_ERROR_NULL,
                              "%s: out[%d] is given; the operator has no such slot, so it must be NULL",
                              call.info->name, i);
        if (args->out[i]->shape == NULL)
            return copes_fail(COPES_ERROR_NULL, "%s: %s has a NULL shape; it must point to room for %d lengths",
                              call.info->name, call.info->out[i].name, COPES_MAX_RANK);
        call.out[i].name = call.info->out[i].name;
    }
    COPES_TRY(check_inputs_together(&call));
    COPES_TRY(family->check(&call));
    COPES_TRY(check_specs(&call));
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        DLTensor *out = args->out[i];
        if (out == NULL)
            continue;
        out->ndim = call.spec[i].rank;
        out->dtype = copes_dtype_dlpack(call.spec[i].dtype);
        for (int j = 0; j < COPES_MAX_INPUTS; j++)
            if (copes_present(&call.in[j]))
                out->device = call.in[j].device;
        out->strides = NULL;
        out->byte_offset = 0;
        for (int j = 0; j < call.spec[i].rank; j++)
            out->shape[j] = call.spec[i].shape[j];
    }
    return COPES_OK;
}

static copes_status check_outputs(const copes_call *call)
{
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        const copes_tensor *out = &call->out[i];
        if (!copes_present(out))
            continue;
        COPES_TRY(copes_check_dtype(call, out, call->spec[i].dtype, ""));
        COPES_TRY(copes_check_shape(call, out, call->spec[i].rank, call->spec[i].shape, call->info->out[i].shape));
        COPES_TRY(copes_tensor_check_distinct(call->info->name, out));
    }
    return COPES_OK;
}

/* The first output may be exactly the input that it replaces, where they have one shape; any other overlap is
 * refused. */
static bool may_replace(const copes_call *call, int input, int output)
{
    if (output != COPES_OUT || call->info->inplace != input + 1)
        return false;
    const copes_tensor *in = &call->in[input], *out = &call->out[output];
    bool same = in->rank == out->rank;
    for (int i = 0; i < in->rank && same; i++)
        same = in->shape[i] == out->shape[i];
    return same;
}

/* Between tensors that have data: for the size of a workspace they need none yet. */
static copes_status check_aliases(const copes_call *call)
{
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        const copes_tensor *out = &call->out[i];
        for (int j = 0; j < COPES_MAX_INPUTS + i; j++) {
            const copes_tensor *other = j < COPES_MAX_INPUTS ? &call->in[j] : &call->out[j - COPES_MAX_INPUTS];
            if (!copes_present(out) || !copes_present(other) || out->data == NULL || other->data == NULL ||
                !copes_tensor_may_overlap(out, other) || (may_replace(call, j, i) && copes_tensor_same(out, other)))
                continue;
            return copes_fail(COPES_ERROR_ALIAS, "%s: %s overlaps %s; it must have memory of its own%s",
                              call->info->name, out->name, other->name,
                              may_replace(call, j, i) ? ", or be exactly that tensor" : "");
        }
    }
    return COPES_OK;
}

static copes_status check_data(const copes_call *call)
{
    for (int i = 0; i < COPES_MAX_INPUTS + COPES_MAX_OUTPUTS; i++) {
        const copes_tensor *tensor = i < COPES_MAX_INPUTS ? &call->in[i] : &call->out[i - COPES_MAX_INPUTS];
        if (copes_present(tensor) && tensor->count > 0 && tensor->data == NULL)
            return copes_fail(COPES_ERROR_NULL, "%s: %s has %lld elements and data NULL; it must point to them",
                              call->info->name, tensor->name, (long long)tensor->count);
    }
    return COPES_OK;
}

/* Everything about a call that does not need its data. `empty`: no output has an element, so there is nothing to do. */
static copes_status check_call(const copes_context *context, const copes_op *op, const copes_args *args,
                               copes_call *call, copes_problem *problem, bool *empty)
{
    const copes_family *family;
    if (context == NULL)
        return copes_fail(COPES_ERROR_NULL, "context is NULL; it must come from copes_context_create");
    COPES_TRY(read_call(op, args, call, &family));
    COPES_TRY(read_slots(call, call->info->out, COPES_MAX_OUTPUTS, args->out, call->out, "out", NULL));
    for (int i = 0; i < COPES_MAX_INPUTS; i++)
        COPES_TRY(check_device(call, &call->in[i], context->device, "the context's"));
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        COPES_TRY(check_device(call, &call->out[i], context->device, "the context's"));
    COPES_TRY(family->check(call));
    COPES_TRY(check_outputs(call));
    *empty = true;
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        *empty = *empty && (!copes_present(&call->out[i]) || call->out[i].count == 0);
    problem->kind = op->kind;
    if (!*empty)
        family->plan(call, problem);
    const copes_dtype dtype = call->spec[COPES_OUT].dtype;
    if ((context->backend->dtypes >> dtype & 1) == 0)
        return copes_fail(COPES_ERROR_UNSUPPORTED, "%s: %s has type %s, which the %s backend does not run",
                          call->info->name, call->out[COPES_OUT].name, copes_dtype_name(dtype), context->backend->name);
    return COPES_OK;
}

/* What the backend asks for, and room to align it: the caller's workspace may start anywhere. */
static copes_status padded_workspace(const copes_context *context, const copes_problem *problem, size_t *size)
{
    COPES_TRY(context->backend->workspace_size(context->state, problem, size));
    *size += *size > 0 ? COPES_WORKSPACE_ALIGNMENT - 1 : 0;
    return COPES_OK;
}

copes_status copes_workspace_size(copes_context *context, const copes_op *op, const copes_args *args, size_t *size)
{
    copes_call call;
    copes_problem problem;
    bool empty;
    if (size == NULL)
        return copes_fail(COPES_ERROR_NULL, "size is NULL; it must point to where the size goes");
    COPES_TRY(check_call(context, op, args, &call, &problem, &empty));
    COPES_TRY(check_aliases(&call));
    *size = 0;
    return empty ? COPES_OK : padded_workspace(context, &problem, size);
}

copes_status copes_run(copes_context *context, const copes_op *op, const copes_args *args, void *workspace,
                       size_t workspace_size)
{
    copes_call call;
    copes_problem problem;
    bool empty;
    COPES_TRY(check_call(context, op, args, &call, &problem, &empty));
    COPES_TRY(check_data(&call));
    COPES_TRY(check_aliases(&call));
    if (empty)
        return COPES_OK;
    size_t needed = 0;
    COPES_TRY(padded_workspace(context, &problem, &needed));
    if (needed > 0 && (workspace == NULL || workspace_size < needed))
        return copes_fail(COPES_ERROR_WORKSPACE, "%s: the workspace has %zu bytes%s; it must have %zu", call.info->name,
                          workspace_size, workspace == NULL ? " at NULL" : "", needed);
    const uintptr_t start = (uintptr_t)workspace, mask = COPES_WORKSPACE_ALIGNMENT - 1;
    return context->backend->run(context->state, &problem, needed > 0 ? (void *)((start + mask) & ~mask) : NULL);
}
