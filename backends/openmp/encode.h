/* The encoding itself, and its transpose, on rows of D features: from memory or from a row of reals in cache, to
 * either, between two tensors in memory with an activation. A row passes through registers once, two vectors at a time,
 * with its angles in L1. Memory binds, or the activation. */
#ifndef COPES_BACKENDS_OPENMP_ENCODE_H
#define COPES_BACKENDS_OPENMP_ENCODE_H

#include "backends/openmp/activation.h"
#include "backends/openmp/angles.h"
#include "backends/openmp/rows.h"

/* Rows of features: elements of storage, or reals that an activation left or awaits. */
typedef struct row_block {
    void *data;
    int64_t stride;
    int64_t ahead; /* storage: elements from here to the block that comes next */
} row_block;

enum { MOST_PARTS = 4 };

/* Where the parts of a row of reals stand that encoding takes apart: each begins on a whole pair. Rotation has the features
 * before those that turn, the two halves or the interleaved pairs, and the rest; cosine has all in one. */
typedef struct row_layout {
    int parts;
    int64_t begin[MOST_PARTS + 1]; /* features; the last is the end */
    int64_t at[MOST_PARTS + 1];    /* places; the last is the stride */
} row_layout;

static inline row_layout layout_of(const copes_lrpe_problem *problem)
{
    const int64_t first = problem->begin;
    row_layout layout = {.parts = 1, .begin = {0, problem->d}};
    if (problem->variant == COPES_LRPE_ROTATE && problem->pairing == COPES_LRPE_HALF)
        layout = (row_layout){.parts = 4, .begin = {0, first, first + problem->k, first + 2 * problem->k, problem->d}};
    else if (problem->variant == COPES_LRPE_ROTATE)
        layout = (row_layout){.parts = 3, .begin = {0, first, first + 2 * problem->k, problem->d}};
    for (int i = 0; i < layout.parts; i++)
        layout.at[i + 1] = layout.at[i] + whole_pairs(layout.begin[i + 1] - layout.begin[i]);
    return layout;
}

static inline int64_t layout_stride(const row_layout *layout)
{
    return layout->at[layout->parts];
}

/* The place of a feature in a row of reals. */
static inline int64_t layout_place(const row_layout *layout, int64_t feature)
{
    int part = 0;
    while (feature >= layout->begin[part + 1])
        part++;
    return layout->at[part] + split_place(feature - layout->begin[part]);
}

/* Is a row of reals the row itself, with nothing between its parts or behind them? */
static inline bool layout_plain(const row_layout *layout)
{
    return layout_stride(layout) == layout->begin[layout->parts];
}

static inline void read_row(const row_layout *layout, copes_act act, const storage *x, real *y, real fill,
                            int64_t ahead)
{
    if (layout_plain(layout)) {
        forward_reals(act, x, y, layout_stride(layout), ahead);
        return;
    }
    for (int i = 0; i < layout->parts; i++) {
        forward_reals(act, x + layout->begin[i], y + layout->at[i], layout->begin[i + 1] - layout->begin[i], ahead);
        pad_row(y + layout->at[i], layout->begin[i + 1] - layout->begin[i], fill);
    }
}

static inline void write_gradient(const row_layout *layout, copes_act act, const real *g, const storage *x, storage *o,
                                  bool stream, int64_t ahead)
{
    if (layout_plain(layout)) {
        backward_reals(act, g, x, o, layout_stride(layout), stream, ahead);
        return;
    }
    for (int i = 0; i < layout->parts; i++)
        backward_reals(act, g + layout->at[i], x == NULL ? NULL : x + layout->begin[i], o + layout->begin[i],
                       layout->begin[i + 1] - layout->begin[i], stream, ahead);
}

/* What to do with `count` rows of features. */
typedef struct encoding {
    copes_lrpe_variant variant;
    copes_lrpe_pairing pairing;
    int64_t count, d;
    const angles *angles;
    const row_layout *layout;
    bool stream; /* store past the caches */
} encoding;

/* What a walk over rows does, a constant wherever one is inlined. `act` comes before the encoding, and its gradient after the
 * transposed one. */
typedef struct walk_kind {
    bool transposed, from_reals, to_reals;
    copes_act act;
} walk_kind;

/* The parts of a row, of its result and, for an activation's gradient, of the activation's argument; and the row's angles. */
typedef struct encoded_row {
    const void *from[MOST_PARTS];
    void *to[MOST_PARTS];
    const storage *x[MOST_PARTS];
    const real *cosine, *sine;
    int64_t ahead, x_ahead;
} encoded_row;

static ALWAYS_INLINE vpair load_part(walk_kind kind, const encoded_row *row, int part, int64_t i, int64_t n)
{
    if (!kind.from_reals && n == PAIR)
        prefetch(row->from[part], i, row->ahead);
    const vpair v = load_from(kind.from_reals, row->from[part], i, n);
    if (kind.transposed)
        return v;
    return (vpair){act_forward(kind.act, v.low), act_forward(kind.act, v.high)};
}

/* Does an activation's gradient follow? */
static ALWAYS_INLINE bool takes_x(walk_kind kind)
{
    return kind.transposed && kind.act != COPES_ACT_NONE;
}

static ALWAYS_INLINE void store_part(walk_kind kind, const encoded_row *row, int part, int64_t i, int64_t n, vpair v,
                                     bool stream)
{
    if (takes_x(kind)) {
        if (n == PAIR)
            prefetch(row->x[part], i, row->x_ahead);
        const vpair x = load_from(false, row->x[part], i, n);
        v = (vpair){act_backward(kind.act, true, v.low, x.low), act_backward(kind.act, true, v.high, x.high)};
    }
    store_to(kind.to_reals, row->to[part], i, n, v, stream);
}

/* Is a sum that a walk makes multiplied by an activation's slope, at full width? */
static ALWAYS_INLINE bool sums_exactly(walk_kind kind)
{
    return FULL_WIDTH && (kind.to_reals || takes_x(kind));
}

/* a c + b s; `exactly`: without what the roundings of products lose. (Where the level fuses, that is one.) */
static ALWAYS_INLINE vreal sum_products(bool exactly, vreal a, vreal c, vreal b, vreal s)
{
#if FUSES
    (void)exactly;
    return vfma(a, c, b * s);
#else
    const vreal first = a * c, second = b * s, sum = first + second;
    if (!exactly)
        return sum;
    const vreal lost = vresidual(first, a, c) + vresidual(second, b, s);
    return sum - vselect(vabs(sum) <= vset(real_most), lost, vset(0));
#endif
}

static ALWAYS_INLINE vpair sum_pairs(bool exactly, vpair a, vpair c, vpair b, vpair s)
{
    return (vpair){sum_products(exactly, a.low, c.low, b.low, s.low),
                   sum_products(exactly, a.high, c.high, b.high, s.high)};
}

/* Pairs (a, b) of elements i .. i + n - 1 of two parts, turned by their angles, or their opposites. */
static ALWAYS_INLINE void turn_half(walk_kind kind, const encoded_row *row, int64_t i, int64_t n, bool stream)
{
    const real sign = kind.transposed ? -1 : 1;
    const vpair a = load_part(kind, row, 1, i, n), b = load_part(kind, row, 2, i, n);
    const vpair c = load_real_pair(row->cosine + i), sine = load_real_pair(row->sine + i);
    const vpair s = {sign * sine.low, sign * sine.high}, minus = {-s.low, -s.high};
    store_part(kind, row, 1, i, n, sum_pairs(sums_exactly(kind), a, c, b, minus), stream);
    store_part(kind, row, 2, i, n, sum_pairs(sums_exactly(kind), b, c, a, s), stream);
}

/* Neighbouring pairs (a, b) in elements i .. i + n - 1, likewise. */
static ALWAYS_INLINE void turn_interleaved(walk_kind kind, const encoded_row *row, int64_t i, int64_t n, bool stream)
{
    const real sign = kind.transposed ? -1 : 1;
    const vpair v = evens_and_odds(load_part(kind, row, 1, i, n));
    const vreal c = load_real(row->cosine + i / 2), s = sign * load_real(row->sine + i / 2);
    const vpair turned = {sum_products(sums_exactly(kind), v.low, c, v.high, -s),
                          sum_products(sums_exactly(kind), v.high, c, v.low, s)};
    store_part(kind, row, 1, i, n, split_of_evens_and_odds(turned), stream);
}

/* x to x cos and x sin. */
static ALWAYS_INLINE void expand_cosine(walk_kind kind, const encoded_row *row, int64_t i, int64_t n, bool stream)
{
    const vpair v = load_part(kind, row, 0, i, n);
    const vpair c = load_real_pair(row->cosine + i), s = load_real_pair(row->sine + i);
    store_part(kind, row, 0, i, n, (vpair){v.low * c.low, v.high * c.high}, stream);
    store_part(kind, row, 1, i, n, (vpair){v.low * s.low, v.high * s.high}, stream);
}

/* Its transpose: u and v to u cos + v sin. */
static ALWAYS_INLINE void contract_cosine(walk_kind kind, const encoded_row *row, int64_t i, int64_t n, bool stream)
{
    const vpair u = load_part(kind, row, 0, i, n), v = load_part(kind, row, 1, i, n);
    const vpair c = load_real_pair(row->cosine + i), s = load_real_pair(row->sine + i);
    store_part(kind, row, 0, i, n, sum_pairs(sums_exactly(kind), u, c, v, s), stream);
}

typedef enum encoding_step { TURN_HALF, TURN_INTERLEAVED, EXPAND_COSINE, CONTRACT_COSINE, COPY_REST } encoding_step;

static ALWAYS_INLINE void step_part(encoding_step step, int rest, walk_kind kind, const encoded_row *row, int64_t i,
                                    int64_t n, bool stream)
{
    switch (step) {
    case TURN_HALF: turn_half(kind, row, i, n, stream); break;
    case TURN_INTERLEAVED: turn_interleaved(kind, row, i, n, stream); break;
    case EXPAND_COSINE: expand_cosine(kind, row, i, n, stream); break;
    case CONTRACT_COSINE: contract_cosine(kind, row, i, n, stream); break;
    case COPY_REST: store_part(kind, row, rest, i, n, load_part(kind, row, rest, i, n), stream); break;
    }
}

/* A step on `count` elements of its parts. */
static ALWAYS_INLINE void walk(encoding_step step, int rest, walk_kind kind, const encoded_row *row, int64_t count,
                               bool stream)
{
    int64_t i = 0;
    for (; i + PAIR <= count; i += PAIR)
        step_part(step, rest, kind, row, i, PAIR, stream);
    if (i < count)
        step_part(step, rest, kind, row, i, count - i, stream);
}

/* The first row of a block. */
static ALWAYS_INLINE encoded_row first_row(const encoding *e, walk_kind kind, row_block from, row_block x, row_block to)
{
    encoded_row row = {.cosine = e->angles->cosine, .sine = e->angles->sine, .ahead = from.ahead, .x_ahead = x.ahead};
    for (int part = 0; part < MOST_PARTS; part++) {
        const int64_t feature = e->variant == COPES_LRPE_COSINE ? part * e->d : e->layout->begin[part];
        row.from[part] = kind.from_reals ? (const void *)((const real *)from.data + e->layout->at[part])
                                         : (const void *)((const storage *)from.data + feature);
        row.to[part] =
            kind.to_reals ? (void *)((real *)to.data + e->layout->at[part]) : (void *)((storage *)to.data + feature);
        row.x[part] = takes_x(kind) ? (const storage *)x.data + feature : NULL;
    }
    return row;
}

static ALWAYS_INLINE void next_row(encoded_row *row, const encoding *e, walk_kind kind, row_block from, row_block x,
                                   row_block to)
{
    const int64_t turn = e->angles->rows == 1 ? 0 : e->angles->stride;
    row->cosine += turn;
    row->sine += turn;
    for (int part = 0; part < MOST_PARTS; part++) {
        row->from[part] = kind.from_reals ? (const void *)((const real *)row->from[part] + from.stride)
                                          : (const void *)((const storage *)row->from[part] + from.stride);
        row->to[part] = kind.to_reals ? (void *)((real *)row->to[part] + to.stride)
                                      : (void *)((storage *)row->to[part] + to.stride);
        if (takes_x(kind))
            row->x[part] += x.stride;
    }
}

static ALWAYS_INLINE void encode_row(const encoding *e, walk_kind kind, const encoded_row *row)
{
    const int64_t turned = 2 * e->angles->count, before = e->layout->begin[1], rest = e->d - before - turned;
    if (e->variant == COPES_LRPE_COSINE) {
        walk(kind.transposed ? CONTRACT_COSINE : EXPAND_COSINE, 0, kind, row, e->d, e->stream);
        return;
    }
    walk(COPY_REST, 0, kind, row, before, e->stream);
    if (e->pairing == COPES_LRPE_HALF)
        walk(TURN_HALF, 0, kind, row, turned / 2, e->stream);
    else
        walk(TURN_INTERLEAVED, 0, kind, row, turned, e->stream);
    walk(COPY_REST, e->layout->parts - 1, kind, row, rest, e->stream);
}

/* All rows of a block, by variant and pairing. */
static ALWAYS_INLINE void encode_any(const encoding *e, walk_kind kind, row_block from, row_block x, row_block to)
{
    encoded_row row = first_row(e, kind, from, x, to);
    for (int64_t i = 0; i < e->count; i++) {
        if (i > 0) /* an only row may have any stride */
            next_row(&row, e, kind, from, x, to);
        encode_row(e, kind, &row);
    }
}

/* From storage to storage, with an activation or its gradient in the same pass: one function for each. Softmax is none here. */
#define ENCODE_WITH(name, act)                                                                                         \
    static NOINLINE void encode_##name(const encoding *e, row_block x, row_block o)                                    \
    {                                                                                                                  \
        encode_any(e, (walk_kind){false, false, false, act}, x, (row_block){0}, o);                                    \
    }                                                                                                                  \
    static NOINLINE void decode_##name(const encoding *e, row_block grad_o, row_block x, row_block grad_x)             \
    {                                                                                                                  \
        encode_any(e, (walk_kind){true, false, false, act}, grad_o, x, grad_x);                                        \
    }
ENCODE_WITH(none, COPES_ACT_NONE)
ENCODE_WITH(relu, COPES_ACT_RELU)
ENCODE_WITH(sigmoid, COPES_ACT_SIGMOID)
ENCODE_WITH(silu, COPES_ACT_SILU)
#undef ENCODE_WITH

static inline void encode_storage(copes_act act, const encoding *e, row_block x, row_block o)
{
    switch (act) {
    case COPES_ACT_RELU: encode_relu(e, x, o); break;
    case COPES_ACT_SIGMOID: encode_sigmoid(e, x, o); break;
    case COPES_ACT_SILU: encode_silu(e, x, o); break;
    default: encode_none(e, x, o);
    }
}

static inline void decode_storage(copes_act act, const encoding *e, row_block grad_o, row_block x, row_block grad_x)
{
    switch (act) {
    case COPES_ACT_RELU: decode_relu(e, grad_o, x, grad_x); break;
    case COPES_ACT_SIGMOID: decode_sigmoid(e, grad_o, x, grad_x); break;
    case COPES_ACT_SILU: decode_silu(e, grad_o, x, grad_x); break;
    default: decode_none(e, grad_o, x, grad_x);
    }
}

/* Between storage and the reals of a softmax or a norm. */
static NOINLINE void encode_reals(const encoding *e, row_block y, row_block o)
{
    encode_any(e, (walk_kind){false, true, false, COPES_ACT_NONE}, y, (row_block){0}, o);
}

/* In place, for what is to be written in more than one type. */
static NOINLINE void turn_reals(const encoding *e, row_block y)
{
    encode_any(e, (walk_kind){false, true, true, COPES_ACT_NONE}, y, (row_block){0}, y);
}

static NOINLINE void decode_reals(const encoding *e, row_block grad_o, row_block g)
{
    encode_any(e, (walk_kind){true, false, true, COPES_ACT_NONE}, grad_o, (row_block){0}, g);
}

#endif
