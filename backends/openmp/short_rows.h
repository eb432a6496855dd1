/* Softmax, and its gradient, of rows that the level's registers hold, or nearly: there is no pass over a buffer. A row is 1 to 16 whole
 * pairs; the sums are those of softmax.h, in its order.
 *
 * Steps of one row wait for each other: its terms for its largest element, the division for their sum. A processor looks one row ahead, too
 * few to have other work meanwhile, so three rows are under way: terms of row i, the largest element of row i + 1, stores of row i - 1. What
 * that reads again is in the closest cache. Functions named in_turn do without. */
#ifndef COPES_BACKENDS_OPENMP_SHORT_ROWS_H
#define COPES_BACKENDS_OPENMP_SHORT_ROWS_H

#include "backends/openmp/rows.h"
#include "backends/openmp/softmax.h"

/* The lengths, in pairs: of 16-bit elements, AVX-512 has rows of 32 to 256, the others of 128 at most. */
#if VECTOR_BYTES == 64
enum { MOST_PAIRS = 8 };
#define EACH_LENGTH(of) of(1) of(2) of(3) of(4) of(6) of(8)
#elif VECTOR_BYTES == 32
enum { MOST_PAIRS = 8 };
#define EACH_LENGTH(of) of(1) of(2) of(4) of(8)
#elif defined(__aarch64__)
enum { MOST_PAIRS = 16 };
#define EACH_LENGTH(of) of(1) of(2) of(4) of(8) of(16)
#else
enum { MOST_PAIRS = 4 };
#define EACH_LENGTH(of) of(1) of(2) of(4)
#endif

/* Is a row so short, and of a length that is compiled? Others are read into the cache and padded. */
static inline bool is_short_row(int64_t count)
{
#define IS(pairs) || count == (pairs) * PAIR
    return false EACH_LENGTH(IS);
#undef IS
}

/* Does a distance prefetch? A constant 0 does not; others, which loops would have to test, all do. */
#define asks(ahead) (!__builtin_constant_p(ahead) || (ahead) != 0)

/* `pairs` is a constant wherever these are inlined. Prefetches gain where exponentials bind, and lose elsewhere. */
static ALWAYS_INLINE void short_read(int pairs, bool reals, const void *row, vpair *v, int64_t ahead)
{
#pragma GCC unroll 16
    for (int i = 0; i < pairs; i++) {
        if (!reals && asks(ahead))
            prefetch(row, i * PAIR, ahead);
        v[i] = load_from(reals, row, i * PAIR, PAIR);
    }
}

static ALWAYS_INLINE void short_write(int pairs, bool reals, void *row, const vpair *v, int64_t ahead, bool stream)
{
#pragma GCC unroll 16
    for (int i = 0; i < pairs; i++) {
        if (!reals && asks(ahead))
            prefetch_for_store(row, i * PAIR, ahead, stream);
        store_to(reals, row, i * PAIR, PAIR, v[i], stream);
    }
}

static ALWAYS_INLINE vreal short_max(int pairs, const vpair *v)
{
    vpair most = v[0];
#pragma GCC unroll 16
    for (int i = 1; i < pairs; i++)
        most = (vpair){vmax(v[i].low, most.low), vmax(v[i].high, most.high)};
    return vset(max_lanes(vmax(most.low, most.high)));
}

/* The sum of products a b, or of a where there is no b: PLAIN_TERMS pairs at a time. */
static ALWAYS_INLINE vreal short_sum(int pairs, const vpair *a, const vpair *b)
{
    vreal sum = vset(0), carry = vset(0);
    vpair part = {vset(0), vset(0)};
#pragma GCC unroll 16
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

/* The terms of a row relative to its largest element. */
static ALWAYS_INLINE void short_terms(int pairs, term_use use, vreal most, vpair *v)
{
    const vreal shift = vfinite_max(most);
#pragma GCC unroll 16
    for (int i = 0; i < pairs; i++)
        v[i] = vsoftmax_terms(use, false, v[i], (vpair){shift, shift});
}

static ALWAYS_INLINE vreal short_factor(term_use use, vreal sum)
{
    return vset(1 / (use == FOR_GRADIENT ? sum_lanes_in_double(sum) : sum_lanes(sum)));
}

static ALWAYS_INLINE void short_scale(int pairs, vreal factor, vpair *v)
{
#pragma GCC unroll 16
    for (int i = 0; i < pairs; i++)
        v[i] = (vpair){v[i].low * factor, v[i].high * factor};
}

static ALWAYS_INLINE void short_copy(int pairs, vpair *to, const vpair *from)
{
#pragma GCC unroll 16
    for (int i = 0; i < pairs; i++)
        to[i] = from[i];
}

/* Row i of a block. */
static ALWAYS_INLINE void *short_row(bool reals, row_block block, int64_t i)
{
    return (char *)block.data + i * block.stride * (int64_t)(reals ? sizeof(real) : sizeof(storage));
}

static ALWAYS_INLINE vreal short_max_of_row(int pairs, row_block x, int64_t i)
{
    vpair v[MOST_PAIRS];
    short_read(pairs, false, short_row(false, x, i), v, x.ahead);
    return short_max(pairs, v);
}

static ALWAYS_INLINE void short_forward(int pairs, bool to_reals, int64_t rows, row_block x, row_block o, bool stream)
{
    vpair v[MOST_PAIRS] = {0}, before[MOST_PAIRS] = {0};
    vreal most = short_max_of_row(pairs, x, 0), factor = vset(0);
    for (int64_t i = 0; i <= rows; i++) {
        vreal sum = vset(0);
        if (i < rows) {
            short_read(pairs, false, short_row(false, x, i), v, 0);
            short_terms(pairs, FOR_STORAGE, most, v);
            sum = short_sum(pairs, v, NULL);
            most = short_max_of_row(pairs, x, i + 1 < rows ? i + 1 : i);
        }
        if (i > 0) {
            short_scale(pairs, factor, before);
            short_write(pairs, to_reals, short_row(to_reals, o, i - 1), before, o.ahead, stream);
        }
        factor = short_factor(FOR_STORAGE, sum);
        short_copy(pairs, before, v);
    }
}

/* A row after the other, without prefetches in a walk straight through memory: faster than short_forward for elements of full width,
 * which memory bounds. */
static ALWAYS_INLINE void short_forward_in_turn(int pairs, bool to_reals, int64_t rows, row_block x, row_block o,
                                                bool stream)
{
    for (int64_t i = 0; i < rows; i++) {
        vpair v[MOST_PAIRS];
        short_read(pairs, false, short_row(false, x, i), v, to_reals ? x.ahead : 0);
        short_terms(pairs, FOR_STORAGE, short_max(pairs, v), v);
        short_scale(pairs, short_factor(FOR_STORAGE, short_sum(pairs, v, NULL)), v);
        short_write(pairs, to_reals, short_row(to_reals, o, i), v, 0, stream);
    }
}

/* g becomes y (g - dot). */
static ALWAYS_INLINE void short_gradient(int pairs, const vpair *y, vreal dot, vpair *g)
{
#pragma GCC unroll 16
    for (int i = 0; i < pairs; i++)
        g[i] = (vpair){y[i].low * (g[i].low - dot), y[i].high * (g[i].high - dot)};
}

/* Stores the gradient of a row whose sum of y g, `dot`, is known. */
static ALWAYS_INLINE void short_write_gradient(int pairs, bool from_reals, const vpair *y, vreal dot, row_block g,
                                               row_block o, int64_t ahead, int64_t row, bool stream)
{
    vpair d[MOST_PAIRS];
    short_read(pairs, from_reals, short_row(from_reals, g, row), d, 0);
    short_gradient(pairs, y, dot, d);
    short_write(pairs, false, short_row(false, o, row), d, ahead, stream);
}

/* From the softmax y, likewise. */
static ALWAYS_INLINE void short_backward_in_turn(int pairs, int64_t rows, row_block y, row_block g, row_block o,
                                                 bool stream)
{
    for (int64_t i = 0; i < rows; i++) {
        vpair v[MOST_PAIRS], d[MOST_PAIRS];
        short_read(pairs, false, short_row(false, y, i), v, 0);
        short_read(pairs, false, short_row(false, g, i), d, 0);
        short_gradient(pairs, v, vset(sum_lanes(short_sum(pairs, v, d))), d);
        short_write(pairs, false, short_row(false, o, i), d, 0, stream);
    }
}

/* From the softmax y, or from its argument, which `y` then is. */
static ALWAYS_INLINE void short_backward(int pairs, bool from_reals, bool from_argument, int64_t rows, row_block y,
                                         row_block g, row_block o, bool stream)
{
    const term_use use = gradient_use(true);
    vpair v[MOST_PAIRS] = {0}, d[MOST_PAIRS], before[MOST_PAIRS] = {0};
    vreal most = from_argument ? short_max_of_row(pairs, y, 0) : vset(0), dot = vset(0), sum = vset(0);
    for (int64_t i = 0; i <= rows; i++) {
        if (i < rows) {
            short_read(pairs, false, short_row(false, y, i), v, 0);
            if (from_argument) {
                short_terms(pairs, use, most, v);
                sum = short_sum(pairs, v, NULL);
                most = short_max_of_row(pairs, y, i + 1 < rows ? i + 1 : i);
            }
        }
        if (i > 0)
            short_write_gradient(pairs, from_reals, before, dot, g, o, from_argument ? o.ahead : 0, i - 1, stream);
        if (i < rows) {
            if (from_argument)
                short_scale(pairs, short_factor(use, sum), v);
            short_read(pairs, from_reals, short_row(from_reals, g, i), d, 0);
            dot = vset(sum_lanes(short_sum(pairs, v, d)));
            short_copy(pairs, before, v);
        }
    }
}

#define CALL_IF(pairs)                                                                                                 \
    if (count == (pairs) * PAIR)                                                                                       \
        CALL(pairs);

/* The four ways that kernels need, each compiled once for each length. */
static NOINLINE void short_storage(int64_t count, int64_t rows, row_block x, row_block o, bool stream)
{
#define CALL(pairs)                                                                                                    \
    FULL_WIDTH ? short_forward_in_turn(pairs, false, rows, x, o, stream)                                               \
               : short_forward(pairs, false, rows, x, o, stream)
    EACH_LENGTH(CALL_IF)
#undef CALL
}

static NOINLINE void short_reals(int64_t count, int64_t rows, row_block x, row_block y)
{
#define CALL(pairs)                                                                                                    \
    FULL_WIDTH ? short_forward_in_turn(pairs, true, rows, x, y, false) : short_forward(pairs, true, rows, x, y, false)
    EACH_LENGTH(CALL_IF)
#undef CALL
}

static NOINLINE void short_gradient_storage(int64_t count, int64_t rows, row_block y, row_block g, row_block o,
                                            bool stream)
{
#define CALL(pairs)                                                                                                    \
    FULL_WIDTH ? short_backward_in_turn(pairs, rows, y, g, o, stream)                                                  \
               : short_backward(pairs, false, false, rows, y, g, o, stream)
    EACH_LENGTH(CALL_IF)
#undef CALL
}

static NOINLINE void short_gradient_reals(int64_t count, int64_t rows, row_block x, row_block g, row_block o,
                                          bool stream)
{
#define CALL(pairs) short_backward(pairs, true, true, rows, x, g, o, stream)
    EACH_LENGTH(CALL_IF)
#undef CALL
}

#undef CALL_IF
#undef asks
#undef EACH_LENGTH

#endif
