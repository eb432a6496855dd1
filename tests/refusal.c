/* Builds, spoils and runs the calls of the tables of refusals. */
#include "tests/refusal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0x5a }; /* every byte of an output that is not written */

copes_context *call_context(void)
{
    static copes_context *context; /* one for the program: Check's tests run one after the other */
    const copes_context_options options = {.threads = 2};
    if (context == NULL)
        ck_assert_int_eq(copes_context_create((DLDevice){kDLCPU, 0}, &options, &context), COPES_OK);
    return context;
}

static void place(call_case *call, int64_t slot, DLTensor *tensor)
{
    if (slot < OUT)
        call->args.in[slot] = tensor;
    else
        call->args.out[slot - OUT] = tensor;
}

void call_add(call_case *call, int slot, DLDataType dtype, int rank, const int64_t *shape)
{
    int64_t stride = 1; /* in the end the number of elements */
    for (int i = rank - 1; i >= 0; i--) {
        call->shape[slot][i] = shape[i];
        call->stride[slot][i] = stride;
        stride *= shape[i];
    }
    ck_assert_int_le(stride * dtype.bits / 8, CALL_BYTES / 2);
    memset(call->memory[slot], slot < OUT ? 0x3c : POISON, CALL_BYTES);
    call->tensor[slot] = (DLTensor){.data = call->memory[slot],
                                    .device = {kDLCPU, 0},
                                    .ndim = rank,
                                    .dtype = dtype,
                                    .shape = call->shape[slot],
                                    .strides = call->stride[slot]};
    place(call, slot, &call->tensor[slot]);
}

static void edit_op(call_case *call, const call_edit *edit)
{
    char *at = (char *)&call->op + edit->slot;
    const int32_t narrow = (int32_t)edit->value;
    if (edit->kind == SET32)
        memcpy(at, &narrow, sizeof narrow);
    else if (edit->kind == SET64)
        memcpy(at, &edit->value, sizeof edit->value);
    else
        memcpy(at, &edit->real, sizeof edit->real);
}

static void edit_memory(call_case *call, DLTensor *tensor, const call_edit *edit)
{
    if (edit->kind == ADDRESS)
        tensor->data = (void *)(uintptr_t)edit->value;
    else if (edit->kind == NO_DATA)
        tensor->data = NULL;
    else if (edit->kind == AS_VIEW_OF)
        *tensor = call->tensor[edit->at];
    else
        tensor->data = call->memory[edit->at] + edit->value;
}

void call_change(call_case *call, const call_edit *edit)
{
    static const int64_t two_three[2] = {2, 3};
    DLTensor *tensor = edit->kind > KIND ? &call->tensor[edit->slot] : NULL;
    switch (edit->kind) {
    case NOTHING: break;
    case SET32:
    case SET64:
    case SET_REAL: edit_op(call, edit); break;
    case KIND: call->op.kind = (copes_kind)edit->value; break;
    case ABSENT: place(call, edit->slot, NULL); break;
    case GIVEN: call_add(call, (int)edit->slot, float32, 2, two_three); break;
    case RANK: tensor->ndim = (int32_t)edit->value; break;
    case LENGTH: tensor->shape[edit->at] = edit->value; break;
    case STRIDE: tensor->strides[edit->at] = edit->value; break;
    case BYTES: tensor->byte_offset = (uint64_t)edit->value; break;
    case TYPE: tensor->dtype = (DLDataType){(uint8_t)edit->at, (uint8_t)edit->value, 1}; break;
    case LANES: tensor->dtype.lanes = (uint16_t)edit->value; break;
    case DEVICE: tensor->device = (DLDevice){(DLDeviceType)edit->at, (int32_t)edit->value}; break;
    case NO_SHAPE: tensor->shape = NULL; break;
    case NO_DATA:
    case SHARE:
    case ADDRESS:
    case AS_VIEW_OF: edit_memory(call, tensor, edit); break;
    }
}

void call_make(call_case *call, void (*make)(call_case *call))
{
    memset(call, 0, sizeof *call);
    make(call);
}

copes_status call_run(call_case *call)
{
    size_t size = 0;
    const copes_status status = copes_workspace_size(call_context(), &call->op, &call->args, &size);
    if (status != COPES_OK)
        return status;
    void *workspace = malloc(size + 1);
    ck_assert_ptr_nonnull(workspace);
    const copes_status result = copes_run(call_context(), &call->op, &call->args, workspace, size);
    free(workspace);
    return result;
}

void expect_refusal(copes_status status, copes_status wanted, const char *message)
{
    ck_assert_msg(status == wanted && strcmp(copes_last_error(), message) == 0,
                  "\n  got    %s \"%s\"\n  wanted %s \"%s\"", copes_status_name(status), copes_last_error(),
                  copes_status_name(wanted), message);
}

void expect_success(call_case *call)
{
    ck_assert_msg(call_run(call) == COPES_OK, "%s", copes_last_error());
}

void expect_poison(const call_case *call, int slot)
{
    for (int i = 0; i < CALL_BYTES; i++)
        ck_assert_int_eq(call->memory[slot][i], POISON);
}

/* Is an output there before the call, so that copes_infer reads its description? */
static bool is_updated(copes_kind kind, int output)
{
    for (size_t i = 0; i < copes_op_count(); i++)
        if (copes_op_at(i)->kind == kind && copes_op_at(i)->out[output] != NULL)
            return copes_op_at(i)->out[output]->updated != 0;
    return false;
}

/* copes_infer writes descriptions, so it gets output tensors that a refusal must leave alone. */
static void expect_infer_refuses(const call_case *spoilt, const refusal *row)
{
    DLTensor out[COPES_MAX_OUTPUTS];
    int64_t shape[COPES_MAX_OUTPUTS][COPES_MAX_RANK];
    copes_args args = spoilt->args;
    memset(shape, 0x77, sizeof shape);
    memset(out, 0x77, sizeof out);
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        if (args.out[i] != NULL && !is_updated(spoilt->op.kind, i)) {
            out[i].shape = shape[i];
            args.out[i] = &out[i];
        }
    DLTensor before[COPES_MAX_OUTPUTS];
    memcpy(before, out, sizeof out);
    expect_refusal(copes_infer(&spoilt->op, &args), row->status, row->message);
    ck_assert_mem_eq(out, before, sizeof out);
    for (size_t i = 0; i < sizeof shape; i++)
        ck_assert_int_eq(((unsigned char *)shape)[i], 0x77);
}

void refusal_test(void (*make)(call_case *call), const refusal *row)
{
    static call_case good, spoilt;
    static unsigned char before[sizeof spoilt.memory];
    static char workspace[1 << 16];
    call_make(&spoilt, make);
    for (int i = 0; i < CALL_EDITS; i++)
        call_change(&spoilt, &row->edits[i]);
    memcpy(before, spoilt.memory, sizeof before);
    size_t size = 4321;
    if (row->by <= BY_INFER)
        expect_infer_refuses(&spoilt, row);
    if (row->by == BY_ALL || row->by == BY_SIZE_AND_RUN) {
        expect_refusal(copes_workspace_size(call_context(), &spoilt.op, &spoilt.args, &size), row->status,
                       row->message);
        ck_assert_uint_eq(size, 4321);
    }
    if (row->by != BY_INFER)
        expect_refusal(copes_run(call_context(), &spoilt.op, &spoilt.args, workspace, sizeof workspace), row->status,
                       row->message);
    ck_assert_mem_eq(spoilt.memory, before, sizeof before);
    call_make(&good, make);
    ck_assert_msg(call_run(&good) == COPES_OK, "the good call: %s", copes_last_error());
    int first = OUT;
    while (good.args.out[first - OUT] == NULL)
        first++;
    ck_assert_int_ne(good.memory[first][0], POISON);
}
