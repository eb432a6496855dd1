/* Copies of a call's tensors on a device, around the call. */
#include "tools/device_call.h"

#include "memory/memory.h"

enum { TENSORS = COPES_MAX_INPUTS + COPES_MAX_OUTPUTS };

typedef struct placed {
    const device_memory *memory;
    DLDevice device;
    copes_args args;
    DLTensor views[TENSORS];
    void *copies[TENSORS], *workspace;
} placed;

static size_t bytes_of(const DLTensor *tensor)
{
    size_t bytes = (size_t)tensor->dtype.bits / 8;
    for (int i = 0; i < tensor->ndim; i++)
        bytes *= (size_t)tensor->shape[i];
    return bytes;
}

/* The tensor's stand-in on the device; NULL where it could not be made. */
static DLTensor *place(placed *p, int index, const DLTensor *host, int filled)
{
    const size_t bytes = bytes_of(host);
    p->views[index] = *host;
    p->views[index].device = p->device;
    p->copies[index] = p->memory->allocate(p->device.device_id, bytes);
    p->views[index].data = p->copies[index];
    if (p->copies[index] == NULL ||
        (filled && p->memory->write(p->device.device_id, p->copies[index], host->data, bytes) != 0))
        return NULL;
    return &p->views[index];
}

/* The input whose memory an output has, as an index, or -1. */
static int replaced(const copes_op_info *info, const copes_args *args, int index)
{
    const int input = info->out[index]->replaces - 1;
    const int there = input >= 0 && args->in[input] != NULL && args->out[index]->data != NULL;
    return there && args->in[input]->data == args->out[index]->data ? input : -1;
}

static DLTensor *place_output(placed *p, const copes_op_info *info, const copes_args *args, int index)
{
    const int input = replaced(info, args, index);
    if (input >= 0)
        return &p->views[input];
    return place(p, COPES_MAX_INPUTS + index, args->out[index], info->out[index]->updated);
}

static int place_all(placed *p, const copes_op_info *info, const copes_args *args)
{
    for (int i = 0; i < COPES_MAX_INPUTS; i++)
        if (args->in[i] != NULL && (p->args.in[i] = place(p, i, args->in[i], 1)) == NULL)
            return -1;
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        if (args->out[i] != NULL && (p->args.out[i] = place_output(p, info, args, i)) == NULL)
            return -1;
    return 0;
}

static int run(placed *p, copes_context *context, const copes_op *op)
{
    size_t size = 0;
    copes_status status = copes_workspace_size(context, op, &p->args, &size);
    if (status != COPES_OK)
        return (int)status;
    p->workspace = size > 0 ? p->memory->allocate(p->device.device_id, size) : NULL;
    if (size > 0 && p->workspace == NULL)
        return -1;
    return (int)copes_run(context, op, &p->args, p->workspace, size);
}

static int bring_back(const placed *p, const copes_args *args)
{
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        if (args->out[i] != NULL &&
            p->memory->read(p->device.device_id, args->out[i]->data, p->args.out[i]->data, bytes_of(args->out[i])) != 0)
            return -1;
    return 0;
}

static void release(placed *p)
{
    for (int i = 0; i < TENSORS; i++)
        if (p->copies[i] != NULL)
            p->memory->release(p->device.device_id, p->copies[i]);
    if (p->workspace != NULL)
        p->memory->release(p->device.device_id, p->workspace);
}

int device_call(DLDevice device, const copes_op_info *info, const copes_op *op, const copes_args *args)
{
    copes_context *context;
    placed p = {.memory = device_memory_of(device.device_type), .device = device};
    const copes_status created = copes_context_create(device, NULL, &context);
    if (created != COPES_OK || p.memory == NULL)
        return created != COPES_OK ? (int)created : -1;
    const int here = device.device_type == kDLCPU;
    if (here)
        p.args = *args;
    int status = here ? 0 : place_all(&p, info, args);
    if (status == 0)
        status = run(&p, context, op);
    if (status == 0 && !here)
        status = bring_back(&p, args);
    release(&p);
    copes_context_destroy(context);
    return status;
}
