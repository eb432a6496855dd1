/* Cases of tpa_decode: ranks, with and without an axis, lengths of caches, causal queries, and scales. */
#include "tests/differential/draw.h"

#include "tests/harness/random.h"

#include <math.h>

enum { MOST_KEYS = 2900 };

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static double draw_scale(uint64_t *state)
{
    static const double scales[] = {1, -0.5, 2, 0.25, -3};
    return draw_chance(state, 6) ? scales[check_below(state, 5)] : 0;
}

/* The scale with which scores of normal values are about 1 / 4. */
static double small_scale(const check_case *c)
{
    const check_attention_shape *s = &c->attention;
    const copes_tpa_attributes *a = &c->op.tpa;
    const double q = a->scale_q != 0 ? a->scale_q : 1 / (double)s->rq,
                 k = a->scale_k != 0 ? a->scale_k : 1 / (double)s->rk;
    return 0.25 / (sqrt((double)(s->d * s->rq * s->rk)) * q * k);
}

static void draw_scales(check_case *c, uint64_t *state)
{
    copes_tpa_attributes *a = &c->op.tpa;
    a->scale_q = draw_scale(state);
    a->scale_k = draw_scale(state);
    a->scale_v = draw_scale(state);
    a->scale = draw_chance(state, 4) ? 0.7 / sqrt((double)c->attention.d) : 0;
}

/* Normal values have small scores in half of the cases: large ones leave one key with all the weight, and sums of one. */
void draw_attention_fill(check_case *c, uint64_t *state)
{
    switch (check_below(state, 8)) {
    case 0: c->fill = CHECK_EQUAL; break;
    case 1: c->fill = CHECK_SUBNORMAL; break;
    case 2: c->fill = CHECK_POSITIVE; break;
    default: c->fill = CHECK_NORMAL; break;
    }
    if (c->fill == CHECK_NORMAL && draw_chance(state, 2))
        c->op.tpa.scale = small_scale(c);
}

/* Ranks, heads and features of any kind, and keys within `room`, and within what the oracle does in a moment. */
static void draw_wide(check_attention_shape *s, int64_t room, uint64_t *state)
{
    const int64_t features = room < 140 ? room : 140;
    *s = (check_attention_shape){.b = draw_length(state, 3), .d = draw_length(state, features)};
    s->e = draw_length(state, features);
    s->n = draw_chance(state, 2) ? 1 : draw_length(state, 5);
    s->h = draw_length(state, draw_chance(state, 4) ? 40 : 5);
    s->rq = draw_length(state, 6);
    s->rk = draw_length(state, 4);
    s->rv = draw_length(state, 4);
    const int64_t width = larger(larger(s->rk * s->d, s->rv * s->e), s->h * larger(s->rk, s->rv));
    const int64_t work = s->h * (s->rk * s->d + s->rv * s->e + s->n * (s->d + s->e));
    const int64_t fit = 1 + 64000 / (s->b * width), quick = 1 + 400 * room / (s->b * work);
    const int64_t keys = fit < quick ? fit : quick;
    s->m = draw_length(state, keys < MOST_KEYS ? keys : MOST_KEYS);
}

/* So many keys that they are cut into parts. */
static void draw_long(check_attention_shape *s, uint64_t *state)
{
    *s = (check_attention_shape){.b = draw_length(state, 2), .m = draw_between(state, 1000, MOST_KEYS)};
    s->n = draw_length(state, 3);
    s->h = draw_length(state, 2);
    s->d = draw_length(state, 9);
    s->e = draw_length(state, 9);
    s->rq = draw_length(state, 2);
    s->rk = draw_length(state, 2);
    s->rv = draw_length(state, 2);
}

/* A tensor without elements, at times. (0 ranks are refused, and so are keys without features.) */
static void draw_nothing(check_attention_shape *s, uint64_t *state)
{
    switch (check_below(state, 500)) {
    case 0: s->m = 0; break;
    case 1: s->e = 0; break;
    case 2: s->n = 0; break;
    default: break;
    }
}

void draw_attention(check_case *c, int64_t room, uint64_t *state)
{
    check_attention_shape *s = &c->attention;
    c->op.kind = COPES_TPA_DECODE;
    if (draw_chance(state, 30))
        draw_long(s, state);
    else
        draw_wide(s, room, state);
    draw_nothing(s, state);
    c->bare_keys = s->rk == 1 && draw_chance(state, 2);
    c->bare_values = s->rv == 1 && draw_chance(state, 2);
    c->lengths = draw_chance(state, 2);
    c->lse = true;
    c->op.tpa.causal = (int32_t)check_below(state, 2);
    draw_scales(c, state);
    uint64_t apart = ~c->seed; /* shares came later, and leave to the others their seeds */
    if (draw_chance(&apart, 4))
        c->op.tpa = check_share_of(c->op.tpa, s->m, &apart);
}
