/* copes run: tensors from a file, through an operator, to a file. */
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/device_call.h"
#include "tools/operators.h"
#include "tools/request.h"
#include "tools/safetensors.h"
#include "tools/theta.h"

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

enum { FLOAT8_E4M3FN = 10 }; /* kDLFloat8_e4m3fn, which the headers in use may be too old for */

static const DLDataType types[SAFETENSORS_DTYPES] =
    {[SAFETENSORS_F64] = {kDLFloat, 64, 1},         [SAFETENSORS_F32] = {kDLFloat, 32, 1},
     [SAFETENSORS_F16] = {kDLFloat, 16, 1},         [SAFETENSORS_BF16] = {kDLBfloat, 16, 1},
     [SAFETENSORS_I32] = {kDLInt, 32, 1},           [SAFETENSORS_I64] = {kDLInt, 64, 1},
     [SAFETENSORS_F8_E4M3] = {FLOAT8_E4M3FN, 8, 1}, [SAFETENSORS_U8] = {kDLUInt, 8, 1}};

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

/* The tensor as the library sees it, with the file's data. */
static void describe(const request *wish, const safetensors_tensor *source, tensor *slot)
{
    memcpy(slot->shape, source->shape, sizeof slot->shape);
    swap_heads(wish, source->rank, slot->shape);
    slot->view = (DLTensor){.data = (void *)(uintptr_t)source->data, /* copes only reads it */
                            .device = wish->device,
                            .ndim = source->rank,
                            .dtype = types[source->dtype],
                            .shape = slot->shape};
    set_strides(wish, slot);
}

static int load(job *work, const safetensors_tensor *source, int index)
{
    tensor *slot = &work->in[index];
    if (work->wish.heads_first != 0 && source->rank != 4 && index == work->wish.info->inplace - 1)
        return complain(EXIT_FAILED, "%s: %s has rank %d; with --layout bhnd it must be (B, H, N, D)", work->wish.in,
                        source->name, source->rank);
    describe(&work->wish, source, slot);
    work->args.in[index] = &slot->view;
    const bool narrowed = strcmp(source->name, "kv_len") == 0 && source->dtype == SAFETENSORS_I64;
    return narrowed ? narrow(source, work->wish.in, slot) : 0;
}

static int allocate(tensor *slot, size_t size, const char *name)
{
    slot->memory = aligned_alloc(64, (size + 64) / 64 * 64);
    if (slot->memory == NULL)
        return complain(EXIT_FAILED, "no memory for the %zu bytes of %s", size, name);
    slot->view.data = slot->memory;
    return 0;
}

/* Outputs that exist before the call: a copy of what the file has. */
static int load_updated(job *work)
{
    request *wish = &work->wish;
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        const copes_slot_info *info = wish->info->out[i];
        const bool updated = info != NULL && info->updated != 0;
        const safetensors_tensor *source = updated ? safetensors_find(&work->file, info->name) : NULL;
        if (source == NULL)
            continue;
        describe(wish, source, &work->out[i]);
        const int status = allocate(&work->out[i], source->size, info->name);
        if (status != 0)
            return status;
        memcpy(work->out[i].memory, source->data, source->size);
        wish->wanted[i] = true;
    }
    return 0;
}

/* Of one row for all heads. */
static int make_theta(job *work, int index)
{
    const request *wish = &work->wish;
    const int64_t angles = theta_angles(wish->info, &wish->op, &work->args);
    tensor *slot = &work->in[index];
    if (angles == 0)
        return 0;
    slot->memory = theta_make(angles, wish->theta_base);
    if (slot->memory == NULL)
        return complain(EXIT_FAILED, "no memory for a theta of %lld angles", (long long)angles);
    slot->shape[0] = 1;
    slot->shape[1] = angles;
    slot->view = (DLTensor){.data = slot->memory,
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

static int refuse(const request *wish)
{
    return complain(EXIT_FAILED, "%s: %s", wish->in, copes_last_error());
}

/* With --in-place: an input moves to the memory of the output that may replace it. */
static int replace(job *work, int index, size_t size)
{
    const copes_slot_info *info = work->wish.info->out[index];
    DLTensor *input = work->wish.in_place && info->replaces > 0 ? work->args.in[info->replaces - 1] : NULL;
    if (input == NULL)
        return 0;
    const tensor *slot = &work->out[index];
    if (input->ndim != slot->view.ndim ||
        memcmp(input->shape, slot->shape, (size_t)input->ndim * sizeof *slot->shape) != 0)
        return complain(EXIT_FAILED, "%s: --in-place: %s has another shape than %s", work->wish.in, info->name,
                        work->wish.info->in[info->replaces - 1]->name);
    memcpy(slot->memory, input->data, size);
    input->data = slot->memory;
    return 0;
}

static int allocate_output(job *work, int index)
{
    tensor *slot = &work->out[index];
    safetensors_tensor shaped = {.dtype = dtype_of(&slot->view), .rank = slot->view.ndim};
    memcpy(shaped.shape, slot->shape, sizeof shaped.shape);
    if (!safetensors_size(&shaped, &shaped.size))
        shaped.size = SIZE_MAX / 2; /* more than there is */
    const int status = allocate(slot, shaped.size, work->wish.info->out[index]->name);
    if (status != 0)
        return status;
    set_strides(&work->wish, slot);
    return replace(work, index, shaped.size);
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
        const int status = work->wish.wanted[i] && work->out[i].memory == NULL ? allocate_output(work, i) : 0;
        if (status != 0)
            return status;
    }
    return 0;
}

static int compute(const job *work)
{
    const int status = device_call(work->wish.device, work->wish.info, &work->wish.op, &work->args);
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

/* Of the input that shapes the first output; 0 where there is none. */
static int32_t lead_rank(const job *work)
{
    const int slot = work->wish.info->inplace - 1;
    return slot >= 0 ? work->in[slot].view.ndim : 0;
}

static int work_through(job *work)
{
    char reason[SAFETENSORS_REASON];
    if (!safetensors_open(work->wish.in, &work->file, reason))
        return complain(EXIT_FAILED, "%s: %s", work->wish.in, reason);
    int status = load_all(work);
    if (status == 0)
        status = load_updated(work);
    if (status == 0)
        status = request_resolve_axes(&work->wish, lead_rank(work));
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
