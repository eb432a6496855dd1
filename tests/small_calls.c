/* The table of small calls, their values and how they are run. */
#include "tests/small_calls.h"

#include "common/slots.h"

#include <stdlib.h>
#include <string.h>

const small_call small_calls[] = {
    {"silu",
     {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SILU}},
     {{64, 999}, [SMALL_OUT] = {64, 999}},
     {2, [SMALL_OUT] = 2}},
    {"sigmoid's gradient",
     {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SIGMOID}},
     {{64, 999}, {64, 999}, [SMALL_OUT] = {64, 999}},
     {2, 2, [SMALL_OUT] = 2}},
    {"sigmoid's gradient from its output",
     {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SIGMOID}},
     {[1] = {64, 999}, [2] = {64, 999}, [SMALL_OUT] = {64, 999}},
     {[1] = 2, [2] = 2, [SMALL_OUT] = 2}},
    {"relu with its mask",
     {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_RELU}},
     {{64, 999}, [SMALL_OUT] = {64, 999}, [SMALL_OUT + COPES_ACT_OUT_MASK] = {64, 125}},
     {2, [SMALL_OUT] = 2, [SMALL_OUT + COPES_ACT_OUT_MASK] = 2}},
    {"relu's gradient from its mask",
     {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_RELU}},
     {[COPES_ACT_GRAD_O] = {64, 999}, [COPES_ACT_MASK] = {64, 125}, [SMALL_OUT] = {64, 999}},
     {[COPES_ACT_GRAD_O] = 2, [COPES_ACT_MASK] = 2, [SMALL_OUT] = 2}},
    {"softmax",
     {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -2}},
     {{64, 33}, [SMALL_OUT] = {64, 33}},
     {2, [SMALL_OUT] = 2}},
    {"softmax of long rows",
     {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX}},
     {{8, 5000}, [SMALL_OUT] = {8, 5000}},
     {2, [SMALL_OUT] = 2}},
    {"softmax's gradient",
     {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SOFTMAX}},
     {[1] = {64, 33}, [2] = {64, 33}, [SMALL_OUT] = {64, 33}},
     {[1] = 2, [2] = 2, [SMALL_OUT] = 2}},
    {"rotate after silu",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SILU}},
     {{2, 40, 3, 16}, {3, 8}, [SMALL_OUT] = {2, 40, 3, 16}},
     {4, 2, [SMALL_OUT] = 4}},
    {"rotate's gradient",
     {.kind = COPES_LRPE_BACKWARD, .lrpe = {.pairing = COPES_LRPE_INTERLEAVED}},
     {[1] = {3, 8}, [4] = {2, 40, 3, 16}, [SMALL_OUT] = {2, 40, 3, 16}},
     {[1] = 2, [4] = 4, [SMALL_OUT] = 4}},
    {"rotate by positions of two dimensions",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.rotary_begin = 4, .amplitude = 1.25, .inverse = 1}},
     {{2, 40, 3, 16}, {2, 3, 6}, {2, 2, 40}, [SMALL_OUT] = {2, 40, 3, 16}},
     {4, 3, 3, [SMALL_OUT] = 4}},
    {"theta's gradient",
     {.kind = COPES_LRPE_BACKWARD, .lrpe = {.act = COPES_ACT_SILU}},
     {{2, 40, 3, 16}, {1, 8}, {2, 40}, [4] = {2, 40, 3, 16}, [SMALL_OUT] = {2, 40, 3, 16}, [SMALL_OUT + 1] = {1, 8}},
     {4, 2, 2, [4] = 4, [SMALL_OUT] = 4, [SMALL_OUT + 1] = 2}},
    {"theta's gradient after softmax over the sequence",
     {.kind = COPES_LRPE_BACKWARD, .lrpe = {.variant = COPES_LRPE_COSINE, .act = COPES_ACT_SOFTMAX, .dim = -3}},
     {{2, 40, 3, 16},
      {3, 16},
      [3] = {2},
      [4] = {2, 40, 3, 32},
      [SMALL_OUT] = {2, 40, 3, 16},
      [SMALL_OUT + 1] = {3, 16}},
     {4, 2, [3] = 1, [4] = 4, [SMALL_OUT] = 4, [SMALL_OUT + 1] = 2}},
    {"rotate after softmax over the sequence",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SOFTMAX, .dim = -3}},
     {{2, 40, 3, 16}, {3, 8}, [SMALL_OUT] = {2, 40, 3, 16}, [SMALL_OUT + 1] = {2, 3, 16}},
     {4, 2, [SMALL_OUT] = 4, [SMALL_OUT + 1] = 3}},
    {"cosine's gradient",
     {.kind = COPES_LRPE_BACKWARD, .lrpe = {.variant = COPES_LRPE_COSINE, .act = COPES_ACT_SOFTMAX, .dim = -3}},
     {{2, 40, 3, 16}, {3, 16}, [4] = {2, 40, 3, 32}, [SMALL_OUT] = {2, 40, 3, 16}},
     {4, 2, [4] = 4, [SMALL_OUT] = 4}},
    {"a share's log sum exp",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SOFTMAX, .dim = -3}},
     {{2, 40, 3, 16}, {3, 8}, [SMALL_OUT + COPES_LRPE_OUT_LSE] = {2, 3, 16}},
     {4, 2, [SMALL_OUT + COPES_LRPE_OUT_LSE] = 3}},
    {"a share by that of all",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SOFTMAX, .dim = -3}},
     {{2, 40, 3, 16}, {3, 8}, [COPES_LRPE_LSE_ALL] = {2, 3, 16}, [SMALL_OUT] = {2, 40, 3, 16}},
     {4, 2, [COPES_LRPE_LSE_ALL] = 3, [SMALL_OUT] = 4}},
    {"a share's delta",
     {.kind = COPES_LRPE_BACKWARD, .lrpe = {.variant = COPES_LRPE_COSINE, .act = COPES_ACT_SOFTMAX, .dim = -3}},
     {{2, 40, 3, 16},
      {3, 16},
      [COPES_LRPE_GRAD_O] = {2, 40, 3, 32},
      [COPES_LRPE_LSE] = {2, 3, 16},
      [SMALL_OUT + COPES_LRPE_DELTA] = {2, 3, 16}},
     {4, 2, [COPES_LRPE_GRAD_O] = 4, [COPES_LRPE_LSE] = 3, [SMALL_OUT + COPES_LRPE_DELTA] = 3}},
    {"a share's gradient",
     {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -2}},
     {[COPES_ACT_GRAD_O] = {64, 33}, [COPES_ACT_O] = {64, 33}, [COPES_ACT_DELTA_ALL] = {1, 33}, [SMALL_OUT] = {64, 33}},
     {[COPES_ACT_GRAD_O] = 2, [COPES_ACT_O] = 2, [COPES_ACT_DELTA_ALL] = 2, [SMALL_OUT] = 2}},
    {"a share of long rows",
     {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX}},
     {{8, 5000}, {8, 1}, [SMALL_OUT] = {8, 5000}},
     {2, 2, [SMALL_OUT] = 2}},
    {"wide rows",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SOFTMAX}},
     {{1, 2, 1, 60000}, {1, 1}, [SMALL_OUT] = {1, 2, 1, 60000}},
     {4, 2, [SMALL_OUT] = 4}},
    {"tpa_decode",
     {.kind = COPES_TPA_DECODE},
     {{2, 1, 4, 3},
      {2, 1, 3, 17},
      {2, 50, 4, 7},
      {2, 50, 7, 17},
      {2, 50, 4, 3},
      {2, 50, 3, 16},
      [SMALL_OUT] = {2, 1, 4, 16},
      [SMALL_OUT + 1] = {2, 1, 4}},
     {4, 4, 4, 4, 4, 4, [SMALL_OUT] = 4, [SMALL_OUT + 1] = 3}},
    {"tpa_decode in parts",
     {.kind = COPES_TPA_DECODE},
     {{1, 1, 4, 1},
      {1, 1, 1, 17},
      {1, 3000, 4, 1},
      {1, 3000, 1, 17},
      {1, 3000, 4, 1},
      {1, 3000, 1, 16},
      [SMALL_OUT] = {1, 1, 4, 16}},
     {4, 4, 4, 4, 4, 4, [SMALL_OUT] = 4}},
    {"norms and rotations into a cache",
     {.kind = COPES_QK_NORM_ROPE_FORWARD, .qk = {.pairing = COPES_LRPE_INTERLEAVED, .round_between = 1}},
     {[COPES_QK_Q] = {2, 40, 8, 16},
      [COPES_QK_K] = {2, 40, 2, 16},
      [COPES_QK_THETA] = {1, 8},
      [COPES_QK_WQ] = {16},
      [COPES_QK_WK] = {2, 16},
      [COPES_QK_V] = {2, 40, 2, 12},
      [COPES_QK_SLOTS] = {2, 40},
      [SMALL_OUT] = {2, 40, 8, 16},
      [SMALL_OUT + COPES_QK_K_OUT] = {2, 40, 2, 16},
      [SMALL_OUT + COPES_QK_K_CACHE] = {6, 16, 2, 16},
      [SMALL_OUT + COPES_QK_V_CACHE] = {6, 16, 2, 12}},
     {4, 4, 2, [COPES_QK_WQ] = 1, 2, 4, 2, [SMALL_OUT] = 4, 4, 4, 4}},
    {"gradients of norms over all heads",
     {.kind = COPES_QK_NORM_ROPE_BACKWARD, .qk = {.norm_over = COPES_QK_NORM_ALL_HEADS, .weight_offset = 1}},
     {[COPES_QK_Q] = {2, 40, 8, 16},
      [COPES_QK_K] = {2, 40, 2, 16},
      [COPES_QK_THETA] = {1, 8},
      [COPES_QK_WQ] = {8, 16},
      [COPES_QK_WK] = {16},
      [COPES_QK_GRAD_Q_OUT] = {2, 40, 8, 16},
      [COPES_QK_GRAD_K_OUT] = {2, 40, 2, 16},
      [SMALL_OUT] = {2, 40, 8, 16},
      [SMALL_OUT + COPES_QK_K_OUT] = {2, 40, 2, 16},
      [SMALL_OUT + COPES_QK_GRAD_WQ] = {8, 16},
      [SMALL_OUT + COPES_QK_GRAD_WK] = {16}},
     {4, 4, 2, [COPES_QK_WQ] = 2, 1, [COPES_QK_GRAD_Q_OUT] = 4, 4, [SMALL_OUT] = 4, 4, 2, 1}},
    {"merged shares",
     {.kind = COPES_ATTENTION_MERGE_FORWARD},
     {{5, 2, 3, 4, 33}, {5, 2, 3, 4}, [SMALL_OUT] = {2, 3, 4, 33}, [SMALL_OUT + 1] = {2, 3, 4}},
     {5, 4, [SMALL_OUT] = 4, [SMALL_OUT + 1] = 3}},
    {"more shares than scratch memory takes",
     {.kind = COPES_ATTENTION_MERGE_FORWARD, .merge = {.base = COPES_LOG_BASE_2}},
     {{30000, 1, 1, 1, 2}, {30000, 1, 1, 1}, [SMALL_OUT] = {1, 1, 1, 2}},
     {5, 4, [SMALL_OUT] = 4}},
    {"gradients of shares",
     {.kind = COPES_ATTENTION_MERGE_BACKWARD},
     {{5, 2, 3, 4, 33},
      {5, 2, 3, 4},
      {2, 3, 4, 33},
      {2, 3, 4},
      [SMALL_OUT] = {5, 2, 3, 4, 33},
      [SMALL_OUT + 1] = {5, 2, 3, 4}},
     {5, 4, 4, 3, [SMALL_OUT] = 5, [SMALL_OUT + 1] = 4}},
};
const int small_call_count = sizeof small_calls / sizeof small_calls[0];

/* A number of about 1, or, once in eight, subnormal; of a mask any byte. */
static void fill_element(DLDataType type, uint64_t random, unsigned char *to)
{
    if (type.bits == 8) {
        *to = (unsigned char)(random >> 40);
        return;
    }
    const int mantissa = type.bits == 64 ? 52 : type.bits == 32 ? 23 : type.code == kDLBfloat ? 7 : 10;
    const int exponent = type.bits - 1 - mantissa, bias = (1 << (exponent - 1)) - 1;
    const uint64_t power = random >> 53 & 7 ? (uint64_t)(bias - 2) + (random >> 56 & 3) : 0;
    const uint64_t bits =
        (random >> 63) << (type.bits - 1) | power << mantissa | (random & (((uint64_t)1 << mantissa) - 1));
    const uint32_t word = (uint32_t)bits;
    const uint16_t half = (uint16_t)bits;
    memcpy(to, type.bits == 64 ? (const void *)&bits : type.bits == 32 ? (const void *)&word : &half, type.bits / 8);
}

/* Theta and positions are float32 whatever the other tensors are, sums are where those are of 16 bits, and slots int64. */
static DLDataType type_of(const small_call *call, int i, DLDataType type)
{
    const DLDataType single = {kDLFloat, 32, 1}, whole = {kDLInt, 64, 1}, byte = {kDLUInt, 8, 1};
    const DLDataType wide = type.bits < 32 ? single : type;
    switch (call->op.kind) {
    case COPES_ACT_FORWARD:
        if (i == COPES_ACT_LSE_ALL)
            return wide;
        if (i == SMALL_OUT + COPES_ACT_OUT_MASK)
            return byte;
        break;
    case COPES_ACT_BACKWARD:
        if (i == COPES_ACT_DELTA_ALL)
            return wide;
        if (i == COPES_ACT_MASK)
            return byte;
        break;
    case COPES_LRPE_FORWARD:
        if (i == COPES_LRPE_LSE_ALL)
            return wide;
        if (i == COPES_LRPE_THETA || i == COPES_LRPE_POSITIONS || i == COPES_LRPE_OFFSETS)
            return single;
        break;
    case COPES_LRPE_BACKWARD:
        if (i == COPES_LRPE_LSE || i == SMALL_OUT + COPES_LRPE_DELTA)
            return wide;
        if (i == COPES_LRPE_THETA || i == COPES_LRPE_POSITIONS || i == COPES_LRPE_OFFSETS)
            return single;
        break;
    case COPES_QK_NORM_ROPE_BACKWARD:
        if (i == SMALL_OUT + COPES_QK_GRAD_WQ || i == SMALL_OUT + COPES_QK_GRAD_WK)
            return wide;
        return i == COPES_QK_THETA ? single : type;
    case COPES_QK_NORM_ROPE_FORWARD: return i == COPES_QK_THETA ? single : i == COPES_QK_SLOTS ? whole : type;
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD:
        if (i == COPES_MERGE_LSE_SHARES || i == COPES_MERGE_GRAD_LSE)
            return wide;
        break;
    default: break;
    }
    return i == SMALL_OUT + COPES_LSE_OUT ? wide : type; /* lse, or theta's gradient */
}

/* Places of a cache: each token has its own. */
static void fill_slots(int64_t count, unsigned char *to)
{
    for (int64_t j = 0; j < count; j++) {
        const int64_t place = count - 1 - j;
        memcpy(to + j * (int64_t)sizeof place, &place, sizeof place);
    }
}

void small_call_fill(const small_call *call, DLDataType type, small_tensors *to)
{
    uint64_t state = 1;
    memcpy(to->shapes, call->shapes, sizeof to->shapes);
    to->args = (copes_args){.in = {NULL}};
    for (int i = 0; i < SMALL_TENSORS; i++) {
        DLTensor *tensor = &to->tensors[i];
        *tensor = (DLTensor){.data = to->memory[i],
                             .device = {kDLCPU, 0},
                             .ndim = call->ranks[i],
                             .dtype = type_of(call, i, type),
                             .shape = to->shapes[i]};
        int64_t count = call->ranks[i] > 0;
        for (int j = 0; j < call->ranks[i]; j++)
            count *= call->shapes[i][j];
        to->bytes[i] = (size_t)(count * tensor->dtype.bits / 8);
        memset(to->memory[i], 0, to->bytes[i]);
        if (count == 0)
            continue;
        if (tensor->dtype.code == kDLInt)
            fill_slots(count, to->memory[i]);
        for (int64_t j = 0; j < count && i < SMALL_OUT && tensor->dtype.code != kDLInt; j++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            fill_element(tensor->dtype, state ^ state >> 31, to->memory[i] + j * tensor->dtype.bits / 8);
        }
        *(i < SMALL_OUT ? &to->args.in[i] : &to->args.out[i - SMALL_OUT]) = tensor;
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
