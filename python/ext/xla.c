/* One handler for every operator. A call of a program has the attributes `operator`, a name of the library's table, `inputs` and
 * `outputs`, the names of the slots that have a tensor, and those of the operator itself that are not left to the library.
 * Its buffers are the inputs, then the caches that it updates, which XLA has made the results' own memory; its results are the
 * outputs, then the workspace, if any. That is a result of the program's own, and no memory allocated in the call, so that a
 * command buffer which was recorded once may be replayed. */
#include "python/ext/xla.h"

#include "bindings/contexts.h"
#include "bindings/error_class.h"
#include "python/ext/dtypes.h"
#include "python/ext/xla_attributes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct invocation {
    const XLA_FFI_CallFrame *frame;
    const copes_op_info *info;
    copes_op op;
    copes_args args;
    DLTensor tensors[COPES_MAX_INPUTS + COPES_MAX_OUTPUTS];
    int tensor_count;
    const XLA_FFI_Buffer *workspace; /* NULL: none was planned */
    DLDevice device;
    copes_context *context;
} invocation;

static XLA_FFI_Error *fail(const invocation *call, XLA_FFI_Error_Code code, const char *message)
{
    XLA_FFI_Error_Create_Args error = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
                                       .message = message,
                                       .errc = code};
    return call->frame->api->XLA_FFI_Error_Create(&error);
}

static XLA_FFI_Error *check(const invocation *call, copes_status status)
{
    if (status == COPES_OK)
        return NULL;
    switch (error_class_of(status)) {
    case ERROR_MEMORY: return fail(call, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "copes: out of memory");
    case ERROR_RUNTIME: return fail(call, XLA_FFI_Error_Code_INTERNAL, copes_last_error());
    default: return fail(call, XLA_FFI_Error_Code_INVALID_ARGUMENT, copes_last_error());
    }
}

/* Of a program that Python's side of this package did not make, or that of another version. */
static XLA_FFI_Error *refuse_program(const invocation *call, const char *what)
{
    char message[200];
    snprintf(message, sizeof message, "copes: the program's call of %s has wrong %s; was it made by another version?",
             call->info != NULL ? call->info->name : "an operator", what);
    return fail(call, XLA_FFI_Error_Code_INVALID_ARGUMENT, message);
}

static DLDataType dtype_of(XLA_FFI_DataType type)
{
    switch ((int)type) {
    case XLA_FFI_DataType_F16: return (DLDataType){kDLFloat, 16, 1};
    case XLA_FFI_DataType_F32: return (DLDataType){kDLFloat, 32, 1};
    case XLA_FFI_DataType_F64: return (DLDataType){kDLFloat, 64, 1};
    case XLA_FFI_DataType_BF16: return (DLDataType){kDLBfloat, 16, 1};
    case XLA_FFI_DataType_F8E4M3FN: return (DLDataType){DLPACK_FLOAT8_E4M3FN, 8, 1};
    case XLA_FFI_DataType_S32: return (DLDataType){kDLInt, 32, 1};
    case XLA_FFI_DataType_S64: return (DLDataType){kDLInt, 64, 1};
    case XLA_FFI_DataType_U8: return (DLDataType){kDLUInt, 8, 1};
    default: return (DLDataType){kDLOpaqueHandle, 8, 1}; /* no operator takes it, and the library says so */
    }
}

/* XLA lays out buffers as the program says, which is row-major here. */
static DLTensor *view(invocation *call, const XLA_FFI_Buffer *buffer)
{
    DLTensor *tensor = &call->tensors[call->tensor_count++];
    *tensor = (DLTensor){.data = buffer->data,
                         .device = call->device,
                         .ndim = (int32_t)buffer->rank,
                         .dtype = dtype_of(buffer->dtype),
                         .shape = buffer->dims};
    return tensor;
}

static XLA_FFI_Error *read_operator(invocation *call)
{
    const XLA_FFI_ByteSpan *name = xla_find(&call->frame->attrs, "operator", XLA_FFI_AttrType_STRING);
    for (size_t i = 0; name != NULL && call->info == NULL && i < copes_op_count(); i++) {
        const char *each = copes_op_at(i)->name;
        if (strlen(each) == name->len && memcmp(each, name->ptr, name->len) == 0)
            call->info = copes_op_at(i);
    }
    if (call->info == NULL)
        return refuse_program(call, "operator");
    call->op.kind = call->info->kind;
    const char *wrong = xla_read_attributes(call->info, &call->frame->attrs, &call->op);
    return wrong != NULL ? refuse_program(call, wrong) : NULL;
}

static int find_slot(const copes_slot_info *const *slots, int capacity, const char *name, size_t length)
{
    for (int i = 0; i < capacity; i++)
        if (slots[i] != NULL && strlen(slots[i]->name) == length && memcmp(slots[i]->name, name, length) == 0)
            return i;
    return -1;
}

/* The buffers as the tensors of the slots that the attribute names. Returns how many it took; -1: they are not those. */
static int64_t place(invocation *call, const char *attribute, const copes_slot_info *const *slots, int capacity,
                     void **buffers, int64_t count, DLTensor **to)
{
    const XLA_FFI_ByteSpan *names = xla_find(&call->frame->attrs, attribute, XLA_FFI_AttrType_STRING);
    if (names == NULL)
        return -1;
    int64_t taken = 0;
    const char *end = names->ptr + names->len;
    for (const char *name = names->ptr; name < end; taken++) {
        const char *space = memchr(name, ' ', (size_t)(end - name));
        const size_t length = (size_t)((space != NULL ? space : end) - name);
        const int slot = find_slot(slots, capacity, name, length);
        if (slot < 0 || to[slot] != NULL || taken == count)
            return -1;
        to[slot] = view(call, buffers[taken]);
        name += length + (space != NULL ? 1 : 0);
    }
    return taken;
}

static XLA_FFI_Error *read_tensors(invocation *call)
{
    const XLA_FFI_Args *in = &call->frame->args;
    const XLA_FFI_Rets *out = &call->frame->rets;
    if (place(call, "inputs", call->info->in, COPES_MAX_INPUTS, in->args, in->size, call->args.in) < 0)
        return refuse_program(call, "inputs");
    const int64_t placed =
        place(call, "outputs", call->info->out, COPES_MAX_OUTPUTS, out->rets, out->size, call->args.out);
    if (placed < 0)
        return refuse_program(call, "outputs");
    call->workspace = placed < out->size ? out->rets[placed] : NULL;
    return NULL;
}

static XLA_FFI_Error *open_context(invocation *call)
{
    XLA_FFI_ExecutionContext *const execution = call->frame->ctx;
    XLA_FFI_Stream_Get_Args stream = {.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE, .ctx = execution};
    if (call->device.device_type != kDLCPU) {
        XLA_FFI_Error *error = call->frame->api->XLA_FFI_Stream_Get(&stream);
        if (error != NULL)
            return error;
    }
    XLA_FFI_Error *error = check(call, contexts_get(call->device, &call->context));
    return error != NULL ? error : check(call, copes_context_set_stream(call->context, stream.stream));
}

static XLA_FFI_Error *find_device(invocation *call, DLDeviceType type)
{
    call->device = (DLDevice){type, 0};
    if (type == kDLCPU)
        return NULL;
    XLA_FFI_DeviceOrdinal_Get_Args ordinal = {.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE,
                                              .ctx = call->frame->ctx};
    XLA_FFI_Error *error = call->frame->api->XLA_FFI_DeviceOrdinal_Get(&ordinal);
    call->device.device_id = ordinal.device_ordinal;
    return error;
}

/* On the CPU a call's need depends on the threads that OpenMP gives the calling thread, which the program's maker could not
 * know: what was planned may be too small there. On a GPU the library then refuses the call. */
static XLA_FFI_Error *run(invocation *call)
{
    void *planned = call->workspace != NULL ? call->workspace->data : NULL;
    size_t size = call->workspace != NULL ? (size_t)call->workspace->dims[0] : 0, needed = 0;
    void *own = NULL;
    if (call->device.device_type == kDLCPU) {
        XLA_FFI_Error *error = check(call, copes_workspace_size(call->context, &call->op, &call->args, &needed));
        if (error != NULL)
            return error;
        if (needed > size) {
            own = malloc(needed);
            if (own == NULL)
                return check(call, COPES_ERROR_MEMORY);
            size = needed;
        }
    }
    XLA_FFI_Error *error =
        check(call, copes_run(call->context, &call->op, &call->args, own != NULL ? own : planned, size));
    free(own);
    return error;
}

static XLA_FFI_Error *execute(const XLA_FFI_CallFrame *frame, DLDeviceType type)
{
    invocation call;
    memset(&call, 0, sizeof call);
    call.frame = frame;
    XLA_FFI_Error *error = find_device(&call, type);
    if (error == NULL)
        error = read_operator(&call);
    if (error == NULL)
        error = read_tensors(&call);
    if (error == NULL)
        error = open_context(&call);
    return error != NULL ? error : run(&call);
}

/* XLA asks what a handler is before it calls it, and refuses one of a newer interface than its own. Of that nothing is used
 * here but what has been there since the first that any XLA still takes, so that it is told its own version. */
static XLA_FFI_Error *handle(const XLA_FFI_CallFrame *frame, DLDeviceType type)
{
    if (frame->extension_start == NULL || frame->extension_start->type != XLA_FFI_Extension_Metadata)
        return execute(frame, type);
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)(void *)frame->extension_start)->metadata;
    const int minor = frame->api != NULL ? frame->api->api_version.minor_version : XLA_FFI_API_MINOR;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = minor < XLA_FFI_API_MINOR ? minor : XLA_FFI_API_MINOR;
    metadata->traits = type != kDLCPU ? XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE : 0;
    return NULL;
}

static XLA_FFI_Error *handle_cpu(XLA_FFI_CallFrame *frame)
{
    return handle(frame, kDLCPU);
}

static XLA_FFI_Error *handle_cuda(XLA_FFI_CallFrame *frame)
{
    return handle(frame, kDLCUDA);
}

static XLA_FFI_Error *handle_rocm(XLA_FFI_CallFrame *frame)
{
    return handle(frame, kDLROCM);
}

/* ISO C has no cast from functions' addresses to data's, POSIX has both alike. */
static PyObject *capsule(XLA_FFI_Handler *handler)
{
    void *address;
    memcpy(&address, &handler, sizeof address);
    return PyCapsule_New(address, NULL, NULL);
}

PyObject *xla_handlers(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return Py_BuildValue("{s:N,s:N,s:N}", "cpu", capsule(handle_cpu), "CUDA", capsule(handle_cuda), "ROCM",
                         capsule(handle_rocm));
}
