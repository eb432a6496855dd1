/* libFuzzer target: whatever descriptor and tensors the bytes spell, copes_infer, copes_workspace_size and copes_run
 * refuse them without writing a byte, or compute within the memory that the tensors cover. Each buffer is exactly the
 * extent of its tensor, so that the address sanitizer sees a byte too far. */
#include "tests/fuzzed_op.h"
#include "tests/levels.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = FUZZ_SLOTS, OUT = COPES_MAX_INPUTS, POISON = 0x5a };
static const int64_t largest_extent = 1 << 16, most_elements = 1 << 10; /* so that no call takes long */

typedef struct tensor {
    DLTensor view;
    int64_t shape[COPES_MAX_RANK], stride[COPES_MAX_RANK];
    unsigned char *buffer, *before; /* NULL: shares another's, or has none */
    size_t extent;
    bool shares;
} tensor;

typedef struct fuzz_call {
    copes_op op;
    copes_args args;
    tensor tensors[SLOTS];
} fuzz_call;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static DLDataType take_type(reader *from, DLDataType usual)
{
    static const DLDataType types[8] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 64, 1},
                                        {kDLInt, 32, 1},   {kDLInt, 64, 1},   {kDLFloat, 32, 2},  {kDLUInt, 8, 1}};
    const uint8_t byte = fuzz_take(from);
    return byte < 192 ? usual : types[byte % 8];
}

/* Shape, type and strides: those of the tensor before, with some of it changed. */
static void take_view(reader *from, tensor *to, const tensor *like, DLDataType usual)
{
    const uint8_t changes = fuzz_take(from);
    DLTensor *view = &to->view;
    *view = (DLTensor){.device = {kDLCPU, 0}, .ndim = like->view.ndim, .dtype = take_type(from, usual)};
    memcpy(to->shape, like->shape, sizeof to->shape);
    view->shape = to->shape;
    if (changes & 1) {
        view->ndim = fuzz_take(from) % 12 - 1;
        fuzz_take_numbers(from, to->shape, view->ndim < COPES_MAX_RANK ? view->ndim : COPES_MAX_RANK);
    }
    if (changes & 2)
        to->shape[fuzz_take(from) % COPES_MAX_RANK] = fuzz_take_number(from);
    int64_t stride = 1;
    for (int i = COPES_MAX_RANK - 1; i >= 0; i--) {
        const bool usual_length = to->shape[i] < 1 << 20; /* a longer one is of one element again and again */
        to->stride[i] = usual_length ? stride : 0;
        if (i < view->ndim && to->shape[i] > 0 && usual_length && stride < INT64_C(1) << 40)
            stride *= to->shape[i];
    }
    if (changes & 4)
        to->stride[fuzz_take(from) % COPES_MAX_RANK] = fuzz_take_number(from);
    if (changes & 8) {
        int64_t *turned = &to->stride[fuzz_take(from) % COPES_MAX_RANK];
        *turned = (int64_t)(0 - (uint64_t)*turned); /* the least has no opposite */
    }
    view->strides = changes & 16 ? NULL : to->stride;
    view->byte_offset = changes & 32 ? (uint64_t)fuzz_take_number(from) : 0;
    if (changes & 64 && fuzz_take(from) == 7)
        view->device.device_type = (DLDeviceType)(fuzz_take(from) % 15);
    if (changes & 64 && fuzz_take(from) == 7)
        view->shape = NULL;
}

/* The bytes below and above the element at index 0 that a view covers; false where that is too much or no tensor. */
static bool find_extent(const tensor *of, int64_t *below, int64_t *above, int64_t *count)
{
    const DLTensor *view = &of->view;
    *below = 0;
    *above = view->dtype.bits / 8 * view->dtype.lanes;
    *count = 1;
    const int64_t size = *above;
    if (view->ndim < 0 || view->ndim > COPES_MAX_RANK || view->shape == NULL)
        return false;
    int64_t compact = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        const int64_t length = view->shape[i], stride = view->strides == NULL ? compact : view->strides[i];
        if (length < 0 || length > largest_extent)
            return false;
        *count *= length;
        compact *= length > 0 ? length : 1;
        if (*count > most_elements || compact > INT64_C(1) << 32)
            return false;
        if (length > 1 && (stride > largest_extent || stride < -largest_extent))
            return false;
        if (length > 1)
            *(stride < 0 ? below : above) += (stride < 0 ? -stride : stride) * (length - 1) * size;
    }
    if (*count == 0)
        *below = *above = 0;
    return *below + *above <= largest_extent && view->byte_offset <= (uint64_t)largest_extent;
}

/* A buffer whose first byte is the lowest and whose last is the highest that the view reaches. What reaches too far, or
 * is no tensor, gets data NULL and so must be refused. */
static void give_memory(reader *from, tensor *to, uint8_t fill)
{
    int64_t below, above, count;
    if (!find_extent(to, &below, &above, &count) || fuzz_take(from) == 255)
        return;
    to->extent = (size_t)(below + above);
    to->buffer = malloc(to->extent > 0 ? to->extent : 1);
    to->before = malloc(to->extent > 0 ? to->extent : 1);
    require(to->buffer != NULL && to->before != NULL);
    for (size_t i = 0; i < to->extent; i++)
        to->buffer[i] = (uint8_t)(fill + i * (fill & 31));
    memcpy(to->before, to->buffer, to->extent);
    to->view.data = (void *)((uintptr_t)to->buffer + (uintptr_t)below - (uintptr_t)to->view.byte_offset);
}

/* Puts the view into another's buffer, a few bytes on, where it fits; else it stays as it is. */
static void share_memory(reader *from, tensor *to, tensor *other)
{
    int64_t below, above, count;
    const int64_t delta = fuzz_take_number(from);
    if (!find_extent(to, &below, &above, &count) || other->buffer == NULL || delta < 0 ||
        delta > (int64_t)other->extent - below - above)
        return;
    to->view.data = (void *)((uintptr_t)other->buffer + (uintptr_t)(below + delta) - (uintptr_t)to->view.byte_offset);
    to->shares = other->shares = true;
}

static tensor tensor_of(const fuzz_shape *shape)
{
    tensor made = {.view = {.device = {kDLCPU, 0}, .ndim = shape->rank, .dtype = shape->type}};
    memcpy(made.shape, shape->lengths, sizeof shape->lengths);
    return made;
}

/* What copes_infer says of the outputs that are asked for, or something else where it refuses. Those that exist before the call
 * have a shape of their own. */
static void infer(const fuzz_call *call, const fuzz_shape *shapes, unsigned absent, tensor outs[COPES_MAX_OUTPUTS])
{
    copes_args args = call->args;
    memset(outs, POISON, COPES_MAX_OUTPUTS * sizeof *outs);
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        if ((absent >> i & 1) == 0) {
            if (shapes[OUT + i].rank > 0)
                outs[i] = tensor_of(&shapes[OUT + i]);
            outs[i].view.shape = outs[i].shape;
            args.out[i] = &outs[i].view;
        }
    const copes_status status = copes_infer(&call->op, &args);
    require(status == COPES_OK || copes_last_error()[0] != '\0');
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        if ((args.out[i] == NULL || status != COPES_OK) && shapes[OUT + i].rank == 0)
            outs[i] = (tensor){.view = {.ndim = 1, .dtype = {kDLFloat, 32, 1}}, .shape = {2}};
}

static void take_tensors(reader *from, fuzz_call *call, bool together)
{
    fuzz_shape shapes[FUZZ_SLOTS] = {{.rank = 0}};
    tensor like = {.view = {.ndim = 4}, .shape = {2, 3, 2, 4}}, outs[COPES_MAX_OUTPUTS];
    DLDataType usual = take_type(from, (DLDataType){kDLFloat, 32, 1});
    unsigned absent_inputs = fuzz_take(from);
    const unsigned absent_outputs = fuzz_take(from);
    absent_inputs |= (fuzz_is_qk(&call->op) ? (unsigned)fuzz_take(from) : 0xff) << 8; /* it alone has so many */
    if (together)
        fuzz_take_shapes(from, &call->op, usual, shapes);
    for (int slot = 0; slot < SLOTS; slot++) {
        tensor *to = &call->tensors[slot];
        const int index = slot % OUT, from_slot = fuzz_take(from) % SLOTS;
        if (slot == OUT)
            infer(call, shapes, absent_outputs, outs);
        const bool shaped = slot < OUT && shapes[slot].rank > 0;
        const bool lacking = slot < OUT && together && fuzz_is_qk(&call->op) && !shaped; /* one direction's alone */
        if (lacking || (slot < OUT ? absent_inputs : absent_outputs) >> index & 1)
            continue;
        if (shaped)
            like = tensor_of(&shapes[slot]);
        take_view(from, to, slot < OUT ? &like : &outs[index],
                  shaped       ? shapes[slot].type
                  : slot < OUT ? usual
                               : outs[index].view.dtype);
        if (slot < OUT && from_slot & 1)
            like = *to;
        give_memory(from, to, slot < OUT ? fuzz_take(from) : POISON);
        if (from_slot < slot && fuzz_take(from) % 4 == 3)
            share_memory(from, to, &call->tensors[from_slot]);
        if (slot < OUT)
            call->args.in[slot] = &to->view;
        else
            call->args.out[index] = &to->view;
    }
}

/* One context of each instruction-set level that the processor has. */
static copes_context *context_of(int choice)
{
    static copes_context *contexts[LEVELS];
    static int count;
    if (count == 0)
        for (int i = 0; i < LEVELS; i++) {
            require(open_level(level_names[i], 1, &contexts[count]));
            count += contexts[count] != NULL;
        }
    return contexts[choice % count];
}

static void expect_unwritten(const fuzz_call *call, bool refused)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        const tensor *at = &call->tensors[slot];
        if (at->buffer != NULL && (refused || (slot < OUT && !at->shares)))
            require(memcmp(at->buffer, at->before, at->extent) == 0);
    }
}

static void run(copes_context *context, fuzz_call *call, int shortage)
{
    size_t size = 0;
    const copes_status sized = copes_workspace_size(context, &call->op, &call->args, &size);
    require(sized == COPES_OK || size == 0);
    size -= sized == COPES_OK && size > 0 && shortage == 1;
    void *workspace = sized == COPES_OK && size > 0 && size < 1 << 26 ? malloc(size) : NULL;
    const copes_status status = copes_run(context, &call->op, &call->args, workspace, workspace != NULL ? size : 0);
    require(status == COPES_OK || copes_last_error()[0] != '\0');
    require(sized == COPES_OK || status != COPES_OK);
    expect_unwritten(call, status != COPES_OK);
    free(workspace);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static fuzz_call call;
    reader from = {bytes, size};
    memset(&call, 0, sizeof call);
    const uint8_t choice = fuzz_take(&from);
    fuzz_take_op(&from, &call.op);
    take_tensors(&from, &call, choice >> 7);
    run(context_of(choice & 3), &call, choice >> 2 & 31);
    for (int slot = 0; slot < SLOTS; slot++) {
        free(call.tensors[slot].buffer);
        free(call.tensors[slot].before);
    }
    return 0;
}
