/* The encoding itself, and its transpose, on rows of D features: from memory or from a row of reals in cache, to either.
 * What bounds it is memory: a row passes through registers once, two vectors at a time, with its angles in L1. */
#ifndef COPES_BACKENDS_OPENMP_ENCODE_H
#define COPES_BACKENDS_OPENMP_ENCODE_H

#include "backends/openmp/angles.h"
#include "backends/openmp/rows.h"

/* Rows of features, one a head: elements of storage, or reals that an activation left or awaits. */
typedef struct rows {
    void *data;
    int64_t stride;
} rows;

/* What to do with `count` rows of d features. */
typedef struct encoding {
    copes_variant variant;
    copes_pairing pairing;
    int64_t count, d;
    const angles *angles;
    bool stream; /* store past the caches */
} encoding;

/* Pairs (k, k + count) for k = i .. i + n - 1, turned by `sign` times their angles. */
static ALWAYS_INLINE void turn_half(bool from_reals, const void *x, bool to_reals, void *o, int64_t count, real sign,
                                    const real *cosine, const real *sine, int64_t i, int64_t n, bool stream)
{
    const vpair a = load_from(from_reals, x, i, n), b = load_from(from_reals, x, count + i, n);
    const vpair c = load_real_pair(cosine + i), s = load_real_pair(sine + i);
    const vreal s0 = sign * s.low, s1 = sign * s.high;
    store_to(to_reals, o, i, n, (vpair){a.low * c.low - b.low * s0, a.high * c.high - b.high * s1}, stream);
    store_to(to_reals, o, count + i, n, (vpair){b.low * c.low + a.low * s0, b.high * c.high + a.high * s1}, stream);
}

/* Pairs (2k, 2k + 1) for the n / 2 pairs from feature i on, likewise. */
static ALWAYS_INLINE void turn_interleaved(bool from_reals, const void *x, bool to_reals, void *o, real sign,
                                           const real *cosine, const real *sine, int64_t i, int64_t n, bool stream)
{
    const vpair v = load_from(from_reals, x, i, n);
    const vreal a = even_lanes(v), b = odd_lanes(v);
    const vreal c = load_real(cosine + i / 2), s = sign * load_real(sine + i / 2);
    store_to(to_reals, o, i, n, interleave_lanes(a * c - b * s, b * c + a * s), stream);
}

/* o = concat(x cos, x sin). */
static ALWAYS_INLINE void expand_cosine(bool from_reals, const void *x, bool to_reals, void *o, int64_t d,
                                        const real *cosine, const real *sine, int64_t i, int64_t n, bool stream)
{
    const vpair v = load_from(from_reals, x, i, n), c = load_real_pair(cosine + i), s = load_real_pair(sine + i);
    store_to(to_reals, o, i, n, (vpair){v.low * c.low, v.high * c.high}, stream);
    store_to(to_reals, o, d + i, n, (vpair){v.low * s.low, v.high * s.high}, stream);
}

/* Its transpose: g = u cos + v sin of g_o = concat(u, v). */
static ALWAYS_INLINE void contract_cosine(bool from_reals, const void *x, bool to_reals, void *o, int64_t d,
                                          const real *cosine, const real *sine, int64_t i, int64_t n, bool stream)
{
    const vpair u = load_from(from_reals, x, i, n), v = load_from(from_reals, x, d + i, n);
    const vpair c = load_real_pair(cosine + i), s = load_real_pair(sine + i);
    store_to(to_reals, o, i, n, (vpair){u.low * c.low + v.low * s.low, u.high * c.high + v.high * s.high}, stream);
}

static ALWAYS_INLINE void copy_features(bool from_reals, const void *x, bool to_reals, void *o, int64_t i, int64_t n,
                                        bool stream)
{
    store_to(to_reals, o, i, n, load_from(from_reals, x, i, n), stream);
}

typedef enum encoding_step { TURN_HALF, TURN_INTERLEAVED, EXPAND_COSINE, CONTRACT_COSINE, COPY } encoding_step;

/* What a step works on: a row, where it goes, and its angles. `half` is the distance between the two parts of a row. */
typedef struct encoded_row {
    const void *x;
    void *o;
    int64_t half;
    const real *cosine, *sine;
} encoded_row;

static ALWAYS_INLINE void step_part(encoding_step step, bool from_reals, bool to_reals, const encoded_row *row, real sign,
                                    int64_t i, int64_t n, bool stream)
{
    const void *x = row->x;
    void *o = row->o;
    switch (step) {
    case TURN_HALF:
        turn_half(from_reals, x, to_reals, o, row->half, sign, row->cosine, row->sine, i, n, stream);
        break;
    case TURN_INTERLEAVED:
        turn_interleaved(from_reals, x, to_reals, o, sign, row->cosine, row->sine, i, n, stream);
        break;
    case EXPAND_COSINE:
        expand_cosine(from_reals, x, to_reals, o, row->half, row->cosine, row->sine, i, n, stream);
        break;
    case CONTRACT_COSINE:
        contract_cosine(from_reals, x, to_reals, o, row->half, row->cosine, row->sine, i, n, stream);
        break;
    case COPY: copy_features(from_reals, x, to_reals, o, i, n, stream); break;
    }
}

/* A step on all of begin .. end - 1: angles, or features for interleaved pairs and copies. */
static ALWAYS_INLINE void walk(encoding_step step, bool from_reals, bool to_reals, const encoded_row *row, real sign,
                               int64_t begin, int64_t end, bool stream)
{
    int64_t i = begin;
    for (; i + PAIR <= end; i += PAIR)
        step_part(step, from_reals, to_reals, row, sign, i, PAIR, stream);
    if (i < end)
        step_part(step, from_reals, to_reals, row, sign, i, end - i, stream);
}

/* All rows of a block, transposed or not, by variant and pairing. */
static ALWAYS_INLINE void encode_any(const encoding *e, bool transposed, bool from_reals, rows from, bool to_reals, rows to)
{
    const angles *a = e->angles;
    const real sign = transposed ? -1 : 1;
    const int64_t from_size = from_reals ? sizeof(real) : sizeof(storage);
    const int64_t to_size = to_reals ? sizeof(real) : sizeof(storage);
    for (int64_t i = 0; i < e->count; i++) {
        const int64_t at = a->rows == 1 ? 0 : i * a->stride;
        const encoded_row row = {(const char *)from.data + i * from.stride * from_size,
                                 (char *)to.data + i * to.stride * to_size, a->count, a->cosine + at, a->sine + at};
        if (e->variant == COPES_COSINE && transposed)
            walk(CONTRACT_COSINE, from_reals, to_reals, &row, 1, 0, e->d, e->stream);
        else if (e->variant == COPES_COSINE)
            walk(EXPAND_COSINE, from_reals, to_reals, &row, 1, 0, e->d, e->stream);
        else if (e->pairing == COPES_HALF)
            walk(TURN_HALF, from_reals, to_reals, &row, sign, 0, a->count, e->stream);
        else
            walk(TURN_INTERLEAVED, from_reals, to_reals, &row, sign, 0, 2 * a->count, e->stream);
        if (e->variant == COPES_ROTATE && 2 * a->count < e->d)
            walk(COPY, from_reals, to_reals, &row, sign, 2 * a->count, e->d, e->stream);
    }
}

/* The four ways that kernels need, each compiled once. */
static NOINLINE void encode_storage(const encoding *e, rows x, rows o)
{
    encode_any(e, false, false, x, false, o);
}

static NOINLINE void encode_reals(const encoding *e, rows y, rows o)
{
    encode_any(e, false, true, y, false, o);
}

static NOINLINE void decode_storage(const encoding *e, rows grad_o, rows grad_x)
{
    encode_any(e, true, false, grad_o, false, grad_x);
}

static NOINLINE void decode_reals(const encoding *e, rows grad_o, rows g)
{
    encode_any(e, true, false, grad_o, true, g);
}

#endif
