/* copes_infer, copes_workspace_size and _bound, copes_explain and copes_run: a call is read, checked, planned and handed to its
 * backend. */
#include "common/alias.h"
#include "common/context.h"
#include "common/float_mode.h"
#include "common/plan.h"
#include "common/reserved.h"

#include <stdio.h>

/* The types that slot i takes, in words, by a family's table. */
static const char *types_of(const char *const *types, int i)
{
    return types != NULL && types[i] != NULL ? types[i] : COPES_FLOATING_TYPES;
}

/* The tensors of a call, by slots; of slots without one nothing is written. */
typedef struct call_memory {
    copes_tensor in[COPES_MAX_INPUTS], out[COPES_MAX_OUTPUTS];
} call_memory;

/* Reads one row of slots into `memory`. Slots that are not optional must be there; those that the operator lacks must not.
 * `types`: the types of those that are not any of the floating ones. */
static copes_status read_slots(const copes_call *call, const copes_slot_info *const *slots, int count,
                               DLTensor *const *given, copes_tensor *memory, const copes_tensor **tensors,
                               const char *row, const char *const *types)
{
    for (int i = 0; i < count; i++) {
        if (slots[i] == NULL && given[i] != NULL)
            return copes_fail(COPES_ERROR_NULL,
                              "%s: %s[%d] is given; the operator has no such slot, so it must be NULL",
                              call->info->name, row, i);
        if (slots[i] == NULL || (given[i] == NULL && slots[i]->optional))
            continue;
        if (given[i] == NULL)
            return copes_fail(COPES_ERROR_NULL, "%s: %s is NULL; it must be a tensor", call->info->name,
                              slots[i]->name);
        COPES_TRY(copes_tensor_read(call->info->name, slots[i]->name, types_of(types, i), given[i], &memory[i]));
        tensors[i] = &memory[i];
    }
    return COPES_OK;
}

/* Of the family's attributes, and of copes_op itself. */
static copes_status check_reserved(const copes_call *call, size_t from)
{
    const copes_op *op = call->op;
    if (op->reserved == 0 && copes_all_zero((const char *)op + from, sizeof *op - from))
        return COPES_OK;
    return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: " COPES_RESERVED_NOT_ZERO, call->info->name);
}

/* What both entry points check first: the descriptor and the inputs. Outputs are only noted as asked for. */
static copes_status read_call(const copes_op *op, const copes_args *args, call_memory *memory, copes_call *call,
                              const copes_family **family)
{
    *call = (copes_call){.op = op};
    copes_call_clear(call);
    if (op == NULL)
        return copes_fail(COPES_ERROR_NULL, "op is NULL; it must point to a descriptor");
    call->info = copes_op_find(op->kind, family);
    if (call->info == NULL)
        return copes_fail(COPES_ERROR_OP, "op: kind is %d; it must be one of copes_kind, 1 to %d", (int)op->kind,
                          (int)COPES_ATTENTION_MERGE_BACKWARD);
    COPES_TRY(check_reserved(call, (*family)->reserved));
    if (args == NULL)
        return copes_fail(COPES_ERROR_NULL, "%s: args is NULL; it must point to the tensors", call->info->name);
    return read_slots(call, call->info->in, COPES_MAX_INPUTS, args->in, memory->in, call->in, "in", (*family)->types);
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
        if (first == NULL && copes_present(call->in[i]))
            first = call->in[i];
        if (first != NULL)
            COPES_TRY(check_device(call, call->in[i], first->device, "the device of the first input"));
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
        if (!copes_present(call->out[i]) || bytes >= 0)
            continue;
        char text[COPES_SHAPE_TEXT];
        return copes_fail(COPES_ERROR_SIZE, "%s: %s is to have shape %s of %s; its size in bytes must fit 63 bits",
                          call->info->name, call->out[i]->name, copes_shape_text(spec->rank, spec->shape, text),
                          copes_dtype_name(spec->dtype));
    }
    return COPES_OK;
}

copes_status copes_infer(const copes_op *op, const copes_args *args)
{
    call_memory memory;
    copes_call call;
    const copes_family *family;
    COPES_TRY(read_call(op, args, &memory, &call, &family));
    call.infers = true;
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) { /* their contents do not count yet, only that they are asked for */
        if (args->out[i] == NULL)
            continue;
        if (call.info->out[i] == NULL)
            return copes_fail(COPES_ERROR_NULL,
                              "%s: out[%d] is given; the operator has no such slot, so it must be NULL",
                              call.info->name, i);
        if (args->out[i]->shape == NULL)
            return copes_fail(COPES_ERROR_NULL, "%s: %s has a NULL shape; it must point to room for %d lengths",
                              call.info->name, call.info->out[i]->name, COPES_MAX_RANK);
        memory.out[i] = (copes_tensor){.name = call.info->out[i]->name};
        call.out[i] = &memory.out[i];
        if (call.info->out[i]->updated)
            COPES_TRY(copes_tensor_read(call.info->name, call.out[i]->name, types_of(family->out_types, i),
                                        args->out[i], &memory.out[i]));
    }
    COPES_TRY(check_inputs_together(&call));
    COPES_TRY(family->check(&call));
    COPES_TRY(check_specs(&call));
    COPES_TRY(copes_check_descriptions(&call, args));
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        DLTensor *out = args->out[i];
        if (out == NULL || call.info->out[i]->updated)
            continue;
        out->ndim = call.spec[i].rank;
        out->dtype = copes_dtype_dlpack(call.spec[i].dtype);
        for (int j = 0; j < COPES_MAX_INPUTS; j++)
            if (copes_present(call.in[j]))
                out->device = call.in[j]->device;
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
        const copes_tensor *out = call->out[i];
        if (!copes_present(out))
            continue;
        if (!call->info->out[i]->updated) { /* else the family's check has looked at it */
            COPES_TRY(copes_check_dtype(call, out, call->spec[i].dtype, ""));
            COPES_TRY(copes_check_shape(call, out, call->spec[i].rank, call->spec[i].shape, call->info->out[i]->shape));
        }
        COPES_TRY(copes_tensor_check_distinct(call->info->name, out));
    }
    return COPES_OK;
}

static copes_status check_data(const copes_call *call)
{
    for (int i = 0; i < COPES_MAX_INPUTS + COPES_MAX_OUTPUTS; i++) {
        const copes_tensor *tensor = i < COPES_MAX_INPUTS ? call->in[i] : call->out[i - COPES_MAX_INPUTS];
        if (copes_present(tensor) && tensor->count > 0 && tensor->data == NULL)
            return copes_fail(COPES_ERROR_NULL, "%s: %s has %lld elements and data NULL; it must point to them",
                              call->info->name, tensor->name, (long long)tensor->count);
    }
    return COPES_OK;
}

/* Everything about a call that does not need its data. `empty`: no output has an element, so there is nothing to do. */
static copes_status check_call(const copes_context *context, const copes_op *op, const copes_args *args,
                               call_memory *memory, copes_call *call, copes_problem *problem, bool *empty)
{
    const copes_family *family;
    *empty = true;
    if (context == NULL)
        return copes_fail(COPES_ERROR_NULL, "context is NULL; it must come from copes_context_create");
    COPES_TRY(read_call(op, args, memory, call, &family));
    COPES_TRY(read_slots(call, call->info->out, COPES_MAX_OUTPUTS, args->out, memory->out, call->out, "out",
                         family->out_types));
    for (int i = 0; i < COPES_MAX_INPUTS; i++)
        COPES_TRY(check_device(call, call->in[i], context->device, "the context's"));
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        COPES_TRY(check_device(call, call->out[i], context->device, "the context's"));
    COPES_TRY(family->check(call));
    COPES_TRY(check_outputs(call));
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        *empty = *empty && (!copes_present(call->out[i]) || call->out[i]->count == 0);
    *empty = *empty || call->idle;
    problem->kind = op->kind;
    if (!*empty)
        family->plan(call, problem);
    const copes_dtype dtype = call->spec[COPES_FIRST_OUT].dtype;
    if ((context->backend->dtypes >> dtype & 1) == 0)
        return copes_fail(COPES_ERROR_UNSUPPORTED, "%s: %s has type %s, which the %s backend does not run",
                          call->info->name, call->info->out[COPES_FIRST_OUT]->name, copes_dtype_name(dtype),
                          context->backend->info.name);
    return COPES_OK;
}

/* What the plan asks for, and room to align it: the caller's workspace may start anywhere. Strides of 0 make lengths possible
 * for which it has no size. */
static copes_status padded_workspace(const copes_call *call, const copes_plan *plan, size_t *size)
{
    const int64_t padded = plan->workspace == 0 ? 0 : copes_add(plan->workspace, COPES_WORKSPACE_ALIGNMENT - 1);
    if (padded >= 0 && (uint64_t)padded <= SIZE_MAX) {
        *size = (size_t)padded;
        return COPES_OK;
    }
    const copes_tensor *largest = call->out[COPES_FIRST_OUT];
    for (int i = 0; i < COPES_MAX_INPUTS; i++)
        if (copes_present(call->in[i]) && call->in[i]->count > largest->count)
            largest = call->in[i];
    char text[COPES_SHAPE_TEXT];
    return copes_fail(COPES_ERROR_SIZE,
                      "%s: %s has shape %s; its lengths must be such that the size of the workspace fits 63 bits",
                      call->info->name, largest->name, copes_shape_text(largest->rank, largest->shape, text));
}

/* How a call is to be run, and the bytes of workspace that the caller is to bring. */
typedef struct planned_call {
    copes_problem problem;
    bool empty; /* nothing is to be done, and nothing below is filled in */
    copes_plan plan;
    size_t workspace;
} planned_call;

/* Where kernels' part of the caller's workspace begins. */
static void *aligned(void *workspace)
{
    const uintptr_t mask = COPES_WORKSPACE_ALIGNMENT - 1;
    return (void *)(((uintptr_t)workspace + mask) & ~mask);
}

/* Whether the workspace that came is the one that the plan needs, and apart from all tensors. */
static copes_status check_workspace(const copes_call *call, size_t needed, void *workspace, size_t size)
{
    if (needed == 0)
        return COPES_OK;
    if (workspace == NULL || size < needed)
        return copes_fail(COPES_ERROR_WORKSPACE, "%s: the workspace has %zu bytes%s; it must have %zu",
                          call->info->name, size, workspace == NULL ? " at NULL" : "", needed);
    return copes_check_workspace(call, aligned(workspace), needed - (COPES_WORKSPACE_ALIGNMENT - 1));
}

/* The workspace of a call that is to be run. */
typedef struct given_workspace {
    void *data;
    size_t size;
} given_workspace;

/* `given`: NULL where the call is not to be run, and has no data to check. Never inlined: what it knows of the tensors has the
 * size of several pages, and is off the stack again when a kernel runs. */
__attribute__((noinline)) static copes_status plan_call(const copes_context *context, const copes_op *op,
                                                        const copes_args *args, const given_workspace *given,
                                                        planned_call *planned)
{
    call_memory memory;
    copes_call call;
    COPES_TRY(check_call(context, op, args, &memory, &call, &planned->problem, &planned->empty));
    if (given != NULL)
        COPES_TRY(check_data(&call));
    COPES_TRY(copes_check_aliases(&call));
    planned->workspace = 0;
    if (planned->empty)
        return COPES_OK;
    COPES_TRY(context->backend->plan(context->state, &planned->problem, &planned->plan));
    COPES_TRY(padded_workspace(&call, &planned->plan, &planned->workspace));
    return given == NULL ? COPES_OK : check_workspace(&call, planned->workspace, given->data, given->size);
}

static copes_status find_workspace_size(const copes_context *context, const copes_op *op, const copes_args *args,
                                        size_t *size)
{
    planned_call planned;
    if (size == NULL)
        return copes_fail(COPES_ERROR_NULL, "size is NULL; it must point to where the size goes");
    COPES_TRY(plan_call(context, op, args, NULL, &planned));
    *size = planned.workspace;
    return COPES_OK;
}

static copes_status explain(const copes_context *context, const copes_op *op, const copes_args *args, char *text,
                            size_t size)
{
    planned_call planned;
    if (text == NULL || size == 0)
        return copes_fail(COPES_ERROR_NULL, "text is NULL or has no room; it must take some lines");
    COPES_TRY(plan_call(context, op, args, NULL, &planned));
    if (planned.empty)
        snprintf(text, size, "nothing to do: no output has an element\n");
    else
        copes_plan_text(&planned.plan, context->device, text, size);
    return COPES_OK;
}

static copes_status find_workspace_bound(const copes_context *context, const copes_op *ops, const copes_args *args,
                                         size_t count, size_t *size)
{
    size_t most = 0;
    if (context == NULL)
        return copes_fail(COPES_ERROR_NULL, "context is NULL; it must come from copes_context_create");
    if (size == NULL)
        return copes_fail(COPES_ERROR_NULL, "size is NULL; it must point to where the size goes");
    if (count > 0 && (ops == NULL || args == NULL))
        return copes_fail(COPES_ERROR_NULL, "%s is NULL; it must point to those of %zu calls",
                          ops == NULL ? "ops" : "args", count);
    for (size_t i = 0; i < count; i++) {
        size_t each = 0;
        const copes_status status = find_workspace_size(context, &ops[i], &args[i], &each);
        if (status != COPES_OK)
            return copes_fail_in_call(status, i);
        most = each > most ? each : most;
    }
    *size = most;
    return COPES_OK;
}

static copes_status run(const copes_context *context, const copes_op *op, const copes_args *args, void *workspace,
                        size_t workspace_size)
{
    planned_call planned;
    const given_workspace given = {workspace, workspace_size};
    COPES_TRY(plan_call(context, op, args, &given, &planned));
    if (planned.empty)
        return COPES_OK;
    return context->backend->run(context->state, &planned.problem, &planned.plan,
                                 planned.workspace == 0 ? NULL : aligned(workspace));
}

/* All in the library's own floating-point mode, as default scales are arithmetic, and so is how many threads a size is
 * for. */
copes_status copes_workspace_size(copes_context *context, const copes_op *op, const copes_args *args, size_t *size)
{
    const copes_float_mode mode = copes_float_mode_enter();
    const copes_status status = find_workspace_size(context, op, args, size);
    copes_float_mode_leave(mode);
    return status;
}

copes_status copes_workspace_bound(copes_context *context, const copes_op *ops, const copes_args *args, size_t count,
                                   size_t *size)
{
    const copes_float_mode mode = copes_float_mode_enter();
    const copes_status status = find_workspace_bound(context, ops, args, count, size);
    copes_float_mode_leave(mode);
    return status;
}

copes_status copes_run(copes_context *context, const copes_op *op, const copes_args *args, void *workspace,
                       size_t workspace_size)
{
    const copes_float_mode mode = copes_float_mode_enter();
    const copes_status status = run(context, op, args, workspace, workspace_size);
    copes_float_mode_leave(mode);
    return status;
}

copes_status copes_explain(copes_context *context, const copes_op *op, const copes_args *args, char *text, size_t size)
{
    const copes_float_mode mode = copes_float_mode_enter();
    const copes_status status = explain(context, op, args, text, size);
    copes_float_mode_leave(mode);
    return status;
}
