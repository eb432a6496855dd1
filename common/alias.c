/* Refusals of memory that two parts of a call share: tensors, the workspace, and the DLTensors that describe them. */
#include "common/alias.h"

/* An output may be exactly the input that it replaces, where they have one shape; any other overlap is refused. */
static bool may_replace(const copes_call *call, int input, int output)
{
    if (call->info->out[output]->replaces != input + 1)
        return false;
    const copes_tensor *in = call->in[input], *out = call->out[output];
    bool same = in->rank == out->rank;
    for (int i = 0; i < in->rank && same; i++)
        same = in->shape[i] == out->shape[i];
    return same;
}

copes_status copes_check_aliases(const copes_call *call)
{
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        const copes_tensor *out = call->out[i];
        for (int j = 0; j < COPES_MAX_INPUTS + i; j++) {
            const copes_tensor *other = j < COPES_MAX_INPUTS ? call->in[j] : call->out[j - COPES_MAX_INPUTS];
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

copes_status copes_check_workspace(const copes_call *call, void *workspace, size_t size)
{
    const int64_t halves = (int64_t)(size / 2 + size % 2); /* as a tensor of the smallest type */
    const copes_tensor scratch = {.dtype = COPES_F16,
                                  .rank = 1,
                                  .shape = {halves},
                                  .stride = {1},
                                  .count = halves,
                                  .high = 2 * halves,
                                  .data = workspace};
    for (int i = 0; i < COPES_MAX_INPUTS + COPES_MAX_OUTPUTS; i++) {
        const copes_tensor *tensor = i < COPES_MAX_INPUTS ? call->in[i] : call->out[i - COPES_MAX_INPUTS];
        if (copes_present(tensor) && copes_tensor_may_overlap(&scratch, tensor))
            return copes_fail(COPES_ERROR_ALIAS, "%s: the workspace overlaps %s; it must have memory of its own",
                              call->info->name, tensor->name);
    }
    return COPES_OK;
}

/* A part of the description of a tensor. */
typedef struct part {
    const char *what, *slot;
    const void *memory;
    size_t size;
} part;

enum { PARTS = 3 * (COPES_MAX_INPUTS + COPES_MAX_OUTPUTS) };

static void add_part(part *parts, int *count, const char *what, const char *slot, const void *memory, size_t size)
{
    if (memory != NULL)
        parts[(*count)++] = (part){what, slot, memory, size};
}

static bool parts_overlap(const part *a, const part *b)
{
    const uintptr_t a_begin = (uintptr_t)a->memory, b_begin = (uintptr_t)b->memory;
    return a->size > 0 && b->size > 0 && a_begin < b_begin + b->size && b_begin < a_begin + a->size;
}

copes_status copes_check_descriptions(const copes_call *call, const copes_args *args)
{
    part parts[PARTS];
    int count = 0;
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        if (args->out[i] == NULL || call->info->out[i]->updated)
            continue;
        const char *slot = call->info->out[i]->name;
        add_part(parts, &count, "DLTensor", slot, args->out[i], sizeof *args->out[i]);
        add_part(parts, &count, "shape", slot, args->out[i]->shape, (size_t)call->spec[i].rank * sizeof(int64_t));
    }
    const int written = count;
    for (int i = 0; i < COPES_MAX_INPUTS; i++) {
        const DLTensor *in = args->in[i];
        if (in == NULL)
            continue;
        const char *slot = call->info->in[i]->name;
        add_part(parts, &count, "DLTensor", slot, in, sizeof *in);
        add_part(parts, &count, "shape", slot, in->shape, (size_t)in->ndim * sizeof(int64_t));
        add_part(parts, &count, "strides", slot, in->strides, (size_t)in->ndim * sizeof(int64_t));
    }
    for (int i = 0; i < written; i++)
        for (int j = i + 1; j < count; j++)
            if (parts_overlap(&parts[i], &parts[j]))
                return copes_fail(COPES_ERROR_ALIAS,
                                  "%s: the %s of %s overlaps the %s of %s; it is written, so it must have memory of "
                                  "its own",
                                  call->info->name, parts[i].what, parts[i].slot, parts[j].what, parts[j].slot);
    return COPES_OK;
}
