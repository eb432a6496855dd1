/* Descriptors from bytes, and shapes that go together. */
#include "tests/fuzzed_op.h"

#include "common/slots.h"

#include <string.h>

uint8_t fuzz_take(reader *from)
{
    if (from->size == 0)
        return 0;
    from->size--;
    return *from->bytes++;
}

static int64_t take64(reader *from)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | fuzz_take(from);
    int64_t result;
    memcpy(&result, &value, sizeof result);
    return result;
}

int64_t fuzz_take_number(reader *from)
{
    const uint8_t byte = fuzz_take(from);
    if (byte < 232)
        return byte % 24;
    if (byte < 248)
        return -(byte % 8);
    if (byte < 252)
        return (INT64_C(1) << 31) - byte % 4;
    return byte < 254 ? (INT64_C(1) << fuzz_take(from) % 63) - byte % 2 : take64(from);
}

static int32_t narrow(int64_t value)
{
    return (int32_t)(uint32_t)value;
}

static double take_real(reader *from)
{
    static const double values[8] = {0, 1, -0.5, 1e300, 1e-300, 1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0};
    return values[fuzz_take(from) % 8];
}

void fuzz_take_numbers(reader *from, int64_t *values, int count)
{
    for (int i = 0; i < count; i++)
        values[i] = fuzz_take_number(from);
}

static void take_lrpe(reader *from, copes_lrpe_attributes *lrpe)
{
    const uint8_t given = fuzz_take(from); /* which attributes are not their default, so that many calls are good */
    lrpe->variant = (copes_lrpe_variant)(fuzz_take(from) % 3);
    lrpe->pairing = (copes_lrpe_pairing)(fuzz_take(from) % 3);
    lrpe->act = (copes_act)(fuzz_take(from) % 6);
    lrpe->dim = -(narrow(fuzz_take_number(from)) % 5);
    if (given & 1) {
        lrpe->grid_rank = narrow(fuzz_take_number(from)) % 6;
        fuzz_take_numbers(from, lrpe->grid, COPES_MAX_GRID);
    }
    if (given & 2)
        fuzz_take_numbers(from, lrpe->offset, COPES_MAX_GRID);
    if (given & 4)
        lrpe->prefix = fuzz_take_number(from);
    if (given & 8)
        lrpe->suffix = fuzz_take_number(from);
    if (given & 16)
        fuzz_take_numbers(from, lrpe->sections, COPES_MAX_GRID);
    if (given & 32)
        lrpe->rotary_dim = fuzz_take_number(from);
    if (given & 64)
        lrpe->pad_theta = fuzz_take(from) % 3;
    if (given & 128) {
        lrpe->rotary_begin = fuzz_take_number(from);
        lrpe->amplitude = take_real(from);
        lrpe->inverse = fuzz_take(from) % 3;
    }
}

static void take_qk(reader *from, copes_qk_attributes *qk)
{
    const uint8_t given = fuzz_take(from);
    qk->pairing = (copes_lrpe_pairing)(given & 1);
    qk->norm_over = (copes_qk_norm)(given >> 1 & 1);
    qk->round_between = given >> 2 & 1;
    if (given & 8) {
        qk->grid_rank = narrow(fuzz_take_number(from)) % 6;
        fuzz_take_numbers(from, qk->grid, COPES_MAX_GRID);
        fuzz_take_numbers(from, qk->offset, COPES_MAX_GRID);
    }
    if (given & 16) {
        qk->prefix = fuzz_take_number(from);
        qk->suffix = fuzz_take_number(from);
    }
    if (given & 32) {
        qk->rotary_dim = fuzz_take_number(from);
        qk->rotary_begin = fuzz_take_number(from);
    }
    if (given & 64) {
        qk->eps = take_real(from);
        qk->weight_offset = take_real(from);
        qk->amplitude = take_real(from);
    }
    if (given & 128) {
        const uint8_t wrong = fuzz_take(from);
        qk->pairing = (copes_lrpe_pairing)(wrong % 3);
        qk->norm_over = (copes_qk_norm)(wrong / 3 % 3);
        qk->inverse = wrong / 9 % 3;
        qk->pad_theta = wrong / 27 % 3;
    }
}

bool fuzz_is_qk(const copes_op *op)
{
    return op->kind == COPES_QK_NORM_ROPE_FORWARD || op->kind == COPES_QK_NORM_ROPE_BACKWARD;
}

void fuzz_take_op(reader *from, copes_op *op)
{
    op->kind = (copes_kind)(fuzz_take(from) % 7);
    if (op->kind == COPES_ACT_FORWARD || op->kind == COPES_ACT_BACKWARD) {
        op->act.act = (copes_act)(fuzz_take(from) % 6);
        op->act.dim = narrow((int64_t)(0 - (uint64_t)fuzz_take_number(from)));
    } else if (op->kind == COPES_TPA_DECODE) {
        double *const scales[4] = {&op->tpa.scale, &op->tpa.scale_q, &op->tpa.scale_k, &op->tpa.scale_v};
        for (int i = 0; i < 4; i++)
            *scales[i] = take_real(from);
        const uint8_t flags = fuzz_take(from);
        op->tpa.causal = flags % 3;
        if (flags > 224) {
            op->tpa.kv_first = fuzz_take_number(from);
            op->tpa.kv_stride = fuzz_take_number(from);
            op->tpa.kv_total = fuzz_take_number(from);
        }
    } else if (op->kind ==
               COPES_QK_NORM_ROPE_FORWARD) { /* or its backward, or a later kind: the other kinds keep their bytes */
        op->kind = (copes_kind)(op->kind + fuzz_take(from) % 3);
        if (op->kind == COPES_ATTENTION_MERGE_FORWARD) { /* or its backward, or none */
            op->kind = (copes_kind)(op->kind + fuzz_take(from) % 3);
            op->merge.base = (copes_log_base)(fuzz_take(from) % 3);
        } else {
            take_qk(from, &op->qk);
        }
    } else {
        take_lrpe(from, &op->lrpe);
    }
}

enum { B, N, M, H, D, E, RQ, RK, RV, LENGTHS };

/* 1 but for two. */
static void take_lengths(reader *from, int64_t lengths[LENGTHS])
{
    for (int i = 0; i < LENGTHS; i++)
        lengths[i] = 1;
    for (int i = 0; i < 2; i++)
        lengths[fuzz_take(from) % LENGTHS] = fuzz_take_number(from);
}

/* Shapes of tpa_decode's factors. */
static void take_factors(reader *from, DLDataType type, fuzz_shape shapes[FUZZ_SLOTS])
{
    static const uint8_t axes[6][4] = {{B, N, H, RQ}, {B, N, RQ, D}, {B, M, H, RK},
                                       {B, M, RK, D}, {B, M, H, RV}, {B, M, RV, E}};
    int64_t lengths[LENGTHS];
    take_lengths(from, lengths);
    for (int i = 0; i < 6; i++) {
        shapes[i] = (fuzz_shape){.rank = 4, .type = type};
        for (int j = 0; j < 4; j++)
            shapes[i].lengths[j] = lengths[axes[i][j]];
    }
}

/* Of qk_norm_rope, whose heads have an even number of features, so that many calls are good. */
static void take_heads(reader *from, const copes_op *op, DLDataType type, fuzz_shape shapes[FUZZ_SLOTS])
{
    enum { FLOAT8 = 10, OUT = COPES_MAX_INPUTS };
    static const DLDataType float32 = {kDLFloat, 32, 1}, int64 = {kDLInt, 64, 1}, float8 = {FLOAT8, 8, 1};
    int64_t l[LENGTHS];
    take_lengths(from, l);
    const int64_t d = 2 * (l[D] & 7), keys = l[M];
    const bool short_cache = fuzz_take(from) & 1;
    const DLDataType cache = short_cache ? float8 : type;
    const fuzz_shape queries = {4, {l[B], l[N], l[H], d}, type}, k = {4, {l[B], l[N], keys, d}, type};
    shapes[COPES_QK_Q] = queries;
    shapes[COPES_QK_K] = k;
    shapes[COPES_QK_THETA] = (fuzz_shape){2, {1, d / 2}, float32};
    shapes[COPES_QK_POSITIONS] = (fuzz_shape){2, {l[B], l[N]}, int64};
    shapes[COPES_QK_OFFSETS] = (fuzz_shape){1, {l[B]}, int64};
    shapes[COPES_QK_WQ] = (fuzz_shape){1, {d}, type};
    shapes[COPES_QK_WK] = (fuzz_shape){2, {keys, d}, float32};
    if (op->kind == COPES_QK_NORM_ROPE_BACKWARD) {
        shapes[COPES_QK_GRAD_Q_OUT] = queries;
        shapes[COPES_QK_GRAD_K_OUT] = k;
        return;
    }
    shapes[COPES_QK_V] = (fuzz_shape){4, {l[B], l[N], keys, l[E]}, type};
    shapes[COPES_QK_SLOTS] = (fuzz_shape){2, {l[B], l[N]}, int64};
    shapes[COPES_QK_K_SCALE] = (fuzz_shape){1, {1}, float32};
    shapes[COPES_QK_V_SCALE] = (fuzz_shape){1, {keys}, float32};
    shapes[OUT + COPES_QK_K_CACHE] = (fuzz_shape){4, {l[RQ], l[RK], keys, d}, cache};
    shapes[OUT + COPES_QK_V_CACHE] = (fuzz_shape){4, {l[RQ], l[RK], keys, l[E]}, cache};
}

/* Of attention_merge. */
static void take_shares(reader *from, const copes_op *op, DLDataType type, fuzz_shape shapes[FUZZ_SLOTS])
{
    const DLDataType single = {kDLFloat, 32, 1}, wide = type.bits < 64 ? single : type;
    int64_t l[LENGTHS];
    take_lengths(from, l);
    shapes[COPES_MERGE_O_SHARES] = (fuzz_shape){5, {l[M], l[B], l[N], l[H], l[E]}, type};
    shapes[COPES_MERGE_LSE_SHARES] = (fuzz_shape){4, {l[M], l[B], l[N], l[H]}, wide};
    if (op->kind == COPES_ATTENTION_MERGE_BACKWARD) {
        shapes[COPES_MERGE_GRAD_O] = (fuzz_shape){4, {l[B], l[N], l[H], l[E]}, type};
        shapes[COPES_MERGE_GRAD_LSE] = (fuzz_shape){3, {l[B], l[N], l[H]}, wide};
    }
}

/* Of softmax that may lie in shares, over dim -3 of (B, N, H, D): the numbers of its columns. */
static void take_columns(reader *from, const copes_op *op, DLDataType type, fuzz_shape shapes[FUZZ_SLOTS])
{
    const DLDataType single = {kDLFloat, 32, 1}, wide = type.bits < 64 ? single : type;
    int64_t l[LENGTHS];
    take_lengths(from, l);
    const int64_t d = 2 * (l[D] & 7);
    const fuzz_shape x = {4, {l[B], l[N], l[H], d}, type}, columns = {3, {l[B], l[H], d}, wide};
    const fuzz_shape along = {4, {l[B], 1, l[H], d}, wide};
    const bool lrpe = op->kind == COPES_LRPE_FORWARD || op->kind == COPES_LRPE_BACKWARD;
    const bool backward = op->kind == COPES_ACT_BACKWARD || op->kind == COPES_LRPE_BACKWARD;
    shapes[0] = x;
    if (!lrpe) {
        shapes[COPES_ACT_GRAD_O] = backward ? x : along; /* or lse_all */
        shapes[COPES_ACT_O] = backward ? x : (fuzz_shape){.rank = 0};
        shapes[COPES_ACT_DELTA_ALL] = backward ? along : (fuzz_shape){.rank = 0};
        return;
    }
    const bool cosine = op->lrpe.variant == COPES_LRPE_COSINE;
    shapes[COPES_LRPE_THETA] = (fuzz_shape){2, {1, cosine ? d : d / 2}, single};
    shapes[COPES_LRPE_GRAD_O] = columns; /* lse_all */
    if (backward) {
        shapes[COPES_LRPE_GRAD_O] = (fuzz_shape){4, {l[B], l[N], l[H], cosine ? 2 * d : d}, type};
        shapes[COPES_LRPE_LSE] = shapes[COPES_LRPE_DELTA_ALL] = columns;
    }
}

/* Of a backward that has the forward's mask. */
static void take_masked(reader *from, DLDataType type, fuzz_shape shapes[FUZZ_SLOTS])
{
    int64_t l[LENGTHS];
    take_lengths(from, l);
    const fuzz_shape x = {4, {l[B], l[N], l[H], l[D]}, type};
    shapes[COPES_ACT_X] = shapes[COPES_ACT_GRAD_O] = shapes[COPES_ACT_O] = x;
    shapes[COPES_ACT_MASK] = (fuzz_shape){4, {l[B], l[N], l[H], l[D] / 8 + (l[D] % 8 > 0)}, {kDLUInt, 8, 1}};
}

static bool over_columns(const copes_op *op)
{
    if (op->kind == COPES_ACT_FORWARD || op->kind == COPES_ACT_BACKWARD)
        return op->act.act == COPES_ACT_SOFTMAX && op->act.dim == -3;
    const bool lrpe = op->kind == COPES_LRPE_FORWARD || op->kind == COPES_LRPE_BACKWARD;
    return lrpe && op->lrpe.act == COPES_ACT_SOFTMAX && op->lrpe.dim == -3;
}

void fuzz_take_shapes(reader *from, const copes_op *op, DLDataType usual, fuzz_shape shapes[FUZZ_SLOTS])
{
    if (over_columns(op))
        take_columns(from, op, usual, shapes);
    if (op->kind == COPES_ACT_BACKWARD && op->act.act == COPES_ACT_RELU && op->act.dim == -2)
        take_masked(from, usual, shapes);
    if (op->kind == COPES_TPA_DECODE)
        take_factors(from, usual, shapes);
    if (fuzz_is_qk(op))
        take_heads(from, op, usual, shapes);
    if (op->kind == COPES_ATTENTION_MERGE_FORWARD || op->kind == COPES_ATTENTION_MERGE_BACKWARD)
        take_shares(from, op, usual, shapes);
}
