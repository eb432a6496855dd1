/* The table of small calls, their values and how they are run. */
#include "tests/small_calls.h"

#include "common/slots.h"

#include <stdlib.h>
#include <string.h>

const small_call small_calls[] = {
    {"silu", {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SILU}}, {{64, 999}, [7] = {64, 999}}, {2, [7] = 2}},
    {"sigmoid's gradient",
     {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SIGMOID}},
     {{64, 999}, {64, 999}, [7] = {64, 999}},
     {2, 2, [7] = 2}},
    {"softmax",
     {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -2}},
     {{64, 33}, [7] = {64, 33}},
     {2, [7] = 2}},
    {"softmax of long rows",
     {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX}},
     {{8, 5000}, [7] = {8, 5000}},
     {2, [7] = 2}},
    {"softmax's gradient",
     {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SOFTMAX}},
     {[1] = {64, 33}, [2] = {64, 33}, [7] = {64, 33}},
     {[1] = 2, [2] = 2, [7] = 2}},
    {"rotate after silu",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SILU}},
     {{2, 40, 3, 16}, {3, 8}, [7] = {2, 40, 3, 16}},
     {4, 2, [7] = 4}},
    {"rotate's gradient",
     {.kind = COPES_LRPE_BACKWARD, .lrpe = {.pairing = COPES_LRPE_INTERLEAVED}},
     {[1] = {3, 8}, [4] = {2, 40, 3, 16}, [7] = {2, 40, 3, 16}},
     {[1] = 2, [4] = 4, [7] = 4}},
    {"rotate by positions of two dimensions",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.rotary_begin = 4, .amplitude = 1.25, .inverse = 1}},
     {{2, 40, 3, 16}, {2, 3, 6}, {2, 2, 40}, [7] = {2, 40, 3, 16}},
     {4, 3, 3, [7] = 4}},
    {"theta's gradient",
     {.kind = COPES_LRPE_BACKWARD, .lrpe = {.act = COPES_ACT_SILU}},
     {{2, 40, 3, 16}, {1, 8}, {2, 40}, [4] = {2, 40, 3, 16}, [7] = {2, 40, 3, 16}, [8] = {1, 8}},
     {4, 2, 2, [4] = 4, [7] = 4, [8] = 2}},
    {"theta's gradient after softmax over the sequence",
     {.kind = COPES_LRPE_BACKWARD, .lrpe = {.variant = COPES_LRPE_COSINE, .act = COPES_ACT_SOFTMAX, .dim = -3}},
     {{2, 40, 3, 16}, {3, 16}, [3] = {2}, [4] = {2, 40, 3, 32}, [7] = {2, 40, 3, 16}, [8] = {3, 16}},
     {4, 2, [3] = 1, [4] = 4, [7] = 4, [8] = 2}},
    {"rotate after softmax over the sequence",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SOFTMAX, .dim = -3}},
     {{2, 40, 3, 16}, {3, 8}, [7] = {2, 40, 3, 16}, [8] = {2, 3, 16}},
     {4, 2, [7] = 4, [8] = 3}},
    {"cosine's gradient",
     {.kind = COPES_LRPE_BACKWARD, .lrpe = {.variant = COPES_LRPE_COSINE, .act = COPES_ACT_SOFTMAX, .dim = -3}},
     {{2, 40, 3, 16}, {3, 16}, [4] = {2, 40, 3, 32}, [7] = {2, 40, 3, 16}},
     {4, 2, [4] = 4, [7] = 4}},
    {"wide rows",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SOFTMAX}},
     {{1, 2, 1, 60000}, {1, 1}, [7] = {1, 2, 1, 60000}},
     {4, 2, [7] = 4}},
    {"tpa_decode",
     {.kind = COPES_TPA_DECODE},
     {{2, 1, 4, 3},
      {2, 1, 3, 17},
      {2, 50, 4, 7},
      {2, 50, 7, 17},
      {2, 50, 4, 3},
      {2, 50, 3, 16},
      [7] = {2, 1, 4, 16},
      [8] = {2, 1, 4}},
     {4, 4, 4, 4, 4, 4, [7] = 4, [8] = 3}},
    {"tpa_decode in parts",
     {.kind = COPES_TPA_DECODE},
     {{1, 1, 4, 1},
      {1, 1, 1, 17},
      {1, 3000, 4, 1},
      {1, 3000, 1, 17},
      {1, 3000, 4, 1},
      {1, 3000, 1, 16},
      [7] = {1, 1, 4, 16}},
     {4, 4, 4, 4, 4, 4, [7] = 4}},
};
const int small_call_count = sizeof small_calls / sizeof small_calls[0];

/* A number of about 1, or, once in eight, subnormal. */
static void fill_element(DLDataType type, uint64_t random, unsigned char *to)
{
    const int mantissa = type.bits == 64 ? 52 : type.bits == 32 ? 23 : type.code == kDLBfloat ? 7 : 10;
    const int exponent = type.bits - 1 - mantissa, bias = (1 << (exponent - 1)) - 1;
    const uint64_t power = random >> 53 & 7 ? (uint64_t)(bias - 2) + (random >> 56 & 3) : 0;
    const uint64_t bits =
        (random >> 63) << (type.bits - 1) | power << mantissa | (random & (((uint64_t)1 << mantissa) - 1));
    const uint32_t word = (uint32_t)bits;
    const uint16_t half = (uint16_t)bits;
    memcpy(to, type.bits == 64 ? (const void *)&bits : type.bits == 32 ? (const void *)&word : &half, type.bits / 8);
}

/* Theta and positions are float32 whatever the other tensors are. */
static bool makes_angles(const small_call *call, int slot)
{
    const bool lrpe = call->op.kind == COPES_LRPE_FORWARD || call->op.kind == COPES_LRPE_BACKWARD;
    return lrpe && (slot == COPES_LRPE_THETA || slot == COPES_LRPE_POSITIONS || slot == COPES_LRPE_OFFSETS);
}

void small_call_fill(const small_call *call, DLDataType type, small_tensors *to)
{
    const DLDataType single = {kDLFloat, 32, 1};
    uint64_t state = 1;
    memcpy(to->shapes, call->shapes, sizeof to->shapes);
    to->args = (copes_args){.in = {NULL}};
    for (int i = 0; i < SMALL_TENSORS; i++) {
        const bool summed = i == 8 && type.bits < 32; /* lse, or theta's gradient */
        DLTensor *tensor = &to->tensors[i];
        *tensor = (DLTensor){.data = to->memory[i],
                             .device = {kDLCPU, 0},
                             .ndim = call->ranks[i],
                             .dtype = makes_angles(call, i) || summed ? single : type,
                             .shape = to->shapes[i]};
        int64_t count = call->ranks[i] > 0;
        for (int j = 0; j < call->ranks[i]; j++)
            count *= call->shapes[i][j];
        to->bytes[i] = (size_t)(count * tensor->dtype.bits / 8);
        memset(to->memory[i], 0, to->bytes[i]);
        if (count == 0)
            continue;
        for (int64_t j = 0; j < count && i < 7; j++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            fill_element(tensor->dtype, state ^ state >> 31, to->memory[i] + j * tensor->dtype.bits / 8);
        }
        *(i < 7 ? &to->args.in[i] : &to->args.out[i - 7]) = tensor;
    }
}

bool small_call_run(const small_call *call, copes_context *context, small_tensors *tensors)
{
    size_t size = 0;
    if (copes_workspace_size(context, &call->op, &tensors->args, &size) != COPES_OK)
        return false;
    void *workspace = size > 0 ? malloc(size) : NULL;
    const copes_status status = copes_run(context, &call->op, &tensors->args, workspace, size);
    free(workspace);
    return status == COPES_OK;
}

bool small_call_same(const small_tensors *a, const small_tensors *b)
{
    bool same = true;
    for (int i = 0; i < SMALL_TENSORS; i++)
        same = same && a->bytes[i] == b->bytes[i] && memcmp(a->memory[i], b->memory[i], a->bytes[i]) == 0;
    return same;
}
