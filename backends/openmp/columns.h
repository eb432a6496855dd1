/* Softmax over columns of a slab that is read block by block, the first pass: running statistics of every column. Rows are whole pairs,
 * of storage or of reals, whose order both have (load_split). columns_apply.h has the second pass. */
#ifndef COPES_BACKENDS_OPENMP_COLUMNS_H
#define COPES_BACKENDS_OPENMP_COLUMNS_H

#include "backends/openmp/rows.h"
#include "backends/openmp/softmax.h"

/* Running statistics of columns, `stride` of them (whole pairs) to an array: the largest value, the sum of
 * e^(x - largest) and, for a gradient, the sum of e^(x - largest) g. */
typedef struct columns {
    int64_t stride;
    term_use use; /* of the terms */
    bool given;   /* `most` is a log sum exp that the caller gave, and the sum is 1 */
    real *most, *sum, *carry, *dot, *dot_carry;
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

/* Columns whose statistics lie in `memory`, of columns_bytes. */
static inline columns columns_at(int64_t stride, term_use use, void *memory)
{
    real *base = memory;
    return (columns){stride, use, false, base, base + stride, base + 2 * stride, base + 3 * stride, base + 4 * stride};
}

/* The same, of no rows yet. */
static inline columns columns_open(int64_t stride, term_use use, void *memory)
{
    const columns c = columns_at(stride, use, memory);
    for (int64_t i = 0; i < 5 * stride; i++)
        c.most[i] = i < stride ? -(real)INFINITY : 0;
    return c;
}

/* A sequence is read in parts, whose statistics are merged in their order, by one thread or by several. They hang on its length alone,
 * so that results do not depend on the threads. A part is whole blocks of rows, but for the last. */
enum { COLUMN_BLOCK = 16, LEAST_PART = 256, MOST_COLUMN_PARTS = 32 };
enum { SHARED_SLABS = 2 }; /* threads share the parts of slabs that are fewer than so many for each thread */

typedef struct column_parts {
    int64_t rows, length, count;
} column_parts;

static inline column_parts column_parts_of(int64_t rows)
{
    const int64_t blocks = (rows + MOST_COLUMN_PARTS * COLUMN_BLOCK - 1) / (MOST_COLUMN_PARTS * COLUMN_BLOCK);
    const int64_t length = blocks * COLUMN_BLOCK > LEAST_PART ? blocks * COLUMN_BLOCK : LEAST_PART;
    return (column_parts){rows, length, rows > length ? (rows + length - 1) / length : 1};
}

static inline copes_share column_part(const column_parts *parts, int64_t i)
{
    const int64_t begin = i * parts->length, end = begin + parts->length;
    return (copes_share){begin, end < parts->rows ? end : parts->rows};
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

/* A sum, and what it has lost (Kahan). */
typedef struct kahan_sum {
    vpair sum, carry;
} kahan_sum;

static ALWAYS_INLINE vpair multiply_pairs(vpair a, vpair b)
{
    return (vpair){a.low * b.low, a.high * b.high};
}

static ALWAYS_INLINE kahan_sum load_kahan_sum(const real *sum, const real *carry, vpair factor)
{
    return (kahan_sum){multiply_pairs(load_real_pair(sum), factor), multiply_pairs(load_real_pair(carry), factor)};
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

/* What sums beside `most` are multiplied by to stand beside `shift`. */
static ALWAYS_INLINE vpair shrink_by(vpair most, vpair shift)
{
    return (vpair){vexp_term(most.low - shift.low), vexp_term(most.high - shift.high)};
}

/* The sums of a pair of columns: of e^(x - shift), and of that times g. */
typedef struct column_sums {
    kahan_sum sum, dot;
} column_sums;

static ALWAYS_INLINE column_sums load_sums(columns c, int64_t i, vpair factor)
{
    return (column_sums){load_kahan_sum(c.sum + i, c.carry + i, factor),
                         load_kahan_sum(c.dot + i, c.dot_carry + i, factor)};
}

/* Adds rows to the sums, and returns the larger of their maximum and of `most`. Results of 16 bits do not show what plain sums of a block
 * lose. */
static ALWAYS_INLINE vpair columns_sum(term_use use, bool given, bool reals, column_rows x, const column_rows *g,
                                       int64_t i, int64_t count, vpair shift, vpair most, column_sums *sums)
{
    const int64_t plain = g != NULL && use != FOR_STORAGE ? PLAIN_TERMS : count;
    for (int64_t begin = 0; begin < count; begin += plain) {
        vpair part = {vset(0), vset(0)}, product = part;
        for (int64_t row = begin; row < begin + plain && row < count; row++) {
            prefetch_rows(reals, x, row, i);
            const vpair at = column_pair(reals, x, row, i), e = vsoftmax_terms(use, given, at, shift);
            most = (vpair){vmax(at.low, most.low), vmax(at.high, most.high)};
            part = (vpair){part.low + e.low, part.high + e.high};
            if (g == NULL)
                continue;
            const vpair with = column_pair(true, *g, row, i);
            product = (vpair){vfma(e.low, with.low, product.low), vfma(e.high, with.high, product.high)};
        }
        add_to_column(&sums->sum, part);
        if (g != NULL)
            add_to_column(&sums->dot, product);
    }
    return most;
}

/* Does the maximum of earlier blocks serve in place of one that is at most so much larger? At full width it would not be exact enough,
 * and where there is none yet it is -inf. */
static ALWAYS_INLINE bool serves(vpair most)
{
    return !FULL_WIDTH && !any_below(vmin(most.low, most.high), -real_most);
}

static ALWAYS_INLINE bool far_above(vpair most, vpair shift)
{
    enum { HARDLY = 8 };
    return any_lane((most.low > shift.low + HARDLY) | (most.high > shift.high + HARDLY));
}

/* Adds a block's rows to a pair of columns: in one pass beside the maximum of earlier blocks, or else, or where that turns out to be far
 * too small, beside the block's own. */
static ALWAYS_INLINE void columns_add_pair(columns c, term_use use, bool given, bool reals, column_rows x,
                                           const column_rows *g, int64_t count, int64_t i)
{
    const vpair before = load_real_pair(c.most + i);
    vpair most = before, shift = before, shrink = {vset(1), vset(1)};
    bool final = given, found = final || serves(before);
    for (;;) {
        if (!found) {
            most = columns_most(reals, x, i, count, before);
            shift = (vpair){vfinite_max(most.low), vfinite_max(most.high)};
            shrink = shrink_by(before, shift);
            final = true;
        }
        column_sums sums = load_sums(c, i, shrink);
        const vpair seen = columns_sum(use, given, reals, x, g, i, count, shift, before, &sums);
        found = final || !far_above(seen, shift);
        if (!found)
            continue;
        if (g != NULL)
            store_kahan_sum(&sums.dot, c.dot + i, c.dot_carry + i);
        if (given)
            return;
        store_real_pair(c.most + i, most);
        store_kahan_sum(&sums.sum, c.sum + i, c.carry + i);
        return;
    }
}

static ALWAYS_INLINE void columns_add_of(const columns *c, term_use use, bool given, bool reals, column_rows x,
                                         const column_rows *g, int64_t count)
{
    for (int64_t i = 0; i < c->stride; i += PAIR)
        columns_add_pair(*c, use, given, reals, x, g, count, i);
}

/* Takes a block of rows of x. */
static NOINLINE void columns_add(const columns *c, bool reals, column_rows x, int64_t count)
{
    const bool stored = c->use == FOR_STORAGE && !FULL_WIDTH; /* where that is the same */
    if (reals && stored)
        columns_add_of(c, FOR_STORAGE, false, true, x, NULL, count);
    else if (stored)
        columns_add_of(c, FOR_STORAGE, false, false, x, NULL, count);
    else if (reals)
        columns_add_of(c, FOR_LSE, false, true, x, NULL, count);
    else
        columns_add_of(c, FOR_LSE, false, false, x, NULL, count);
}

static ALWAYS_INLINE void columns_add_gradient_of(const columns *c, bool reals, column_rows x, const column_rows *g,
                                                  int64_t count)
{
    const bool stored = gradient_use(true) == FOR_STORAGE && c->use == FOR_STORAGE; /* a constant but for bfloat16 */
    if (stored && c->given)
        columns_add_of(c, FOR_STORAGE, true, reals, x, g, count);
    else if (stored)
        columns_add_of(c, FOR_STORAGE, false, reals, x, g, count);
    else if (c->given)
        columns_add_of(c, FOR_GRADIENT, true, reals, x, g, count);
    else
        columns_add_of(c, FOR_GRADIENT, false, reals, x, g, count);
}

/* And of reals g, for a gradient. */
static NOINLINE void columns_add_gradient(const columns *c, bool reals, column_rows x, column_rows g, int64_t count)
{
    if (reals)
        columns_add_gradient_of(c, true, x, &g, count);
    else
        columns_add_gradient_of(c, false, x, &g, count);
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

/* Adds the statistics of a later part of the rows. */
static NOINLINE void columns_merge(const columns *c, const columns *part)
{
    const bool given = c->given;
    for (int64_t i = 0; i < c->stride; i += PAIR) {
        const vpair one = {vset(1), vset(1)}, a = load_real_pair(c->most + i), b = load_real_pair(part->most + i);
        const vpair most = {vmax(b.low, a.low), vmax(b.high, a.high)};
        const vpair shift = {vfinite_max(most.low), vfinite_max(most.high)};
        const vpair shrink = given ? one : shrink_by(a, shift), other = given ? one : shrink_by(b, shift);
        kahan_sum sum = load_kahan_sum(c->sum + i, c->carry + i, shrink);
        add_to_column(&sum, multiply_pairs(load_real_pair(part->sum + i), other));
        if (!given) {
            store_real_pair(c->most + i, most);
            store_kahan_sum(&sum, c->sum + i, c->carry + i);
        }
        kahan_sum dot = load_kahan_sum(c->dot + i, c->dot_carry + i, shrink);
        add_to_column(&dot, multiply_pairs(load_real_pair(part->dot + i), other));
        store_kahan_sum(&dot, c->dot + i, c->dot_carry + i);
    }
}

/* The statistics of all parts, which lie `bytes` apart, each in the memory of its columns. */
static inline void columns_merge_parts(const columns *c, const char *parts, int64_t count, int64_t bytes)
{
    memcpy(c->most, parts, (size_t)columns_bytes(c->stride));
    for (int64_t i = 1; i < count; i++) {
        const columns part = columns_at(c->stride, c->use, (void *)(uintptr_t)(parts + i * bytes));
        columns_merge(c, &part);
    }
}

/* After the last block: `most` becomes what is subtracted, `sum` a factor, and `dot` the mean of g under the
 * softmax. */
static inline void columns_finish(const columns *c)
{
    for (int64_t i = 0; i < c->stride; i += LANES) {
        const vreal factor = 1 / load_real(c->sum + i), most = load_real(c->most + i);
        store_real(c->sum + i, factor);
        store_real(c->most + i, c->given ? most : vfinite_max(most));
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
    c->given = true;
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

#endif
