/* Softmax, and its gradient, of rows that the level's registers hold: read once, and written once. A row is 1 to 8 whole pairs; the
 * sums are those of softmax.h, in its order. */
#ifndef COPES_BACKENDS_OPENMP_SHORT_ROWS_H
#define COPES_BACKENDS_OPENMP_SHORT_ROWS_H

#include "backends/openmp/rows.h"
#include "backends/openmp/softmax.h"

enum { MOST_PAIRS = VECTOR_BYTES == 64 ? 8 : 4 }; /* half of the registers */

/* Is a row so short, and of whole pairs? Rows of other lengths are read into the cache and padded. */
static inline bool is_short_row(int64_t count)
{
    return count % PAIR == 0 && count <= MOST_PAIRS * PAIR && count / PAIR != 5 && count / PAIR != 7;
}

/* `pairs` is a constant wherever these are inlined. */
static ALWAYS_INLINE void short_read(int pairs, bool reals, const void *row, vpair *v, int64_t ahead)
{
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++) {
        if (!reals)
            prefetch(row, i * PAIR, ahead);
        v[i] = load_from(reals, row, i * PAIR, PAIR);
    }
}

static ALWAYS_INLINE void short_write(int pairs, bool reals, void *row, const vpair *v, int64_t ahead, bool stream)
{
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++) {
        if (!reals)
            prefetch_for_store(row, i * PAIR, ahead, stream);
        store_to(reals, row, i * PAIR, PAIR, v[i], stream);
    }
}

static ALWAYS_INLINE vreal short_max(int pairs, const vpair *v)
{
    vpair most = v[0];
#pragma GCC unroll 8
    for (int i = 1; i < pairs; i++)
        most = (vpair){vmax(v[i].low, most.low), vmax(v[i].high, most.high)};
    return vset(max_lanes(vmax(most.low, most.high)));
}

/* The sum of products a b, or of a where there is no b: PLAIN_TERMS pairs at a time. */
static ALWAYS_INLINE vreal short_sum(int pairs, const vpair *a, const vpair *b)
{
    vreal sum = vset(0), carry = vset(0);
    vpair part = {vset(0), vset(0)};
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++) {
        part.low = b == NULL ? part.low + a[i].low : vfma(a[i].low, b[i].low, part.low);
        part.high = b == NULL ? part.high + a[i].high : vfma(a[i].high, b[i].high, part.high);
        if (i + 1 < pairs && (i + 1) % PLAIN_TERMS != 0)
            continue;
        vsum_add(&sum, &carry, part.low + part.high);
        part = (vpair){vset(0), vset(0)};
    }
    return sum;
}

static ALWAYS_INLINE void short_softmax(int pairs, term_use use, vpair *v)
{
    const vreal shift = vfinite_max(short_max(pairs, v));
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++)
        v[i] = vsoftmax_terms(use, false, v[i], (vpair){shift, shift});
    const vreal sum = short_sum(pairs, v, NULL),
                scale = vset(1 / (use == FOR_GRADIENT ? sum_lanes_in_double(sum) : sum_lanes(sum)));
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++)
        v[i] = (vpair){v[i].low * scale, v[i].high * scale};
}

/* g becomes y (g - sum(y g)). */
static ALWAYS_INLINE void short_gradient(int pairs, const vpair *y, vpair *g)
{
    const vreal dot = vset(sum_lanes(short_sum(pairs, y, g)));
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++)
        g[i] = (vpair){y[i].low * (g[i].low - dot), y[i].high * (g[i].high - dot)};
}

/* Row i of a block. */
static ALWAYS_INLINE void *short_row(bool reals, row_block block, int64_t i)
{
    return (char *)block.data + i * block.stride * (int64_t)(reals ? sizeof(real) : sizeof(storage));
}

static ALWAYS_INLINE void short_forward(int pairs, bool to_reals, int64_t rows, row_block x, row_block o, bool stream)
{
    for (int64_t i = 0; i < rows; i++) {
        vpair v[MOST_PAIRS];
        short_read(pairs, false, short_row(false, x, i), v, x.ahead);
        short_softmax(pairs, FOR_STORAGE, v);
        short_write(pairs, to_reals, short_row(to_reals, o, i), v, o.ahead, stream);
    }
}

/* From the softmax y, or from its argument, which `y` then is. */
static ALWAYS_INLINE void short_backward(int pairs, bool from_reals, bool from_argument, int64_t rows, row_block y,
                                         row_block g, row_block o, bool stream)
{
    for (int64_t i = 0; i < rows; i++) {
        vpair v[MOST_PAIRS], d[MOST_PAIRS];
        short_read(pairs, false, short_row(false, y, i), v, y.ahead);
        short_read(pairs, from_reals, short_row(from_reals, g, i), d, g.ahead);
        if (from_argument)
            short_softmax(pairs, gradient_use(true), v);
        short_gradient(pairs, v, d);
        short_write(pairs, false, short_row(false, o, i), d, o.ahead, stream);
    }
}

#if VECTOR_BYTES == 64
#define BY_PAIRS(pairs, call)                                                                                          \
    switch (pairs) {                                                                                                   \
    case 1: call(1); break;                                                                                            \
    case 2: call(2); break;                                                                                            \
    case 3: call(3); break;                                                                                            \
    case 4: call(4); break;                                                                                            \
    case 6: call(6); break;                                                                                            \
    default: call(8);                                                                                                  \
    }
#else
#define BY_PAIRS(pairs, call)                                                                                          \
    switch (pairs) {                                                                                                   \
    case 1: call(1); break;                                                                                            \
    case 2: call(2); break;                                                                                            \
    case 3: call(3); break;                                                                                            \
    default: call(4);                                                                                                  \
    }
#endif

/* The four ways that kernels need, each compiled once. */
static NOINLINE void short_storage(int64_t count, int64_t rows, row_block x, row_block o, bool stream)
{
#define FORWARD(pairs) short_forward(pairs, false, rows, x, o, stream)
    BY_PAIRS(count / PAIR, FORWARD)
#undef FORWARD
}

static NOINLINE void short_reals(int64_t count, int64_t rows, row_block x, row_block y)
{
#define FORWARD(pairs) short_forward(pairs, true, rows, x, y, false)
    BY_PAIRS(count / PAIR, FORWARD)
#undef FORWARD
}

static NOINLINE void short_gradient_storage(int64_t count, int64_t rows, row_block y, row_block g, row_block o,
                                            bool stream)
{
#define BACKWARD(pairs) short_backward(pairs, false, false, rows, y, g, o, stream)
    BY_PAIRS(count / PAIR, BACKWARD)
#undef BACKWARD
}

static NOINLINE void short_gradient_reals(int64_t count, int64_t rows, row_block x, row_block g, row_block o,
                                          bool stream)
{
#define BACKWARD(pairs) short_backward(pairs, true, true, rows, x, g, o, stream)
    BY_PAIRS(count / PAIR, BACKWARD)
#undef BACKWARD
}

#undef BY_PAIRS

#endif
