/* The encoding itself, its transpose, and the norm before a rotation, on rows of D features: between memory and a row of reals in
 * cache, or from memory to memory. A row passes through registers once, with its angles in L1. Memory binds, or the activation, or
 * instructions: a walk's pointers are locals that only inlined code sees. */
#include "backends/openmp/encode_steps.h"

/* The way from a row of a block to the next. */
typedef struct row_steps {
    int64_t from, to, x, turn, inverse, weight;
} row_steps;

static ALWAYS_INLINE row_steps steps_of(const encoding *e, walk_kind kind, row_block from, row_block x, row_block to)
{
    return (row_steps){.from = from.stride,
                       .to = to.stride,
                       .x = x.stride,
                       .turn = e->angles->rows == 1 ? 0 : e->angles->stride,
                       .inverse = kind.norm != NO_NORM ? e->norm->inverse_stride : 0,
                       .weight = kind.norm != NO_NORM ? e->norm->weight_stride : 0};
}

/* Elements of storage, or reals, from there. */
static ALWAYS_INLINE const void *element(bool reals, const void *row, int64_t i)
{
    return reals ? (const void *)((const real *)row + i) : (const void *)((const storage *)row + i);
}

static ALWAYS_INLINE void next_row(walk_kind kind, walked_parts *at, const row_steps *by)
{
    for (int i = 0; i < 2; i++) {
        at->from[i] = element(kind.from_reals, at->from[i], by->from);
        at->to[i] = (void *)element(kind.to_reals, at->to[i], by->to);
        if (takes_x(kind))
            at->x[i] += by->x;
        if (kind.norm != NO_NORM)
            at->weight[i] += by->weight;
    }
    if (kind.norm != NO_NORM)
        at->inverse += by->inverse;
    at->cosine += by->turn;
    at->sine += by->turn;
}

enum { ROWS_MADE = 2 }; /* at a time: fewer cost calls, and while more are made memory has nothing to do */

/* Makes the rotations of rows from `row` on, while memory brings what was asked for before. */
static NOINLINE void make_rows(const encoding *e, int64_t row)
{
    const int64_t stride = e->angles->stride, left = e->count - row, rows = left < ROWS_MADE ? left : ROWS_MADE;
    const phase_sums sums = {e->sums.anchor + row * stride, e->sums.distance + row * stride};
    add_phases(e->angles, sums, rows * stride, row);
}

/* A step on `count` elements of the parts of a block's rows. */
static ALWAYS_INLINE void walk(encoding_step step, walk_kind kind, const encoding *e, walked_parts at, row_steps by,
                               int64_t count)
{
    const int64_t rows = e->count;
    const bool turns = step != COPY_REST;
    for (int64_t row = 0; row < rows; row++) {
        int64_t i = 0;
        if (!FULL_WIDTH && turns && e->sums.anchor != NULL && row % ROWS_MADE == 0)
            make_rows(e, row);
        for (; i + PAIR <= count; i += PAIR)
            take_step(step, kind, &at, i, PAIR);
        if (i < count) {
            const walked_parts rest = at; /* a call may have its address, and `at` stays in registers */
            if (MASKS)
                take_step(step, kind, &rest, i, count - i);
            else
                take_rest(step, kind, &rest, i, count - i);
        }
        if (row + 1 < rows) /* an only row may have any stride */
            next_row(kind, &at, &by);
    }
}

/* Two parts of the layout, or of a row that is twice as wide as cosine's x. */
static ALWAYS_INLINE walked_parts parts_of(const encoding *e, walk_kind kind, row_block from, row_block x, row_block to,
                                           int first, int second)
{
    const bool norm = kind.norm != NO_NORM, wide = !kind.turns && e->variant == COPES_LRPE_COSINE;
    walked_parts parts = {.cosine = e->angles->cosine,
                          .sine = e->angles->sine,
                          .inverse = norm ? e->norm->inverse : NULL,
                          .ahead = from.ahead,
                          .x_ahead = x.ahead,
                          .to_ahead = to.ahead,
                          .stream = e->stream};
    for (int i = 0; i < 2; i++) {
        const int part = i == 0 ? first : second;
        const int64_t feature = wide ? i * e->d : e->layout->begin[part], place = e->layout->at[part];
        parts.from[i] = element(kind.from_reals, from.data, kind.from_reals ? place : feature);
        parts.to[i] = (void *)element(kind.to_reals, to.data, kind.to_reals ? place : feature);
        parts.x[i] = takes_x(kind) ? (const storage *)x.data + feature : NULL;
        parts.weight[i] = norm ? e->norm->weight + place : NULL;
    }
    return parts;
}

/* All rows of a block, by variant and pairing. */
static ALWAYS_INLINE void encode_any(const encoding *e, walk_kind kind, row_block from, row_block x, row_block to)
{
    const row_steps by = steps_of(e, kind, from, x, to);
    const int64_t *begin = e->layout->begin, turned = 2 * e->angles->count;
    if (!kind.turns && e->variant == COPES_LRPE_COSINE) {
        walk(kind.transposed ? CONTRACT_COSINE : EXPAND_COSINE, kind, e, parts_of(e, kind, from, x, to, 0, 0), by,
             e->d);
        return;
    }
    if (e->pairing == COPES_LRPE_HALF)
        walk(TURN_HALF, kind, e, parts_of(e, kind, from, x, to, 1, 2), by, turned / 2);
    else
        walk(TURN_INTERLEAVED, kind, e, parts_of(e, kind, from, x, to, 1, 1), by, turned);
    const int last = e->layout->parts - 1;
    for (int part = 0; part <= last; part += last) /* in one place, as the walk is a large part of the library's code */
        if (begin[part + 1] > begin[part])
            walk(COPY_REST, kind, e, parts_of(e, kind, from, x, to, part, part), by, begin[part + 1] - begin[part]);
}

/* One function for each activation. */
#define ENCODE_WITH(name, kind_of_act)                                                                                 \
    static NOINLINE void encode_##name(const encoding *e, row_block x, row_block o)                                    \
    {                                                                                                                  \
        encode_any(e, (walk_kind){.act = kind_of_act}, x, (row_block){0}, o);                                          \
    }                                                                                                                  \
    static NOINLINE void decode_##name(const encoding *e, row_block grad_o, row_block x, row_block grad_x)             \
    {                                                                                                                  \
        encode_any(e, (walk_kind){.transposed = true, .act = kind_of_act}, grad_o, x, grad_x);                         \
    }
ENCODE_WITH(none, COPES_ACT_NONE)
ENCODE_WITH(relu, COPES_ACT_RELU)
ENCODE_WITH(sigmoid, COPES_ACT_SIGMOID)
ENCODE_WITH(silu, COPES_ACT_SILU)
#undef ENCODE_WITH

void TEMPLATE(encode)(copes_act act, const encoding *e, row_block x, row_block o)
{
    switch (act) {
    case COPES_ACT_RELU: encode_relu(e, x, o); break;
    case COPES_ACT_SIGMOID: encode_sigmoid(e, x, o); break;
    case COPES_ACT_SILU: encode_silu(e, x, o); break;
    default: encode_none(e, x, o);
    }
}

void TEMPLATE(decode)(copes_act act, const encoding *e, row_block grad_o, row_block x, row_block grad_x)
{
    switch (act) {
    case COPES_ACT_RELU: decode_relu(e, grad_o, x, grad_x); break;
    case COPES_ACT_SIGMOID: decode_sigmoid(e, grad_o, x, grad_x); break;
    case COPES_ACT_SILU: decode_silu(e, grad_o, x, grad_x); break;
    default: decode_none(e, grad_o, x, grad_x);
    }
}

void TEMPLATE(encode_reals)(const encoding *e, row_block y, row_block o)
{
    encode_any(e, (walk_kind){.from_reals = true}, y, (row_block){0}, o);
}

void TEMPLATE(decode_reals)(const encoding *e, row_block grad_o, row_block g)
{
    encode_any(e, (walk_kind){.transposed = true, .to_reals = true}, grad_o, (row_block){0}, g);
}

/* One function for each norm and kind of result. */
#define TURN(name, reals, step)                                                                                        \
    static NOINLINE void turn_##name(const encoding *e, row_block x, row_block o)                                      \
    {                                                                                                                  \
        encode_any(e, (walk_kind){.to_reals = reals, .turns = true, .norm = step}, x, (row_block){0}, o);              \
    }
TURN(normed, false, NORM)
TURN(rounded, false, NORM_ROUNDED)
TURN(to_reals, true, NO_NORM)
TURN(normed_to_reals, true, NORM)
TURN(rounded_to_reals, true, NORM_ROUNDED)
#undef TURN

void TEMPLATE(turn)(const encoding *e, bool to_reals, row_block x, row_block o)
{
    if (e->norm == NULL)
        (to_reals ? turn_to_reals : encode_none)(e, x, o);
    else if (!FULL_WIDTH && e->norm->round_between) /* at full width storage has reals as they are */
        (to_reals ? turn_rounded_to_reals : turn_rounded)(e, x, o);
    else
        (to_reals ? turn_normed_to_reals : turn_normed)(e, x, o);
}
