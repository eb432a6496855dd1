/* Encoding blocks of rows of features, in memory or as reals in cache. */
#ifndef COPES_BACKENDS_OPENMP_ENCODE_H
#define COPES_BACKENDS_OPENMP_ENCODE_H

#include "backends/openmp/activation.h"
#include "backends/openmp/angles.h"
#include "backends/openmp/rows.h"

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
        TEMPLATE(forward_reals)(act, x, y, layout_stride(layout), ahead);
        return;
    }
    for (int i = 0; i < layout->parts; i++) {
        TEMPLATE(forward_reals)(act, x + layout->begin[i], y + layout->at[i], layout->begin[i + 1] - layout->begin[i],
                                ahead);
        pad_row(y + layout->at[i], layout->begin[i + 1] - layout->begin[i], fill);
    }
}

static inline void write_gradient(const row_layout *layout, copes_act act, const real *g, const storage *x, storage *o,
                                  bool stream, int64_t ahead)
{
    if (layout_plain(layout)) {
        TEMPLATE(backward_reals)(act, g, x, o, layout_stride(layout), stream, ahead);
        return;
    }
    for (int i = 0; i < layout->parts; i++)
        TEMPLATE(backward_reals)(act, g + layout->at[i], x == NULL ? NULL : x + layout->begin[i], o + layout->begin[i],
                                 layout->begin[i + 1] - layout->begin[i], stream, ahead);
}

/* A norm of rows: what multiplies a row, and what multiplies its features, in the order of a row_layout. */
typedef struct row_norm {
    const real *inverse;    /* 1 over each row's root mean square */
    int64_t inverse_stride; /* 0 where one is of all rows */
    const real *weight;
    int64_t weight_stride;
    bool round_between; /* to storage and back, before the rows are turned */
} row_norm;

/* What to do with `count` rows of features. */
typedef struct encoding {
    copes_lrpe_variant variant;
    copes_lrpe_pairing pairing;
    int64_t count, d;
    const angles *angles;
    phase_sums sums; /* what a walk makes each row of `angles` from, as it comes to the row; none: they are made */
    const row_layout *layout;
    bool stream;          /* store past the caches */
    const row_norm *norm; /* turn: NULL for none */
} encoding;

/* encode_tmpl.c, for blocks of rows. From storage to storage, with an activation or its gradient in the same pass; softmax is
 * none here. */
void TEMPLATE(encode)(copes_act act, const encoding *e, row_block x, row_block o);
void TEMPLATE(decode)(copes_act act, const encoding *e, row_block grad_o, row_block x, row_block grad_x);

/* From the reals of a softmax, and the transpose to those of its gradient or a norm's. */
void TEMPLATE(encode_reals)(const encoding *e, row_block y, row_block o);
void TEMPLATE(decode_reals)(const encoding *e, row_block grad_o, row_block g);

/* Rows of storage are normed where the encoding has a norm, and turned: to storage, or to reals on their way to another type. */
void TEMPLATE(turn)(const encoding *e, bool to_reals, row_block x, row_block o);

#endif
