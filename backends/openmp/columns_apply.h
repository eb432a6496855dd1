/* Softmax over columns, the second pass: what the statistics of columns.h make of a row. */
#ifndef COPES_BACKENDS_OPENMP_COLUMNS_APPLY_H
#define COPES_BACKENDS_OPENMP_COLUMNS_APPLY_H

#include "backends/openmp/columns.h"

/* e^(x - most) times the factor, of a pair of columns. */
static ALWAYS_INLINE vpair column_softmax(columns c, term_use use, bool given, vpair x, int64_t i)
{
    return multiply_pairs(vsoftmax_terms(use, given, x, load_real_pair(c.most + i)), load_real_pair(c.sum + i));
}

/* A row to apply the columns to, and where to: of storage, with the way to the row that is read or written some rows later, or of
 * reals. */
typedef struct column_row {
    bool reals;
    void *data;
    int64_t ahead;
} column_row;

static ALWAYS_INLINE column_row row_to_read(bool reals, const void *data, int64_t ahead)
{
    return (column_row){reals, (void *)(uintptr_t)data, ahead};
}

static ALWAYS_INLINE vpair load_column_row(column_row row, int64_t i)
{
    if (!row.reals)
        prefetch(row.data, i, row.ahead);
    return load_from(row.reals, row.data, i, PAIR);
}

static ALWAYS_INLINE void store_column_row(column_row row, int64_t i, vpair v, bool stream)
{
    if (!row.reals)
        prefetch_for_store(row.data, i, row.ahead, stream);
    store_to(row.reals, row.data, i, PAIR, v, stream);
}

/* The row's softmax or, with reals g, its gradient. */
static ALWAYS_INLINE void columns_apply_of(columns c, term_use use, bool given, column_row x, const real *g,
                                           column_row o, bool stream)
{
    for (int64_t i = 0; i < c.stride; i += PAIR) {
        const vpair y = column_softmax(c, use, given, load_column_row(x, i), i);
        if (g == NULL) {
            store_column_row(o, i, y, stream);
            continue;
        }
        const vpair with = load_real_pair(g + i), dot = load_real_pair(c.dot + i);
        store_column_row(o, i, (vpair){y.low * (with.low - dot.low), y.high * (with.high - dot.high)}, stream);
    }
}

static ALWAYS_INLINE void columns_apply_any(const columns *c, column_row x, const real *g, column_row o, bool stream)
{
    const bool fine = c->use == FOR_GRADIENT;
    if (fine && c->given)
        columns_apply_of(*c, FOR_GRADIENT, true, x, g, o, stream);
    else if (fine)
        columns_apply_of(*c, FOR_GRADIENT, false, x, g, o, stream);
    else if (c->given)
        columns_apply_of(*c, FOR_STORAGE, true, x, g, o, stream);
    else
        columns_apply_of(*c, FOR_STORAGE, false, x, g, o, stream);
}

/* A row of the columns turned into its softmax: of reals, in place or from storage, or of storage. */
static NOINLINE void columns_apply(const columns *c, bool reals, const void *x, real *y, int64_t ahead)
{
    if (reals)
        columns_apply_any(c, row_to_read(true, x, 0), NULL, (column_row){true, y, 0}, false);
    else
        columns_apply_any(c, row_to_read(false, x, ahead), NULL, (column_row){true, y, 0}, false);
}

static NOINLINE void columns_apply_storage(const columns *c, const storage *x, int64_t ahead, storage *o,
                                           int64_t o_ahead, bool stream)
{
    columns_apply_any(c, row_to_read(false, x, ahead), NULL, (column_row){false, o, o_ahead}, stream);
}

/* A row of x and of reals g to the gradient, of storage. */
static NOINLINE void columns_slope(const columns *c, const storage *x, int64_t ahead, const real *g, storage *o,
                                   int64_t o_ahead, bool stream)
{
    columns_apply_any(c, row_to_read(false, x, ahead), g, (column_row){false, o, o_ahead}, stream);
}

static ALWAYS_INLINE void columns_gradient_as(const columns *c, bool reals, const void *y, const void *g, int64_t ahead,
                                              void *o, int64_t o_ahead, bool stream)
{
    for (int64_t i = 0; i < c->stride; i += PAIR) {
        if (!reals) {
            prefetch(y, i, ahead);
            prefetch(g, i, ahead);
            prefetch_for_store(o, i, o_ahead, stream);
        }
        const vpair a = load_from(reals, y, i, PAIR), b = load_from(reals, g, i, PAIR);
        const vpair dot = load_real_pair(c->dot + i);
        store_to(reals, o, i, PAIR, (vpair){a.low * (b.low - dot.low), a.high * (b.high - dot.high)}, stream);
    }
}

/* A row of g turned into the gradient, for the softmax y of its row. */
static NOINLINE void columns_gradient(const columns *c, const real *y, real *g)
{
    columns_gradient_as(c, true, y, g, 0, g, 0, false);
}

static NOINLINE void columns_gradient_storage(const columns *c, const storage *y, const storage *g, int64_t ahead,
                                              storage *o, int64_t o_ahead, bool stream)
{
    columns_gradient_as(c, false, y, g, ahead, o, o_ahead, stream);
}

#endif
