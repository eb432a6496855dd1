/* The tensors of attention_merge's cases. */
#include "tests/harness/fill.h"
#include "tests/harness/prepare.h"
#include "tests/harness/random.h"

#include <math.h>

static double one_lse(check_lse kind, check_type type, uint64_t *state)
{
    const double most = check_type_of(type)->most, near = 6 * check_uniform(state) - 3;
    const double extremes[] = {most, -most, most / 2, 0, -0.0, 1e30, -1e30, 88, -104, 1e-40};
    switch (kind) {
    case CHECK_LSE_EQUAL: return 1.75;
    case CHECK_LSE_APART: return 260 * check_uniform(state) - 130;
    case CHECK_LSE_EXTREME: return extremes[check_below(state, 10)];
    case CHECK_LSE_EMPTY: return check_below(state, 3) > 0 ? near : check_random(state) & 1 ? INFINITY : -INFINITY;
    case CHECK_LSE_ODD: return check_below(state, 12) > 0 ? one_lse(CHECK_LSE_EMPTY, type, state) : NAN;
    case CHECK_LSE_NEAR:
    case CHECK_LSE_KINDS: break;
    }
    return near;
}

/* Every fourth row of those with empty shares has no others. */
static void fill_lse(check_problem *p, uint64_t *state)
{
    oracle_tensor *lse = &p->in[COPES_MERGE_LSE_SHARES];
    const check_type type = p->in_type[COPES_MERGE_LSE_SHARES];
    const check_lse kind = p->c.merge.lse;
    const int64_t count = oracle_count(lse), rows = lse->shape[0] == 0 ? 1 : count / lse->shape[0];
    check_fill_values(lse, type, CHECK_NORMAL, check_repeats_of(&p->c, COPES_MERGE_LSE_SHARES), state);
    if (check_repeats_of(&p->c, COPES_MERGE_LSE_SHARES) != 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        const double value = one_lse(kind, type, state);
        const bool none = (kind == CHECK_LSE_EMPTY || kind == CHECK_LSE_ODD) && i % rows % 4 == 3;
        lse->value[i] = check_round(type, none && isfinite(value) ? -INFINITY : value);
    }
}

/* An empty share's o may hold anything. */
static void spoil_empty_shares(check_problem *p)
{
    const oracle_tensor *lse = &p->in[COPES_MERGE_LSE_SHARES];
    oracle_tensor *o = &p->in[COPES_MERGE_O_SHARES];
    const int64_t count = oracle_count(lse), e = o->shape[4];
    for (int64_t i = 0; i < count * e && check_repeats_of(&p->c, COPES_MERGE_O_SHARES) == 0; i++)
        if (isinf(lse->value[i / e]))
            o->value[i] = i & 1 ? (double)NAN : (double)INFINITY;
}

static int fill_shares(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    if (check_fill_input(p, COPES_MERGE_O_SHARES, c->type, 5, c->shape, c->fill, state) != 0)
        return -1;
    if (!p->described)
        spoil_empty_shares(p);
    return 0;
}

int check_prepare_merge(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    const check_type wide = c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32;
    const bool backward = c->op.kind == COPES_ATTENTION_MERGE_BACKWARD;
    if (check_add_input(p, COPES_MERGE_LSE_SHARES, wide, 4, c->shape) == NULL)
        return -1;
    if (!p->described)
        fill_lse(p, state);
    if ((!backward || c->merge.grad_lse_shares) && fill_shares(p, state) != 0)
        return -1;
    if (backward && check_fill_input(p, COPES_MERGE_GRAD_O, c->type, 4, c->shape + 1, c->fill, state) != 0)
        return -1;
    if (backward && c->lse && check_fill_input(p, COPES_MERGE_GRAD_LSE, wide, 3, c->shape + 1, c->fill, state) != 0)
        return -1;
    if (check_add_output(p, COPES_MERGE_OUT, c->type) != 0)
        return -1;
    const bool second = backward ? c->merge.grad_lse_shares : c->lse;
    return second ? check_add_output(p, COPES_MERGE_OUT_LSE, wide) : 0;
}
