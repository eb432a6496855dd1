/* Softmax over columns of a slab that is read block by block: running statistics of every column, and what they make of a row. Rows
 * are whole pairs, of storage or of reals, whose order both have (load_split). */
#ifndef COPES_BACKENDS_OPENMP_COLUMNS_H
#define COPES_BACKENDS_OPENMP_COLUMNS_H

#include "backends/openmp/rows.h"
#include "backends/openmp/softmax.h"

/* Running statistics of columns, `stride` of them (whole pairs) to an array: the largest value, the sum of
 * e^(x - largest) and, for a gradient, the sum of e^(x - largest) g. */
typedef struct columns {
    int64_t stride;
    term_use use; /* of the sums */
    bool fixed;   /* the maximum is a log sum exp that the caller gave, and the sum is 1 */
    real *most, *sum, *carry, *dot, *dot_carry; /* dot: absent in forward */
} columns;

/* Rows of a block, of storage or of reals, `stride` elements apart. `ahead`: storage, to the block that comes next. */
typedef struct column_rows {
    const void *data;
    int64_t stride, ahead;
} column_rows;

static inline int64_t columns_bytes(int64_t stride)
{
    return 5 * stride * (int64_t)sizeof(real);
}

static inline columns columns_open(int64_t stride, term_use use, void *memory)
{
    real *base = memory, *dot = use == FOR_GRADIENT ? base + 3 * stride : NULL;
    const columns c = {stride, use, false, base, base + stride, base + 2 * stride, dot, base + 4 * stride};
    for (int64_t i = 0; i < 5 * stride; i++)
        base[i] = i < stride ? -(real)INFINITY : 0;
    return c;
}

/* `reals` is a constant wherever these are inlined. */
static ALWAYS_INLINE vpair column_pair(bool reals, column_rows rows, int64_t row, int64_t i)
{
    const int64_t at = row * rows.stride * (int64_t)(reals ? sizeof(real) : sizeof(storage));
    return load_from(reals, (const char *)rows.data + at, i, PAIR);
}

static ALWAYS_INLINE void prefetch_rows(bool reals, column_rows rows, int64_t row, int64_t i)
{
    if (!reals)
        prefetch((const storage *)rows.data + row * rows.stride, i, rows.ahead);
}

/* A term of a column: e^(x - shift). */
static ALWAYS_INLINE vreal column_term(const columns *c, term_use use, vreal x, vreal shift)
{
    if (!c->fixed)
        return vsoftmax_term(use, x, shift);
    const vreal below = x - shift, e = vexp(below).value; /* a given log sum exp may be too small */
    return use == FOR_GRADIENT ? vexp_restored(e, x, shift, below) : e;
}

static ALWAYS_INLINE vpair column_terms(const columns *c, term_use use, vpair x, vpair shift)
{
    return (vpair){column_term(c, use, x.low, shift.low), column_term(c, use, x.high, shift.high)};
}

/* A sum, and what it has lost (Kahan). */
typedef struct kahan_sum {
    vpair sum, carry;
} kahan_sum;

static ALWAYS_INLINE kahan_sum load_kahan_sum(const real *sum, const real *carry, vpair factor)
{
    const vpair s = load_real_pair(sum), c = load_real_pair(carry);
    return (kahan_sum){{s.low * factor.low, s.high * factor.high}, {c.low * factor.low, c.high * factor.high}};
}

static ALWAYS_INLINE void add_to_column(kahan_sum *to, vpair part)
{
    vsum_add(&to->sum.low, &to->carry.low, part.low);
    vsum_add(&to->sum.high, &to->carry.high, part.high);
}

static ALWAYS_INLINE void store_kahan_sum(const kahan_sum *from, real *sum, real *carry)
{
    store_real_pair(sum, from->sum);
    store_real_pair(carry, from->carry);
}

static ALWAYS_INLINE vpair columns_most(bool reals, column_rows x, int64_t i, int64_t count, vpair most)
{
    for (int64_t row = 0; row < count; row++) {
        prefetch_rows(reals, x, row, i);
        const vpair at = column_pair(reals, x, row, i);
        most = (vpair){vmax(at.low, most.low), vmax(at.high, most.high)};
    }
    return most;
}

/* Adds a pair of columns of rows begin .. end - 1: plain sums of their exponentials, and of those times g. */
static ALWAYS_INLINE void columns_part(const columns *c, term_use use, bool reals, column_rows x, const column_rows *g,
                                       int64_t i, int64_t begin, int64_t end, vpair shift, vpair *sum, vpair *dot)
{
    *sum = *dot = (vpair){vset(0), vset(0)};
    for (int64_t row = begin; row < end; row++) {
        const vpair e = column_terms(c, use, column_pair(reals, x, row, i), shift);
        sum->low += e.low;
        sum->high += e.high;
        if (g == NULL)
            continue;
        const vpair with = column_pair(true, *g, row, i);
        dot->low = vfma(e.low, with.low, dot->low);
        dot->high = vfma(e.high, with.high, dot->high);
    }
}

/* A block's terms beside the maximum of the blocks before it, which is as good as its own where that is hardly larger. Then one pass
 * over the block is enough, and the maximum stays what it is. False where it is not: nothing is added then. */
static ALWAYS_INLINE bool columns_add_beside(const columns *c, term_use use, bool reals, column_rows x, int64_t count,
                                             int64_t i)
{
    enum { HARDLY = 8 };
    const vpair one = {vset(1), vset(1)}, shift = load_real_pair(c->most + i);
    vpair most = shift, part = {vset(0), vset(0)};
    if (any_below(vmin(shift.low, shift.high), -real_most))
        return false;
    for (int64_t row = 0; row < count; row++) {
        prefetch_rows(reals, x, row, i);
        const vpair at = column_pair(reals, x, row, i), e = vsoftmax_terms(use, at, shift);
        most = (vpair){vmax(at.low, most.low), vmax(at.high, most.high)};
        part = (vpair){part.low + e.low, part.high + e.high};
    }
    if (any_lane((most.low > shift.low + HARDLY) | (most.high > shift.high + HARDLY)))
        return false;
    kahan_sum sum = load_kahan_sum(c->sum + i, c->carry + i, one);
    add_to_column(&sum, part);
    store_kahan_sum(&sum, c->sum + i, c->carry + i);
    return true;
}

static ALWAYS_INLINE void columns_add_pair(const columns *c, term_use use, bool reals, column_rows x,
                                           const column_rows *g, int64_t count, int64_t i)
{
    if (!FULL_WIDTH && g == NULL && columns_add_beside(c, use, reals, x, count, i))
        return;
    const int64_t plain = g != NULL ? PLAIN_TERMS : count;
    const vpair before = load_real_pair(c->most + i),
                most = c->fixed ? before : columns_most(reals, x, i, count, before);
    vpair shift = most, shrink = {vset(1), vset(1)};
    if (!c->fixed) {
        shift = (vpair){vfinite_max(most.low), vfinite_max(most.high)};
        shrink = (vpair){vexp_term(before.low - shift.low), vexp_term(before.high - shift.high)};
    }
    kahan_sum sum = load_kahan_sum(c->sum + i, c->carry + i, shrink), dot = {0};
    if (g != NULL)
        dot = load_kahan_sum(c->dot + i, c->dot_carry + i, shrink);
    for (int64_t row = 0; row < count; row += plain) {
        vpair part, product;
        columns_part(c, use, reals, x, g, i, row, row + plain < count ? row + plain : count, shift, &part, &product);
        add_to_column(&sum, part);
        if (g != NULL)
            add_to_column(&dot, product);
    }
    if (!c->fixed) {
        store_real_pair(c->most + i, most);
        store_kahan_sum(&sum, c->sum + i, c->carry + i);
    }
    if (g != NULL)
        store_kahan_sum(&dot, c->dot + i, c->dot_carry + i);
}

static ALWAYS_INLINE void columns_add_terms(const columns *c, bool reals, column_rows x, int64_t count, int64_t i)
{
    if (c->use == FOR_LSE || FULL_WIDTH) /* which makes no difference there */
        columns_add_pair(c, FOR_LSE, reals, x, NULL, count, i);
    else
        columns_add_pair(c, FOR_STORAGE, reals, x, NULL, count, i);
}

/* Takes a block of `count` rows of x, and of reals g for a gradient. */
static inline void columns_add(const columns *c, bool reals, column_rows x, const column_rows *g, int64_t count)
{
    for (int64_t i = 0; i < c->stride; i += PAIR) {
        if (reals && g != NULL)
            columns_add_pair(c, FOR_GRADIENT, true, x, g, count, i);
        else if (g != NULL)
            columns_add_pair(c, FOR_GRADIENT, false, x, g, count, i);
        else if (reals)
            columns_add_terms(c, true, x, count, i);
        else
            columns_add_terms(c, false, x, count, i);
    }
}

static ALWAYS_INLINE void columns_add_product_pair(const columns *c, bool reals, column_rows y, column_rows g,
                                                   int64_t count, int64_t i)
{
    const vpair one = {vset(1), vset(1)};
    vpair part = {vset(0), vset(0)};
    kahan_sum dot = load_kahan_sum(c->dot + i, c->dot_carry + i, one);
    for (int64_t row = 0; row < count; row++) {
        prefetch_rows(reals, y, row, i);
        prefetch_rows(reals, g, row, i);
        const vpair a = column_pair(reals, y, row, i), b = column_pair(reals, g, row, i);
        part = (vpair){vfma(a.low, b.low, part.low), vfma(a.high, b.high, part.high)};
    }
    add_to_column(&dot, part);
    store_kahan_sum(&dot, c->dot + i, c->dot_carry + i);
}

/* The same for a softmax y that is already known: only its products with g count. */
static inline void columns_add_product(const columns *c, bool reals, column_rows y, column_rows g, int64_t count)
{
    for (int64_t i = 0; i < c->stride; i += PAIR)
        if (reals)
            columns_add_product_pair(c, true, y, g, count, i);
        else
            columns_add_product_pair(c, false, y, g, count, i);
}

/* After the last block: `most` becomes what is subtracted, `sum` a factor, and `dot` the mean of g under the
 * softmax. */
static inline void columns_finish(const columns *c)
{
    for (int64_t i = 0; i < c->stride; i += LANES) {
        const vreal factor = 1 / load_real(c->sum + i), most = load_real(c->most + i);
        store_real(c->sum + i, factor);
        store_real(c->most + i, c->fixed ? most : vfinite_max(most));
        if (c->dot != NULL)
            store_real(c->dot + i, load_real(c->dot + i) * factor);
    }
}

/* The log sum exp of a column, before columns_finish. */
static inline real columns_lse(const columns *c, int64_t place)
{
    return c->most[place] + (real)log((double)c->sum[place]);
}

/* A log sum exp that the caller gave stands for the maximum, and 1 for the sum. */
static inline void columns_fix(columns *c, int64_t place, real lse)
{
    c->most[place] = lse;
    c->sum[place] = 1;
    c->fixed = true;
}

/* Single numbers of tensors that may lie anywhere. */
static inline real take_real(const real *from)
{
    real value;
    memcpy(&value, (const void *)from, sizeof value);
    return value;
}

static inline void give_real(real *to, real value)
{
    memcpy((void *)to, &value, sizeof value);
}

/* `ahead`, `o_ahead`: of storage, to the row that is read or written some rows later. */
static ALWAYS_INLINE void columns_apply_as(const columns *c, bool from_reals, const void *x, int64_t ahead,
                                           bool to_reals, void *o, int64_t o_ahead, bool stream)
{
    const term_use use = c->use == FOR_GRADIENT ? FOR_GRADIENT : FOR_STORAGE;
    for (int64_t i = 0; i < c->stride; i += PAIR) {
        if (!from_reals)
            prefetch(x, i, ahead);
        const vpair y = column_terms(c, use, load_from(from_reals, x, i, PAIR), load_real_pair(c->most + i));
        const vpair factor = load_real_pair(c->sum + i);
        if (!to_reals)
            prefetch_for_store(o, i, o_ahead, stream);
        store_to(to_reals, o, i, PAIR, (vpair){y.low * factor.low, y.high * factor.high}, stream);
    }
}

/* A row of the columns turned into its softmax: of reals, in place or from storage, or of storage. */
static NOINLINE void columns_apply(const columns *c, bool reals, const void *x, real *y, int64_t ahead)
{
    if (reals)
        columns_apply_as(c, true, x, 0, true, y, 0, false);
    else
        columns_apply_as(c, false, x, ahead, true, y, 0, false);
}

static NOINLINE void columns_apply_storage(const columns *c, const storage *x, int64_t ahead, storage *o,
                                           int64_t o_ahead, bool stream)
{
    columns_apply_as(c, false, x, ahead, false, o, o_ahead, stream);
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
