/* copes run: tensors from a file, through an operator, to a file. */
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/device_call.h"
#include "tools/operators.h"
#include "tools/request.h"
#include "tools/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of a slot, with what its view points to. */
typedef struct tensor {
    DLTensor view;
    int64_t shape[COPES_MAX_RANK], stride[COPES_MAX_RANK];
    void *memory; /* owned; NULL where the data are the file's */
} tensor;

typedef struct job {
    request wish;
    safetensors_file file;
    tensor in[COPES_MAX_INPUTS], out[COPES_MAX_OUTPUTS];
    copes_args args;
} job;

static const DLDataType types[SAFETENSORS_DTYPES] = {{kDLFloat, 64, 1},  {kDLFloat, 32, 1}, {kDLFloat, 16, 1},
                                                     {kDLBfloat, 16, 1}, {kDLInt, 32, 1},   {kDLInt, 64, 1}};

static safetensors_dtype dtype_of(const DLTensor *view)
{
    int i = 0;
    while (i < SAFETENSORS_DTYPES - 1 && (types[i].code != view->dtype.code || types[i].bits != view->dtype.bits))
        i++;
    return (safetensors_dtype)i;
}

/* Turns (B, H, N, D) into (B, N, H, D) and back. */
static void swap_heads(const request *wish, int rank, int64_t *values)
{
    if (wish->heads_first == 0 || rank != 4)
        return;
    const int64_t second = values[1];
    values[1] = values[2];
    values[2] = second;
}

/* Strides of a tensor whose logical shape is known and which is stored compactly in the order that --layout says. */
static void set_strides(const request *wish, tensor *slot)
{
    int64_t stride = 1, stored[COPES_MAX_RANK];
    const int rank = slot->view.ndim;
    memcpy(stored, slot->shape, sizeof stored);
    swap_heads(wish, rank, stored);
    for (int i = rank - 1; i >= 0; i--) {
        slot->stride[i] = stride;
        stride *= stored[i] > 0 ? stored[i] : 1;
    }
    swap_heads(wish, rank, slot->stride);
    slot->view.strides = slot->stride;
}

/* The library takes lengths of caches in 32 bits. */
static int narrow(const safetensors_tensor *source, const char *path, tensor *slot)
{
    const size_t count = source->size / sizeof(int64_t);
    int32_t *narrowed = malloc(count * sizeof *narrowed + 1);
    if (narrowed == NULL)
        return complain(EXIT_FAILED, "out of memory");
    slot->memory = narrowed;
    for (size_t i = 0; i < count; i++) {
        int64_t value;
        memcpy(&value, (const char *)source->data + i * sizeof value, sizeof value);
        if (value < INT32_MIN || value > INT32_MAX)
            return complain(EXIT_FAILED, "%s: %s has %lld at index %zu; it must fit 32 bits", path, source->name,
                            (long long)value, i);
        narrowed[i] = (int32_t)value;
    }
    slot->view.data = narrowed;
    slot->view.dtype = types[SAFETENSORS_I32];
    return 0;
}

static int load(job *work, const safetensors_tensor *source, int index)
{
    tensor *slot = &work->in[index];
    if (work->wish.heads_first != 0 && source->rank != 4 && index == work->wish.info->inplace - 1)
        return complain(EXIT_FAILED, "%s: %s has rank %d; with --layout bhnd it must be (B, H, N, D)", work->wish.in,
                        source->name, source->rank);
    memcpy(slot->shape, source->shape, sizeof slot->shape);
    swap_heads(&work->wish, source->rank, slot->shape);
    slot->view = (DLTensor){.data = (void *)(uintptr_t)source->data, /* copes only reads it */
                            .device = work->wish.device,
                            .ndim = source->rank,
                            .dtype = types[source->dtype],
                            .shape = slot->shape};
    set_strides(&work->wish, slot);
    work->args.in[index] = &slot->view;
    const bool narrowed = strcmp(source->name, "kv_len") == 0 && source->dtype == SAFETENSORS_I64;
    return narrowed ? narrow(source, work->wish.in, slot) : 0;
}

/* Dimensions of positions: the grid's, or those that a tensor has. What is wrong with them the library says. */
static int64_t count_dimensions(const job *work)
{
    const int slot = operators_slot(work->wish.info->in, COPES_MAX_INPUTS, "positions");
    const DLTensor *positions = slot >= 0 ? work->args.in[slot] : NULL;
    const int64_t given = positions != NULL && positions->ndim == 3 ? positions->shape[0] : 1;
    return positions == NULL ? work->wish.op.lrpe.grid_rank : given > 0 && given <= COPES_MAX_GRID ? given : 1;
}

/* Angles a head has in each dimension of its positions: K where sections share them out or there is one dimension, else
 * the least that makes K together. */
static int64_t count_angles(const job *work, int64_t features)
{
    const copes_lrpe_attributes *lrpe = &work->wish.op.lrpe;
    const bool begins = lrpe->rotary_begin >= 0 && lrpe->rotary_begin < features;
    const int64_t left = begins ? features - lrpe->rotary_begin : features;
    const int64_t rotary_dim = lrpe->rotary_dim > 0 && lrpe->rotary_dim < left ? lrpe->rotary_dim : left;
    const int64_t angles = lrpe->variant == COPES_LRPE_COSINE ? features : rotary_dim / 2;
    const int64_t dimensions = count_dimensions(work);
    bool shared = dimensions > 1;
    for (int i = 0; i < COPES_MAX_GRID; i++)
        shared = shared && lrpe->sections[i] == 0;
    const int64_t each = shared ? (angles + dimensions - 1) / dimensions : angles;
    return each > 0 ? each : 1;
}

/* theta of one row for all heads: theta_i = base^(-i/E). */
static int make_theta(job *work, int index)
{
    const request *wish = &work->wish;
    const tensor *lead = &work->in[wish->info->inplace - 1];
    tensor *slot = &work->in[index];
    if (lead->view.ndim == 0)
        return 0; /* the library says what is wrong with it */
    const bool doubled = wish->info->backward != 0 && wish->op.lrpe.variant == COPES_LRPE_COSINE;
    const int64_t angles = count_angles(work, lead->shape[lead->view.ndim - 1] / (doubled ? 2 : 1));
    float *theta = angles <= 1 << 24 ? malloc((size_t)angles * sizeof *theta) : NULL;
    if (theta == NULL)
        return complain(EXIT_FAILED, "no memory for a theta of %lld angles", (long long)angles);
    for (int64_t i = 0; i < angles; i++)
        theta[i] = (float)pow(wish->theta_base, -(double)i / (double)angles);
    slot->memory = theta;
    slot->shape[0] = 1;
    slot->shape[1] = angles;
    slot->view = (DLTensor){.data = theta,
                            .device = wish->device,
                            .ndim = 2,
                            .dtype = types[SAFETENSORS_F32],
                            .shape = slot->shape};
    work->args.in[index] = &slot->view;
    return 0;
}

static int load_all(job *work)
{
    const request *wish = &work->wish;
    int lacking = -1;
    for (int i = 0; i < COPES_MAX_INPUTS; i++) {
        const copes_slot_info *slot = wish->info->in[i];
        const safetensors_tensor *source = slot != NULL ? safetensors_find(&work->file, slot->name) : NULL;
        const int status = source != NULL ? load(work, source, i) : 0;
        if (status != 0)
            return status;
        if (slot == NULL || source != NULL || slot->optional != 0)
            continue;
        if (strcmp(slot->name, "theta") != 0)
            return complain(EXIT_FAILED, "%s: there is no tensor \"%s\", which %s%s needs", wish->in, slot->name,
                            wish->name, wish->info->backward != 0 ? " --backward" : "");
        if (wish->theta_base == 0)
            return complain(EXIT_FAILED, "%s: there is no tensor \"theta\", which %s needs; --theta-base makes one",
                            wish->in, wish->name);
        lacking = i;
    }
    return lacking >= 0 ? make_theta(work, lacking) : 0;
}

/* On a command line axes count from the front, too, as PyTorch's do; to the library they count from the end. What it
 * would refuse is refused here where its message would be about another count. */
static int resolve_axes(job *work)
{
    request *wish = &work->wish;
    for (int i = 0; i < wish->info->attribute_count; i++) {
        const copes_attribute_info *attribute = wish->info->attributes[i];
        const int32_t own = wish->info->inplace > 0 ? work->in[wish->info->inplace - 1].view.ndim : 0;
        const int32_t axes = attribute->axes > 0 ? attribute->axes : own;
        int32_t axis;
        if ((wish->axes >> i & 1) == 0 || axes == 0)
            continue;
        memcpy(&axis, (char *)&wish->op + attribute->offset, sizeof axis);
        if (attribute->axes == 0 && (axis < -axes || axis >= axes))
            return complain(EXIT_FAILED, "%s: %s: %s is %d; with tensors of rank %d it must be %d to %d", wish->in,
                            wish->info->name, attribute->name, axis, axes, -axes, axes - 1);
        axis -= axis >= 0 && axis < axes ? axes : 0;
        memcpy((char *)&wish->op + attribute->offset, &axis, sizeof axis);
    }
    return 0;
}

static int refuse(const request *wish)
{
    return complain(EXIT_FAILED, "%s: %s", wish->in, copes_last_error());
}

static int allocate_outputs(job *work)
{
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        work->out[i].view.shape = work->out[i].shape;
        work->args.out[i] = work->wish.wanted[i] ? &work->out[i].view : NULL;
    }
    if (copes_infer(&work->wish.op, &work->args) != COPES_OK)
        return refuse(&work->wish);
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        tensor *slot = &work->out[i];
        if (!work->wish.wanted[i])
            continue;
        safetensors_tensor shaped = {.dtype = dtype_of(&slot->view), .rank = slot->view.ndim};
        memcpy(shaped.shape, slot->shape, sizeof shaped.shape);
        if (safetensors_size(&shaped, &shaped.size))
            slot->memory = aligned_alloc(64, (shaped.size + 64) / 64 * 64);
        if (slot->memory == NULL)
            return complain(EXIT_FAILED, "no memory for the %zu bytes of %s", shaped.size,
                            work->wish.info->out[i]->name);
        slot->view.data = slot->memory;
        set_strides(&work->wish, slot);
    }
    return 0;
}

static int compute(const job *work)
{
    const int status = device_call(work->wish.device, &work->wish.op, &work->args);
    if (status < 0)
        return complain(EXIT_FAILED, "--device: its memory ran out, or it failed");
    return status == 0 ? 0 : refuse(&work->wish);
}

static int save(const job *work)
{
    safetensors_tensor results[COPES_MAX_OUTPUTS];
    char reason[SAFETENSORS_REASON];
    size_t count = 0;
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        const tensor *slot = &work->out[i];
        safetensors_tensor *result = &results[count];
        if (!work->wish.wanted[i])
            continue;
        *result = (safetensors_tensor){.name = work->wish.info->out[i]->name,
                                       .dtype = dtype_of(&slot->view),
                                       .rank = slot->view.ndim,
                                       .data = slot->memory};
        memcpy(result->shape, slot->shape, sizeof result->shape);
        swap_heads(&work->wish, result->rank, result->shape);
        count++;
    }
    if (!safetensors_save(work->wish.out, results, count, reason))
        return complain(EXIT_FAILED, "%s: %s", work->wish.out, reason);
    return 0;
}

static int work_through(job *work)
{
    char reason[SAFETENSORS_REASON];
    if (!safetensors_open(work->wish.in, &work->file, reason))
        return complain(EXIT_FAILED, "%s: %s", work->wish.in, reason);
    int status = load_all(work);
    if (status == 0)
        status = resolve_axes(work);
    if (status == 0)
        status = allocate_outputs(work);
    if (status == 0)
        status = compute(work);
    return status == 0 ? save(work) : status;
}

int command_run(int argc, char **argv)
{
    job work = {0};
    int status = request_read(argc, argv, &work.wish);
    if (status >= 0)
        return status;
    status = work_through(&work);
    for (int i = 0; i < COPES_MAX_INPUTS; i++)
        free(work.in[i].memory);
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        free(work.out[i].memory);
    safetensors_close(&work.file);
    return status;
}
