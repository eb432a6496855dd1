/* The tensors of tpa_decode's cases. */
#include "tests/harness/fill.h"
#include "tests/harness/prepare.h"

#include <math.h>

/* What lies past a cache's length is ignored, be it NaN. */
static void spoil_rest_of_cache(check_problem *p)
{
    const int64_t m = p->c.attention.m, step = p->c.op.tpa.kv_stride > 0 ? p->c.op.tpa.kv_stride : 1;
    for (int slot = COPES_TPA_AK; slot <= COPES_TPA_BV; slot++) {
        oracle_tensor *tensor = &p->in[slot];
        const int64_t count = oracle_count(tensor), rows = m * tensor->shape[0], width = rows == 0 ? 0 : count / rows;
        const bool shared = (check_repeats_of(&p->c, slot) & 3) != 0; /* by entries of other lengths, or other keys */
        for (int64_t i = 0; width > 0 && i < count && !shared; i++) {
            const double place = (double)(p->c.op.tpa.kv_first + i / width % m * step);
            const bool ignored = place >= p->in[COPES_TPA_KV_LEN].value[i / width / m];
            tensor->value[i] = ignored ? (double)NAN : tensor->value[i];
        }
    }
}

/* Brings a factor to the size that its case wants. CHECK_MASKED: scores are positive, or -inf. */
static void adapt_factor(check_problem *p, int slot)
{
    const check_case *c = &p->c;
    oracle_tensor *tensor = &p->in[slot];
    const bool masked = c->fill == CHECK_MASKED && slot < COPES_TPA_AV;
    for (int64_t i = 0; i < oracle_count(tensor); i++) {
        double value = ldexp(tensor->value[i], c->powers[slot]);
        if (masked) {
            const bool hidden = slot == COPES_TPA_AQ && i / c->attention.rq % c->attention.h % 2 == 0;
            value = hidden ? -(double)INFINITY : 0.5 + fabs(value) / 4;
        }
        tensor->value[i] = check_round(c->type, value);
    }
}

int check_prepare_tpa(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    const check_attention_shape *s = &c->attention;
    const int64_t keys[] = {s->b, s->m, s->h, s->rk}, key_rows[] = {s->b, s->m, s->rk, s->d};
    const int64_t values[] = {s->b, s->m, s->h, s->rv}, value_rows[] = {s->b, s->m, s->rv, s->e};
    const int64_t bare_key_rows[] = {s->b, s->m, s->d}, bare_value_rows[] = {s->b, s->m, s->e};
    const struct {
        int rank;
        const int64_t *shape;
    } slots[] = {{4, (const int64_t[]){s->b, s->n, s->h, s->rq}},
                 {4, (const int64_t[]){s->b, s->n, s->rq, s->d}},
                 {c->bare_keys ? 3 : 4, keys},
                 {c->bare_keys ? 3 : 4, c->bare_keys ? bare_key_rows : key_rows},
                 {c->bare_values ? 3 : 4, values},
                 {c->bare_values ? 3 : 4, c->bare_values ? bare_value_rows : value_rows}};
    for (int slot = COPES_TPA_AQ; slot <= COPES_TPA_BV; slot++) {
        const check_fill fill = c->fill == CHECK_MASKED ? CHECK_NORMAL : c->fill;
        if (check_fill_input(p, slot, c->type, slots[slot].rank, slots[slot].shape, fill, state) != 0) {
            return -1;
        }
        if (!p->described)
            adapt_factor(p, slot);
    }
    oracle_tensor *lengths = c->lengths ? check_add_input(p, COPES_TPA_KV_LEN, CHECK_I32, 1, &s->b) : NULL;
    if (lengths != NULL && !p->described) {
        check_fill_lengths(lengths, c->op.tpa.kv_total > 0 ? c->op.tpa.kv_total : s->m, state);
        spoil_rest_of_cache(p);
    }
    return c->lengths && lengths == NULL ? -1 : 0;
}
