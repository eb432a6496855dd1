/* The encoding itself, its transpose, and the norm before a rotation, on rows of D features: between memory and a row of reals in
 * cache, or from memory to memory. A row passes through registers once, two vectors at a time, with its angles in L1. Memory
 * binds, or the activation. */
#include "backends/openmp/encode.h"

typedef enum norm_step { NO_NORM, NORM, NORM_ROUNDED } norm_step;

/* What a walk over rows does, a constant wherever one is inlined. `act` comes before the encoding, and its gradient after the
 * transposed one; a norm comes before a rotation. */
typedef struct walk_kind {
    bool transposed, from_reals, to_reals;
    copes_act act;
    bool turns; /* a rotation, never cosine */
    norm_step norm;
} walk_kind;

/* The parts of a row, of its result and, for an activation's gradient, of the activation's argument; and the row's angles. */
typedef struct encoded_row {
    const void *from[MOST_PARTS];
    void *to[MOST_PARTS];
    const storage *x[MOST_PARTS];
    const real *cosine, *sine;
    const real *inverse, *weight[MOST_PARTS]; /* of a norm */
    int64_t ahead, x_ahead, to_ahead;
} encoded_row;

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

static ALWAYS_INLINE vpair load_part(walk_kind kind, const encoded_row *row, int part, int64_t i, int64_t n)
{
    if (!kind.from_reals)
        prefetch(row->from[part], i, row->ahead);
    const vpair v = load_from(kind.from_reals, row->from[part], i, n);
    if (kind.norm != NO_NORM)
        return norm_pair(kind.norm, v, *row->inverse, load_real_pair(row->weight[part] + i));
    if (kind.transposed)
        return v;
    return (vpair){act_forward(kind.act, kind.to_reals, v.low), act_forward(kind.act, kind.to_reals, v.high)};
}

/* Does an activation's gradient follow? */
static ALWAYS_INLINE bool takes_x(walk_kind kind)
{
    return kind.transposed && kind.act != COPES_ACT_NONE;
}

static ALWAYS_INLINE void store_part(walk_kind kind, const encoded_row *row, int part, int64_t i, int64_t n, vpair v,
                                     bool stream)
{
    if (takes_x(kind)) {
        prefetch(row->x[part], i, row->x_ahead);
        const vpair x = load_from(false, row->x[part], i, n);
        v = (vpair){act_backward(kind.act, true, v.low, x.low), act_backward(kind.act, true, v.high, x.high)};
    }
    if (!kind.to_reals)
        prefetch_for_store(row->to[part], i, row->to_ahead, stream);
    store_to(kind.to_reals, row->to[part], i, n, v, stream);
}

/* Is a sum that a walk makes multiplied by an activation's slope, at full width? */
static ALWAYS_INLINE bool sums_exactly(walk_kind kind)
{
    return FULL_WIDTH && (kind.to_reals || takes_x(kind));
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

/* Pairs (a, b) of elements i .. i + n - 1 of two parts, turned by their angles, or their opposites. */
static ALWAYS_INLINE void turn_half(walk_kind kind, const encoded_row *row, int64_t i, int64_t n, bool stream)
{
    const real sign = kind.transposed ? -1 : 1;
    const vpair a = load_part(kind, row, 1, i, n), b = load_part(kind, row, 2, i, n);
    const vpair c = load_real_pair(row->cosine + i), sine = load_real_pair(row->sine + i);
    const vpair s = {sign * sine.low, sign * sine.high}, minus = {-s.low, -s.high};
    store_part(kind, row, 1, i, n, sum_pairs(sums_exactly(kind), a, c, b, minus), stream);
    store_part(kind, row, 2, i, n, sum_pairs(sums_exactly(kind), b, c, a, s), stream);
}

/* Neighbouring pairs (a, b) in elements i .. i + n - 1, likewise. */
static ALWAYS_INLINE void turn_interleaved(walk_kind kind, const encoded_row *row, int64_t i, int64_t n, bool stream)
{
    const real sign = kind.transposed ? -1 : 1;
    const vpair v = evens_and_odds(load_part(kind, row, 1, i, n));
    const vreal c = load_real(row->cosine + i / 2), s = sign * load_real(row->sine + i / 2);
    const vpair turned = {sum_products(sums_exactly(kind), v.low, c, v.high, -s),
                          sum_products(sums_exactly(kind), v.high, c, v.low, s)};
    store_part(kind, row, 1, i, n, split_of_evens_and_odds(turned), stream);
}

/* x to x cos and x sin. */
static ALWAYS_INLINE void expand_cosine(walk_kind kind, const encoded_row *row, int64_t i, int64_t n, bool stream)
{
    const vpair v = load_part(kind, row, 0, i, n);
    const vpair c = load_real_pair(row->cosine + i), s = load_real_pair(row->sine + i);
    store_part(kind, row, 0, i, n, (vpair){v.low * c.low, v.high * c.high}, stream);
    store_part(kind, row, 1, i, n, (vpair){v.low * s.low, v.high * s.high}, stream);
}

/* Its transpose: u and v to u cos + v sin. */
static ALWAYS_INLINE void contract_cosine(walk_kind kind, const encoded_row *row, int64_t i, int64_t n, bool stream)
{
    const vpair u = load_part(kind, row, 0, i, n), v = load_part(kind, row, 1, i, n);
    const vpair c = load_real_pair(row->cosine + i), s = load_real_pair(row->sine + i);
    store_part(kind, row, 0, i, n, sum_pairs(sums_exactly(kind), u, c, v, s), stream);
}

typedef enum encoding_step { TURN_HALF, TURN_INTERLEAVED, EXPAND_COSINE, CONTRACT_COSINE, COPY_REST } encoding_step;

static ALWAYS_INLINE void step_part(encoding_step step, int rest, walk_kind kind, const encoded_row *row, int64_t i,
                                    int64_t n, bool stream)
{
    switch (step) {
    case TURN_HALF: turn_half(kind, row, i, n, stream); break;
    case TURN_INTERLEAVED: turn_interleaved(kind, row, i, n, stream); break;
    case EXPAND_COSINE: expand_cosine(kind, row, i, n, stream); break;
    case CONTRACT_COSINE: contract_cosine(kind, row, i, n, stream); break;
    case COPY_REST: store_part(kind, row, rest, i, n, load_part(kind, row, rest, i, n), stream); break;
    }
}

/* A step on `count` elements of its parts. */
static ALWAYS_INLINE void walk(encoding_step step, int rest, walk_kind kind, const encoded_row *row, int64_t count,
                               bool stream)
{
    for (int64_t i = 0; i < count; i += PAIR)
        step_part(step, rest, kind, row, i, pair_or_rest(i, count), stream);
}

/* The first row of a block. */
static ALWAYS_INLINE encoded_row first_row(const encoding *e, walk_kind kind, row_block from, row_block x, row_block to)
{
    encoded_row row = {.cosine = e->angles->cosine,
                       .sine = e->angles->sine,
                       .ahead = from.ahead,
                       .x_ahead = x.ahead,
                       .to_ahead = to.ahead};
    for (int part = 0; part < MOST_PARTS; part++) {
        const bool wide = !kind.turns && e->variant == COPES_LRPE_COSINE;
        const int64_t feature = wide ? part * e->d : e->layout->begin[part];
        row.from[part] = kind.from_reals ? (const void *)((const real *)from.data + e->layout->at[part])
                                         : (const void *)((const storage *)from.data + feature);
        row.to[part] =
            kind.to_reals ? (void *)((real *)to.data + e->layout->at[part]) : (void *)((storage *)to.data + feature);
        row.x[part] = takes_x(kind) ? (const storage *)x.data + feature : NULL;
        row.weight[part] = kind.norm != NO_NORM ? e->norm->weight + e->layout->at[part] : NULL;
    }
    row.inverse = kind.norm != NO_NORM ? e->norm->inverse : NULL;
    return row;
}

static ALWAYS_INLINE void next_row(encoded_row *row, const encoding *e, walk_kind kind, row_block from, row_block x,
                                   row_block to)
{
    const int64_t turn = e->angles->rows == 1 ? 0 : e->angles->stride;
    row->cosine += turn;
    row->sine += turn;
    for (int part = 0; part < MOST_PARTS; part++) {
        row->from[part] = kind.from_reals ? (const void *)((const real *)row->from[part] + from.stride)
                                          : (const void *)((const storage *)row->from[part] + from.stride);
        row->to[part] = kind.to_reals ? (void *)((real *)row->to[part] + to.stride)
                                      : (void *)((storage *)row->to[part] + to.stride);
        if (takes_x(kind))
            row->x[part] += x.stride;
        if (kind.norm != NO_NORM)
            row->weight[part] += e->norm->weight_stride;
    }
    if (kind.norm != NO_NORM)
        row->inverse += e->norm->inverse_stride;
}

static ALWAYS_INLINE void encode_row(const encoding *e, walk_kind kind, const encoded_row *row)
{
    const int64_t turned = 2 * e->angles->count, before = e->layout->begin[1], rest = e->d - before - turned;
    if (!kind.turns && e->variant == COPES_LRPE_COSINE) {
        walk(kind.transposed ? CONTRACT_COSINE : EXPAND_COSINE, 0, kind, row, e->d, e->stream);
        return;
    }
    if (e->pairing == COPES_LRPE_HALF)
        walk(TURN_HALF, 0, kind, row, turned / 2, e->stream);
    else
        walk(TURN_INTERLEAVED, 0, kind, row, turned, e->stream);
    for (int after = 0; after < 2; after++) /* in one place, as the walk is a large part of the library's code */
        walk(COPY_REST, after ? e->layout->parts - 1 : 0, kind, row, after ? rest : before, e->stream);
}

/* All rows of a block, by variant and pairing. */
static ALWAYS_INLINE void encode_any(const encoding *e, walk_kind kind, row_block from, row_block x, row_block to)
{
    encoded_row row = first_row(e, kind, from, x, to);
    for (int64_t i = 0; i < e->count; i++) {
        if (i > 0) /* an only row may have any stride */
            next_row(&row, e, kind, from, x, to);
        encode_row(e, kind, &row);
    }
}

/* One function for each activation. */
#define ENCODE_WITH(name, act)                                                                                         \
    static NOINLINE void encode_##name(const encoding *e, row_block x, row_block o)                                    \
    {                                                                                                                  \
        encode_any(e, (walk_kind){false, false, false, act, false, NO_NORM}, x, (row_block){0}, o);                    \
    }                                                                                                                  \
    static NOINLINE void decode_##name(const encoding *e, row_block grad_o, row_block x, row_block grad_x)             \
    {                                                                                                                  \
        encode_any(e, (walk_kind){true, false, false, act, false, NO_NORM}, grad_o, x, grad_x);                        \
    }
ENCODE_WITH(none, COPES_ACT_NONE)
ENCODE_WITH(relu, COPES_ACT_RELU)
ENCODE_WITH(sigmoid, COPES_ACT_SIGMOID)
ENCODE_WITH(silu, COPES_ACT_SILU)
#undef ENCODE_WITH

void TEMPLATE(encode)(copes_act act, const encoding *e, row_block x, row_block o)
{
    switch (act) {
    case COPES_ACT_RELU: encode_relu(e, x, o); break;
    case COPES_ACT_SIGMOID: encode_sigmoid(e, x, o); break;
    case COPES_ACT_SILU: encode_silu(e, x, o); break;
    default: encode_none(e, x, o);
    }
}

void TEMPLATE(decode)(copes_act act, const encoding *e, row_block grad_o, row_block x, row_block grad_x)
{
    switch (act) {
    case COPES_ACT_RELU: decode_relu(e, grad_o, x, grad_x); break;
    case COPES_ACT_SIGMOID: decode_sigmoid(e, grad_o, x, grad_x); break;
    case COPES_ACT_SILU: decode_silu(e, grad_o, x, grad_x); break;
    default: decode_none(e, grad_o, x, grad_x);
    }
}

void TEMPLATE(encode_reals)(const encoding *e, row_block y, row_block o)
{
    encode_any(e, (walk_kind){.from_reals = true}, y, (row_block){0}, o);
}

void TEMPLATE(decode_reals)(const encoding *e, row_block grad_o, row_block g)
{
    encode_any(e, (walk_kind){.transposed = true, .to_reals = true}, grad_o, (row_block){0}, g);
}

/* One function for each norm and kind of result. */
#define TURN(name, reals, step)                                                                                        \
    static NOINLINE void turn_##name(const encoding *e, row_block x, row_block o)                                      \
    {                                                                                                                  \
        encode_any(e, (walk_kind){.to_reals = reals, .turns = true, .norm = step}, x, (row_block){0}, o);              \
    }
TURN(normed, false, NORM)
TURN(rounded, false, NORM_ROUNDED)
TURN(to_reals, true, NO_NORM)
TURN(normed_to_reals, true, NORM)
TURN(rounded_to_reals, true, NORM_ROUNDED)
#undef TURN

void TEMPLATE(turn)(const encoding *e, bool to_reals, row_block x, row_block o)
{
    if (e->norm == NULL)
        (to_reals ? turn_to_reals : encode_none)(e, x, o);
    else if (!FULL_WIDTH && e->norm->round_between) /* at full width storage has reals as they are */
        (to_reals ? turn_rounded_to_reals : turn_rounded)(e, x, o);
    else
        (to_reals ? turn_normed_to_reals : turn_normed)(e, x, o);
}
