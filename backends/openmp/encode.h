/* The encoding itself, and its transpose, on rows of D features: from memory or from a row of reals in cache, to
 * either. What bounds it is memory: a row passes through registers once, two vectors at a time, with its angles in
 * L1. */
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

/* The parts of a row and of its result, and its angles. */
typedef struct encoded_row {
    const void *from[MOST_PARTS];
    void *to[MOST_PARTS];
    const real *cosine, *sine;
    int64_t ahead;
} encoded_row;

static ALWAYS_INLINE vpair load_part(bool reals, const encoded_row *row, int part, int64_t i, int64_t n)
{
    if (!reals && n == PAIR)
        prefetch(row->from[part], i, row->ahead);
    return load_from(reals, row->from[part], i, n);
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

/* Pairs (a, b) of elements i .. i + n - 1 of two parts, turned by `sign` times their angles. */
static ALWAYS_INLINE void turn_half(bool from_reals, bool to_reals, const encoded_row *row, real sign, int64_t i,
                                    int64_t n, bool stream)
{
    const vpair a = load_part(from_reals, row, 1, i, n), b = load_part(from_reals, row, 2, i, n);
    const vpair c = load_real_pair(row->cosine + i), sine = load_real_pair(row->sine + i);
    const vpair s = {sign * sine.low, sign * sine.high}, minus = {-s.low, -s.high};
    const bool exactly = FULL_WIDTH && to_reals; /* which an activation's slope multiplies */
    store_to(to_reals, row->to[1], i, n, sum_pairs(exactly, a, c, b, minus), stream);
    store_to(to_reals, row->to[2], i, n, sum_pairs(exactly, b, c, a, s), stream);
}

/* Neighbouring pairs (a, b) in elements i .. i + n - 1, likewise. */
static ALWAYS_INLINE void turn_interleaved(bool from_reals, bool to_reals, const encoded_row *row, real sign, int64_t i,
                                           int64_t n, bool stream)
{
    const vpair v = evens_and_odds(load_part(from_reals, row, 1, i, n));
    const vreal c = load_real(row->cosine + i / 2), s = sign * load_real(row->sine + i / 2);
    const bool exactly = FULL_WIDTH && to_reals;
    const vpair turned = {sum_products(exactly, v.low, c, v.high, -s), sum_products(exactly, v.high, c, v.low, s)};
    store_to(to_reals, row->to[1], i, n, split_of_evens_and_odds(turned), stream);
}

/* x to x cos and x sin. */
static ALWAYS_INLINE void expand_cosine(bool from_reals, bool to_reals, const encoded_row *row, int64_t i, int64_t n,
                                        bool stream)
{
    const vpair v = load_part(from_reals, row, 0, i, n);
    const vpair c = load_real_pair(row->cosine + i), s = load_real_pair(row->sine + i);
    store_to(to_reals, row->to[0], i, n, (vpair){v.low * c.low, v.high * c.high}, stream);
    store_to(to_reals, row->to[1], i, n, (vpair){v.low * s.low, v.high * s.high}, stream);
}

/* Its transpose: u and v to u cos + v sin. */
static ALWAYS_INLINE void contract_cosine(bool from_reals, bool to_reals, const encoded_row *row, int64_t i, int64_t n,
                                          bool stream)
{
    const vpair u = load_part(from_reals, row, 0, i, n), v = load_part(from_reals, row, 1, i, n);
    const vpair c = load_real_pair(row->cosine + i), s = load_real_pair(row->sine + i);
    store_to(to_reals, row->to[0], i, n, sum_pairs(FULL_WIDTH && to_reals, u, c, v, s), stream);
}

typedef enum encoding_step { TURN_HALF, TURN_INTERLEAVED, EXPAND_COSINE, CONTRACT_COSINE, COPY_REST } encoding_step;

static ALWAYS_INLINE void step_part(encoding_step step, int rest, bool from_reals, bool to_reals,
                                    const encoded_row *row, real sign, int64_t i, int64_t n, bool stream)
{
    switch (step) {
    case TURN_HALF: turn_half(from_reals, to_reals, row, sign, i, n, stream); break;
    case TURN_INTERLEAVED: turn_interleaved(from_reals, to_reals, row, sign, i, n, stream); break;
    case EXPAND_COSINE: expand_cosine(from_reals, to_reals, row, i, n, stream); break;
    case CONTRACT_COSINE: contract_cosine(from_reals, to_reals, row, i, n, stream); break;
    case COPY_REST: store_to(to_reals, row->to[rest], i, n, load_part(from_reals, row, rest, i, n), stream); break;
    }
}

/* A step on `count` elements of its parts. */
static ALWAYS_INLINE void walk(encoding_step step, int rest, bool from_reals, bool to_reals, const encoded_row *row,
                               real sign, int64_t count, bool stream)
{
    int64_t i = 0;
    for (; i + PAIR <= count; i += PAIR)
        step_part(step, rest, from_reals, to_reals, row, sign, i, PAIR, stream);
    if (i < count)
        step_part(step, rest, from_reals, to_reals, row, sign, i, count - i, stream);
}

static ALWAYS_INLINE encoded_row row_of(const encoding *e, int64_t i, bool from_reals, row_block from, bool to_reals,
                                        row_block to)
{
    const row_layout *layout = e->layout;
    const int64_t at = e->angles->rows == 1 ? 0 : i * e->angles->stride;
    encoded_row row = {.cosine = e->angles->cosine + at, .sine = e->angles->sine + at, .ahead = from.ahead};
    for (int part = 0; part < MOST_PARTS; part++) {
        const int64_t feature = e->variant == COPES_LRPE_COSINE ? part * e->d : layout->begin[part];
        row.from[part] = from_reals ? (const void *)((const real *)from.data + i * from.stride + layout->at[part])
                                    : (const void *)((const storage *)from.data + i * from.stride + feature);
        row.to[part] = to_reals ? (void *)((real *)to.data + i * to.stride + layout->at[part])
                                : (void *)((storage *)to.data + i * to.stride + feature);
    }
    return row;
}

/* All rows of a block, transposed or not, by variant and pairing. */
static ALWAYS_INLINE void encode_any(const encoding *e, bool transposed, bool from_reals, row_block from, bool to_reals,
                                     row_block to)
{
    const real sign = transposed ? -1 : 1;
    const int64_t turned = 2 * e->angles->count, before = e->layout->begin[1], rest = e->d - before - turned;
    for (int64_t i = 0; i < e->count; i++) {
        const encoded_row row = row_of(e, i, from_reals, from, to_reals, to);
        if (e->variant == COPES_LRPE_COSINE) {
            walk(transposed ? CONTRACT_COSINE : EXPAND_COSINE, 0, from_reals, to_reals, &row, 1, e->d, e->stream);
            continue;
        }
        walk(COPY_REST, 0, from_reals, to_reals, &row, sign, before, e->stream);
        if (e->pairing == COPES_LRPE_HALF)
            walk(TURN_HALF, 0, from_reals, to_reals, &row, sign, turned / 2, e->stream);
        else
            walk(TURN_INTERLEAVED, 0, from_reals, to_reals, &row, sign, turned, e->stream);
        walk(COPY_REST, e->layout->parts - 1, from_reals, to_reals, &row, sign, rest, e->stream);
    }
}

/* The four ways that kernels need, each compiled once. */
static NOINLINE void encode_storage(const encoding *e, row_block x, row_block o)
{
    encode_any(e, false, false, x, false, o);
}

static NOINLINE void encode_reals(const encoding *e, row_block y, row_block o)
{
    encode_any(e, false, true, y, false, o);
}

static NOINLINE void decode_storage(const encoding *e, row_block grad_o, row_block grad_x)
{
    encode_any(e, true, false, grad_o, false, grad_x);
}

static NOINLINE void decode_reals(const encoding *e, row_block grad_o, row_block g)
{
    encode_any(e, true, false, grad_o, true, g);
}

#endif
