/* One call of an operator. Names are those of the library's table: inputs, outputs and attributes, and "workspace". An
 * operator or a slot added there needs nothing here. */
#include "tvm_ffi/call.h"

#include "bindings/contexts.h"
#include "tvm_ffi/attributes.h"
#include "tvm_ffi/environment.h"
#include "tvm_ffi/values.h"

#include <stdio.h>
#include <string.h>

typedef struct invocation {
    const copes_op_info *info;
    copes_op op;
    copes_args args;
    const DLTensor *workspace; /* NULL: not given */
    copes_context *context;    /* the thread's, on the caller's stream */
    DLDevice device;           /* that of the first tensor */
} invocation;

static bool same_name(const char *name, tvm_text text)
{
    return strlen(name) == text.size && memcmp(name, text.data, text.size) == 0;
}

/* The place of the slot's tensor in the call; NULL: no slot has this name. */
static DLTensor **find_slot(invocation *call, tvm_text name)
{
    for (int i = 0; i < COPES_MAX_INPUTS; i++)
        if (call->info->in[i] != NULL && same_name(call->info->in[i]->name, name))
            return &call->args.in[i];
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        if (call->info->out[i] != NULL && same_name(call->info->out[i]->name, name))
            return &call->args.out[i];
    return NULL;
}

static const copes_attribute_info *find_attribute(const copes_op_info *info, tvm_text name)
{
    for (int i = 0; i < info->attribute_count; i++)
        if (same_name(info->attributes[i]->name, name))
            return info->attributes[i];
    return NULL;
}

static int append(char *text, size_t room, int length, const char *name)
{
    if ((size_t)length >= room) /* it is cut */
        return length;
    return length + snprintf(text + length, room - (size_t)length, "%s%s", length > 0 ? ", " : "", name);
}

static int refuse_name(const copes_op_info *info, tvm_text name)
{
    char names[800];
    int length = 0;
    for (int i = 0; i < COPES_MAX_INPUTS; i++)
        if (info->in[i] != NULL)
            length = append(names, sizeof names, length, info->in[i]->name);
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        if (info->out[i] != NULL)
            length = append(names, sizeof names, length, info->out[i]->name);
    for (int i = 0; i < info->attribute_count; i++)
        length = append(names, sizeof names, length, info->attributes[i]->name);
    append(names, sizeof names, length, "workspace");
    return environment_fail(ERROR_VALUE, "%s: there is no \"%.*s\"; names are %s", info->name,
                            (int)(name.size < 100 ? name.size : 100), name.data, names);
}

static int read_tensor(const copes_op_info *info, tvm_text name, const tvm_value *value, DLTensor **tensor)
{
    *tensor = value_tensor(value);
    if (*tensor != NULL || value->type == TVM_NONE)
        return 0;
    return environment_fail(ERROR_TYPE, "%s: %.*s is %s; it must be a tensor or None", info->name, (int)name.size,
                            name.data, value_kind(value));
}

static int read_pair(invocation *call, int32_t place, const tvm_value *pair)
{
    tvm_text name;
    if (!value_text(&pair[0], &name))
        return environment_fail(ERROR_TYPE, "%s: argument %d is %s; it must be a name, which a value follows",
                                call->info->name, (int)place, value_kind(&pair[0]));
    DLTensor **slot = find_slot(call, name);
    if (slot != NULL)
        return read_tensor(call->info, name, &pair[1], slot);
    const copes_attribute_info *attribute = find_attribute(call->info, name);
    if (attribute != NULL)
        return attribute_write(call->info, attribute, &pair[1], &call->op);
    if (!same_name("workspace", name))
        return refuse_name(call->info, name);
    DLTensor *workspace;
    if (read_tensor(call->info, name, &pair[1], &workspace) != 0)
        return -1;
    call->workspace = workspace;
    return 0;
}

/* The CPU where there is no tensor: the library then says which one is missing. */
static DLDevice device_of(const copes_args *args)
{
    for (int i = 0; i < COPES_MAX_INPUTS; i++)
        if (args->in[i] != NULL)
            return args->in[i]->device;
    return (DLDevice){kDLCPU, 0};
}

static int open_context(invocation *call)
{
    void *stream;
    if (environment_stream(call->device, &stream) != 0 ||
        environment_status(contexts_get(call->device, &call->context)) != 0)
        return -1;
    return environment_status(copes_context_set_stream(call->context, stream));
}

static int read_call(invocation *call, copes_kind kind, const tvm_value *values, int32_t count)
{
    *call = (invocation){.op = {.kind = kind}};
    for (size_t i = 0; call->info == NULL; i++)
        if (copes_op_at(i)->kind == kind)
            call->info = copes_op_at(i);
    if (count % 2 != 0)
        return environment_fail(ERROR_TYPE, "%s: there are %d arguments; they must be pairs of a name and a value",
                                call->info->name, (int)count);
    for (int32_t i = 0; i < count; i += 2)
        if (read_pair(call, i, values + i) != 0)
            return -1;
    call->device = device_of(&call->args);
    return open_context(call);
}

/* The caller's workspace as bytes. */
static int read_workspace(const invocation *call, void **memory, size_t *size)
{
    const DLTensor *given = call->workspace;
    if (given->ndim != 1)
        return environment_fail(ERROR_VALUE, "%s: workspace has %d dimensions; it must have one", call->info->name,
                                (int)given->ndim);
    if (given->strides != NULL && given->shape[0] > 1 && given->strides[0] != 1)
        return environment_fail(ERROR_VALUE, "%s: workspace has stride %lld; it must have 1", call->info->name,
                                (long long)given->strides[0]);
    if (given->device.device_type != call->device.device_type || given->device.device_id != call->device.device_id)
        return environment_fail(ERROR_VALUE,
                                "%s: workspace is on device %d:%d; it must be on that of the tensors, %d:%d",
                                call->info->name, (int)given->device.device_type, (int)given->device.device_id,
                                (int)call->device.device_type, (int)call->device.device_id);
    *memory = given->data != NULL ? (char *)given->data + given->byte_offset : NULL;
    *size = (size_t)given->shape[0] * ((size_t)given->dtype.bits * given->dtype.lanes / 8);
    return 0;
}

/* In the caller's workspace, or in memory of the environment's allocator. Where there is neither the library says how many
 * bytes it needs. */
static int run_in_workspace(const invocation *call)
{
    size_t size;
    void *memory = NULL, *owner = NULL;
    if (call->workspace != NULL) {
        if (read_workspace(call, &memory, &size) != 0)
            return -1;
    } else if (environment_status(copes_workspace_size(call->context, &call->op, &call->args, &size)) != 0 ||
               (size > 0 && environment_allocate(call->device, size, &memory, &owner) != 0)) {
        return -1;
    }
    const copes_status status = copes_run(call->context, &call->op, &call->args, memory, memory != NULL ? size : 0);
    environment_release(owner);
    return environment_status(status);
}

int call_run(copes_kind kind, const tvm_value *values, int32_t count)
{
    invocation call;
    return read_call(&call, kind, values, count) != 0 ? -1 : run_in_workspace(&call);
}

int call_workspace_size(const tvm_value *values, int32_t count, size_t *size)
{
    tvm_text name;
    if (count < 1 || !value_text(&values[0], &name))
        return environment_fail(ERROR_TYPE, "workspace_size: argument 0 is %s; it must be an operator's name",
                                count < 1 ? "missing" : value_kind(&values[0]));
    for (size_t i = 0; i < copes_op_count(); i++)
        if (same_name(copes_op_at(i)->name, name)) {
            invocation call;
            if (read_call(&call, copes_op_at(i)->kind, values + 1, count - 1) != 0)
                return -1;
            return environment_status(copes_workspace_size(call.context, &call.op, &call.args, size));
        }
    return environment_fail(ERROR_VALUE, "workspace_size: there is no operator \"%.*s\"",
                            (int)(name.size < 100 ? name.size : 100), name.data);
}
