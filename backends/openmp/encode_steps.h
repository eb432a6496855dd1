/* The steps of a walk over rows: two vectors of features, or one of each of two parts, from memory through an encoding to memory,
 * with an activation or a norm on the way. */
#ifndef COPES_BACKENDS_OPENMP_ENCODE_STEPS_H
#define COPES_BACKENDS_OPENMP_ENCODE_STEPS_H

#include "backends/openmp/encode.h"

typedef enum norm_step { NO_NORM, NORM, NORM_ROUNDED } norm_step;

/* What a walk over rows does, a constant wherever one is inlined. `act` comes before the encoding, and its gradient after the
 * transposed one; a norm comes before a rotation. */
typedef struct walk_kind {
    bool transposed, from_reals, to_reals;
    copes_act act;
    bool turns; /* a rotation, never cosine */
    norm_step norm;
    bool seldom; /* activations are calls */
} walk_kind;

/* What the steps of a walk read and write: two parts of a row, and of its result, its activation's argument and its norm's weights.
 * A walk keeps them in registers, and so gives no call their address. */
typedef struct walked_parts {
    const void *from[2];
    void *to[2];
    const storage *x[2];
    const real *cosine, *sine;
    const real *inverse, *weight[2]; /* of a norm */
    int64_t ahead, x_ahead, to_ahead;
    bool stream;
} walked_parts;

/* To storage and back. */
static ALWAYS_INLINE vpair round_pair(vpair v)
{
    storage part[PAIR];
    store_split(part, v, false);
    return load_split(part);
}

static ALWAYS_INLINE vpair norm_pair(norm_step step, vpair v, real inverse, vpair weight)
{
    const vpair y = {v.low * inverse * weight.low, v.high * inverse * weight.high};
    return step == NORM_ROUNDED ? round_pair(y) : y;
}

static ALWAYS_INLINE vpair act_of_pair(copes_act act, bool to_reals, vpair v)
{
    return (vpair){act_forward(act, to_reals, v.low), act_forward(act, to_reals, v.high)};
}

static ALWAYS_INLINE vpair slope_of_pair(copes_act act, vpair g, vpair x)
{
    return (vpair){act_backward(act, true, g.low, x.low), act_backward(act, true, g.high, x.high)};
}

/* The same of n elements, by calls: without the vector that has none of them. */
static NOINLINE vpair act_of_rest(copes_act act, bool to_reals, vpair v, int64_t n)
{
    return first_is_all(n) ? (vpair){act_forward(act, to_reals, v.low), v.high} : act_of_pair(act, to_reals, v);
}

static NOINLINE vpair slope_of_rest(copes_act act, vpair g, vpair x, int64_t n)
{
    return first_is_all(n) ? (vpair){act_backward(act, true, g.low, x.low), g.high} : slope_of_pair(act, g, x);
}

/* Does a walk have more lines under way than the first cache has places for? With vectors of 64 bytes it does, as it is fast; with
 * narrower ones where its rows have twice the features (`wide`), or a softmax over the sequence reads beside it. With exponentials it is
 * too slow for that. */
static ALWAYS_INLINE bool asks_much(walk_kind kind, bool wide)
{
    return !has_exponential(kind.act) && (VECTOR_BYTES == 64 || wide || kind.to_reals);
}

static ALWAYS_INLINE void prefetch_part(walk_kind kind, bool wide, const void *part, int64_t i, int64_t ahead)
{
    if (asks_much(kind, wide))
        prefetch(part, i, ahead);
    else
        prefetch_close(part, i, ahead);
}

/* `wide`: the part is one of a row of twice the features. */
static ALWAYS_INLINE vpair load_part_of(walk_kind kind, bool wide, const walked_parts *at, int part, int64_t i,
                                        int64_t n)
{
    if (!kind.from_reals)
        prefetch_part(kind, wide, at->from[part], i, at->ahead);
    const vpair v = load_from(kind.from_reals, at->from[part], i, n);
    if (kind.norm != NO_NORM)
        return norm_pair(kind.norm, v, *at->inverse, load_real_pair(at->weight[part] + i));
    if (kind.transposed || kind.act == COPES_ACT_NONE)
        return v;
    return kind.seldom ? act_of_rest(kind.act, kind.to_reals, v, n) : act_of_pair(kind.act, kind.to_reals, v);
}

static ALWAYS_INLINE vpair load_part(walk_kind kind, const walked_parts *at, int part, int64_t i, int64_t n)
{
    return load_part_of(kind, false, at, part, i, n);
}

/* Does an activation's gradient follow? */
static ALWAYS_INLINE bool takes_x(walk_kind kind)
{
    return kind.transposed && kind.act != COPES_ACT_NONE;
}

static ALWAYS_INLINE void store_part(walk_kind kind, const walked_parts *at, int part, int64_t i, int64_t n, vpair v)
{
    if (takes_x(kind)) {
        prefetch_part(kind, false, at->x[part], i, at->x_ahead);
        const vpair x = load_from(false, at->x[part], i, n);
        v = kind.seldom ? slope_of_rest(kind.act, v, x, n) : slope_of_pair(kind.act, v, x);
    }
    if (!kind.to_reals)
        prefetch_for_store(at->to[part], i, at->to_ahead, at->stream);
    store_to(kind.to_reals, at->to[part], i, n, v, at->stream);
}

/* Is a sum that a walk makes multiplied by an activation's slope, at full width? */
static ALWAYS_INLINE bool sums_exactly(walk_kind kind)
{
    return FULL_WIDTH && (kind.to_reals || takes_x(kind));
}

/* a c + b s, or a c - b s; `exactly`: without what the roundings of products lose. (Where the level fuses, that is one.) */
static ALWAYS_INLINE vreal sum_products(bool exactly, vreal a, vreal c, bool minus, vreal b, vreal s)
{
    const vreal second = minus ? -(b * s) : b * s;
#if FUSES
    (void)exactly;
    return vfma(a, c, second);
#else
    const vreal first = a * c, sum = first + second;
    if (!exactly)
        return sum;
    const vreal lost = vresidual(first, a, c) + vresidual(second, b, minus ? -s : s);
    return sum - vselect(vabs(sum) <= vset(real_most), lost, vset(0));
#endif
}

static ALWAYS_INLINE vpair sum_pairs(bool exactly, vpair a, vpair c, bool minus, vpair b, vpair s)
{
    return (vpair){sum_products(exactly, a.low, c.low, minus, b.low, s.low),
                   sum_products(exactly, a.high, c.high, minus, b.high, s.high)};
}

/* Pairs (a, b) of elements i .. i + n - 1 of two parts, turned by their angles, or their opposites. */
static ALWAYS_INLINE void turn_half(walk_kind kind, const walked_parts *at, int64_t i, int64_t n)
{
    const bool back = kind.transposed, exactly = sums_exactly(kind);
    const vpair a = load_part(kind, at, 0, i, n), b = load_part(kind, at, 1, i, n);
    const vpair c = load_real_pair(at->cosine + i), s = load_real_pair(at->sine + i);
    store_part(kind, at, 0, i, n, sum_pairs(exactly, a, c, !back, b, s));
    store_part(kind, at, 1, i, n, sum_pairs(exactly, b, c, back, a, s));
}

/* Neighbouring pairs (a, b) in elements i .. i + n - 1, likewise. */
static ALWAYS_INLINE void turn_interleaved(walk_kind kind, const walked_parts *at, int64_t i, int64_t n)
{
    const bool back = kind.transposed, exactly = sums_exactly(kind);
    const vpair v = evens_and_odds(load_part(kind, at, 0, i, n));
    const vreal c = load_real(at->cosine + i / 2), s = load_real(at->sine + i / 2);
    const vpair turned = {sum_products(exactly, v.low, c, !back, v.high, s),
                          sum_products(exactly, v.high, c, back, v.low, s)};
    store_part(kind, at, 0, i, n, split_of_evens_and_odds(turned));
}

/* x to x cos and x sin. */
static ALWAYS_INLINE void expand_cosine(walk_kind kind, const walked_parts *at, int64_t i, int64_t n)
{
    const vpair v = load_part(kind, at, 0, i, n);
    const vpair c = load_real_pair(at->cosine + i), s = load_real_pair(at->sine + i);
    store_part(kind, at, 0, i, n, (vpair){v.low * c.low, v.high * c.high});
    store_part(kind, at, 1, i, n, (vpair){v.low * s.low, v.high * s.high});
}

/* Its transpose: u and v to u cos + v sin. */
static ALWAYS_INLINE void contract_cosine(walk_kind kind, const walked_parts *at, int64_t i, int64_t n)
{
    const vpair u = load_part_of(kind, true, at, 0, i, n), v = load_part_of(kind, true, at, 1, i, n);
    const vpair c = load_real_pair(at->cosine + i), s = load_real_pair(at->sine + i);
    store_part(kind, at, 0, i, n, sum_pairs(sums_exactly(kind), u, c, false, v, s));
}

typedef enum encoding_step { TURN_HALF, TURN_INTERLEAVED, EXPAND_COSINE, CONTRACT_COSINE, COPY_REST } encoding_step;

static ALWAYS_INLINE void take_step(encoding_step step, walk_kind kind, const walked_parts *at, int64_t i, int64_t n)
{
    switch (step) {
    case TURN_HALF: turn_half(kind, at, i, n); break;
    case TURN_INTERLEAVED: turn_interleaved(kind, at, i, n); break;
    case EXPAND_COSINE: expand_cosine(kind, at, i, n); break;
    case CONTRACT_COSINE: contract_cosine(kind, at, i, n); break;
    case COPY_REST: store_part(kind, at, 0, i, n, load_part(kind, at, 0, i, n)); break;
    }
}

/* What is left of a row: with masks a step as any other, else one for all walks. */
static NOINLINE void take_rest(encoding_step step, walk_kind kind, const walked_parts *at, int64_t i, int64_t n)
{
    kind.seldom = true;
    take_step(step, kind, at, i, n);
}

#endif
