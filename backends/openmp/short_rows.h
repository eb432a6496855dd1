/* Softmax, and its gradient, of rows that the level's registers hold, or nearly: there is no pass over a buffer. A row is 1 to 16 pairs,
 * whole ones where a level has no masks; the sums are those of softmax.h, in its order.
 *
 * Steps of one row wait for each other: its terms for its largest element, the division for their sum. A processor looks one row ahead, too
 * few to have other work meanwhile, so three rows are under way: terms of row i, the largest element of row i + 1, stores of row i - 1. What
 * that reads again is in the closest cache. Functions named in_turn do without. */
#ifndef COPES_BACKENDS_OPENMP_SHORT_ROWS_H
#define COPES_BACKENDS_OPENMP_SHORT_ROWS_H

#include "backends/openmp/rows.h"
#include "backends/openmp/softmax.h"

/* The lengths, in pairs, each with the one before: of 16-bit elements, AVX-512 has rows of up to 256, the others of 128 at most. */
#if VECTOR_BYTES == 64
enum { MOST_PAIRS = 8 };
#define EACH_LENGTH(of) of(1, 0) of(2, 1) of(3, 2) of(4, 3) of(6, 4) of(8, 6)
#elif VECTOR_BYTES == 32
enum { MOST_PAIRS = 8 };
#define EACH_LENGTH(of) of(1, 0) of(2, 1) of(4, 2) of(8, 4)
#elif defined(__aarch64__)
enum { MOST_PAIRS = 16 };
#define EACH_LENGTH(of) of(1, 0) of(2, 1) of(4, 2) of(8, 4) of(16, 8)
#else
enum { MOST_PAIRS = 4 };
#define EACH_LENGTH(of) of(1, 0) of(2, 1) of(4, 2)
#endif

/* A row of `count` elements, in `pairs` pairs, of which it fills the first `whole`. Both are constants wherever they are used. */
typedef struct short_shape {
    int pairs, whole;
    int64_t count;
} short_shape;

/* Is a row so short, and all of a length that is compiled? */
static inline bool is_whole_short_row(int64_t count)
{
#define IS(pairs, before) || count == (pairs) * PAIR
    return false EACH_LENGTH(IS);
#undef IS
}

/* Or part of one? Others are read into the cache and padded. */
static inline bool is_short_row(int64_t count)
{
    return MASKS ? count > 0 && count <= MOST_PAIRS * PAIR : is_whole_short_row(count);
}

/* A row's elements in pair i. */
static ALWAYS_INLINE int64_t elements_of_pair(short_shape s, int i)
{
    const int64_t left = s.count - (int64_t)i * PAIR;
    return left < 0 ? 0 : left < PAIR ? left : PAIR;
}

/* Does a distance prefetch? A constant 0 does not; others, which loops would have to test, all do. */
#define asks(ahead) (!__builtin_constant_p(ahead) || (ahead) != 0)

/* `fill` stands behind the row's end. Prefetches gain where exponentials bind, and lose elsewhere. */
static ALWAYS_INLINE void short_read(short_shape s, bool reals, const void *row, vpair *v, storage fill, int64_t ahead)
{
#pragma GCC unroll 16
    for (int i = 0; i < s.pairs; i++) {
        if (!reals && asks(ahead))
            prefetch(row, i * PAIR, ahead);
        v[i] = i < s.whole ? load_from(reals, row, i * PAIR, PAIR)
                           : load_rest((const storage *)row + i * PAIR, elements_of_pair(s, i), fill);
    }
}

static ALWAYS_INLINE void short_write(short_shape s, bool reals, void *row, const vpair *v, int64_t ahead, bool stream)
{
#pragma GCC unroll 16
    for (int i = 0; i < s.pairs; i++) {
        if (!reals && asks(ahead))
            prefetch_for_store(row, i * PAIR, ahead, stream);
        if (i < s.whole)
            store_to(reals, row, i * PAIR, PAIR, v[i], stream);
        else
            store_rest((storage *)row + i * PAIR, elements_of_pair(s, i), v[i]);
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

/* What forward reads behind a row's end: its terms are 0. */
static ALWAYS_INLINE storage lowest(void)
{
    storage lowest;
    store_scalar(&lowest, -(real)INFINITY);
    return lowest;
}

/* Row i of a block. */
static ALWAYS_INLINE void *short_row(bool reals, row_block block, int64_t i)
{
    return (char *)block.data + i * block.stride * (int64_t)(reals ? sizeof(real) : sizeof(storage));
}

static ALWAYS_INLINE vreal short_max_of_row(short_shape s, row_block x, int64_t i)
{
    vpair v[MOST_PAIRS];
    short_read(s, false, short_row(false, x, i), v, lowest(), x.ahead);
    return short_max(s.pairs, v);
}

static ALWAYS_INLINE void short_forward(short_shape s, bool to_reals, int64_t rows, row_block x, row_block o,
                                        bool stream)
{
    vpair v[MOST_PAIRS] = {0}, before[MOST_PAIRS] = {0};
    vreal most = short_max_of_row(s, x, 0), factor = vset(0);
    for (int64_t i = 0; i <= rows; i++) {
        vreal sum = vset(0);
        if (i < rows) {
            short_read(s, false, short_row(false, x, i), v, lowest(), 0);
            short_terms(s.pairs, FOR_STORAGE, most, v);
            sum = short_sum(s.pairs, v, NULL);
            most = short_max_of_row(s, x, i + 1 < rows ? i + 1 : i);
        }
        if (i > 0) {
            short_scale(s.pairs, factor, before);
            short_write(s, to_reals, short_row(to_reals, o, i - 1), before, o.ahead, stream);
        }
        factor = short_factor(FOR_STORAGE, sum);
        short_copy(s.pairs, before, v);
    }
}

/* A row after the other, without prefetches in a walk straight through memory: faster than short_forward for elements of full width,
 * which memory bounds. */
static ALWAYS_INLINE void short_forward_in_turn(short_shape s, bool to_reals, int64_t rows, row_block x, row_block o,
                                                bool stream)
{
    for (int64_t i = 0; i < rows; i++) {
        vpair v[MOST_PAIRS];
        short_read(s, false, short_row(false, x, i), v, lowest(), to_reals ? x.ahead : 0);
        short_terms(s.pairs, FOR_STORAGE, short_max(s.pairs, v), v);
        short_scale(s.pairs, short_factor(FOR_STORAGE, short_sum(s.pairs, v, NULL)), v);
        short_write(s, to_reals, short_row(to_reals, o, i), v, 0, stream);
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
static ALWAYS_INLINE void short_write_gradient(short_shape s, bool from_reals, const vpair *y, vreal dot, row_block g,
                                               row_block o, int64_t ahead, int64_t row, bool stream)
{
    vpair d[MOST_PAIRS];
    short_read(s, from_reals, short_row(from_reals, g, row), d, 0, 0);
    short_gradient(s.pairs, y, dot, d);
    short_write(s, false, short_row(false, o, row), d, ahead, stream);
}

/* From the softmax y, likewise. */
static ALWAYS_INLINE void short_backward_in_turn(short_shape s, int64_t rows, row_block y, row_block g, row_block o,
                                                 bool stream)
{
    for (int64_t i = 0; i < rows; i++) {
        vpair v[MOST_PAIRS], d[MOST_PAIRS];
        short_read(s, false, short_row(false, y, i), v, 0, 0);
        short_read(s, false, short_row(false, g, i), d, 0, 0);
        short_gradient(s.pairs, v, vset(sum_lanes(short_sum(s.pairs, v, d))), d);
        short_write(s, false, short_row(false, o, i), d, 0, stream);
    }
}

/* From the softmax y, or from its argument, which `y` then is. */
static ALWAYS_INLINE void short_backward(short_shape s, bool from_reals, bool from_argument, int64_t rows, row_block y,
                                         row_block g, row_block o, bool stream)
{
    const term_use use = gradient_use(true);
    vpair v[MOST_PAIRS] = {0}, d[MOST_PAIRS], before[MOST_PAIRS] = {0};
    vreal most = from_argument ? short_max_of_row(s, y, 0) : vset(0), dot = vset(0), sum = vset(0);
    for (int64_t i = 0; i <= rows; i++) {
        if (i < rows) {
            short_read(s, false, short_row(false, y, i), v, from_argument ? lowest() : 0, 0);
            if (from_argument) {
                short_terms(s.pairs, use, most, v);
                sum = short_sum(s.pairs, v, NULL);
                most = short_max_of_row(s, y, i + 1 < rows ? i + 1 : i);
            }
        }
        if (i > 0)
            short_write_gradient(s, from_reals, before, dot, g, o, from_argument ? o.ahead : 0, i - 1, stream);
        if (i < rows) {
            if (from_argument)
                short_scale(s.pairs, short_factor(use, sum), v);
            short_read(s, from_reals, short_row(from_reals, g, i), d, 0, 0);
            dot = vset(sum_lanes(short_sum(s.pairs, v, d)));
            short_copy(s.pairs, before, v);
        }
    }
}

#define CALL_WHOLE(pairs, before)                                                                                      \
    if (count == (pairs) * PAIR)                                                                                       \
        CALL(((short_shape){pairs, pairs, (pairs) * PAIR}));
#define CALL_ANY(pairs, before)                                                                                        \
    CALL_WHOLE(pairs, before)                                                                                          \
    if (MASKS && count > (before) * PAIR && count < (pairs) * PAIR)                                                    \
        CALL(((short_shape){pairs, before, count}));

/* The four ways that kernels need, each compiled once for each length. Rows of reals are whole pairs. */
static NOINLINE void short_storage(int64_t count, int64_t rows, row_block x, row_block o, bool stream)
{
#define CALL(shape)                                                                                                    \
    FULL_WIDTH ? short_forward_in_turn(shape, false, rows, x, o, stream)                                               \
               : short_forward(shape, false, rows, x, o, stream)
    EACH_LENGTH(CALL_ANY)
#undef CALL
}

static NOINLINE void short_reals(int64_t count, int64_t rows, row_block x, row_block y)
{
#define CALL(shape)                                                                                                    \
    FULL_WIDTH ? short_forward_in_turn(shape, true, rows, x, y, false) : short_forward(shape, true, rows, x, y, false)
    EACH_LENGTH(CALL_WHOLE)
#undef CALL
}

static NOINLINE void short_gradient_storage(int64_t count, int64_t rows, row_block y, row_block g, row_block o,
                                            bool stream)
{
#define CALL(shape)                                                                                                    \
    FULL_WIDTH ? short_backward_in_turn(shape, rows, y, g, o, stream)                                                  \
               : short_backward(shape, false, false, rows, y, g, o, stream)
    EACH_LENGTH(CALL_ANY)
#undef CALL
}

static NOINLINE void short_gradient_reals(int64_t count, int64_t rows, row_block x, row_block g, row_block o,
                                          bool stream)
{
#define CALL(shape) short_backward(shape, true, true, rows, x, g, o, stream)
    EACH_LENGTH(CALL_WHOLE)
#undef CALL
}

#undef CALL_ANY
#undef CALL_WHOLE
#undef asks
#undef EACH_LENGTH

#endif
