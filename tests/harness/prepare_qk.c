/* The tensors of qk_norm_rope's cases. */
#include "tests/harness/fill.h"
#include "tests/harness/prepare.h"
#include "tests/harness/random.h"

#include <stdlib.h>
#include <string.h>

static double to_f16(double value)
{
    return check_round(CHECK_F16, value);
}

static double to_bf16(double value)
{
    return check_round(CHECK_BF16, value);
}

static int fill_weights(check_problem *p, int slot, check_weights weights, int64_t heads, uint64_t *state)
{
    const check_case *c = &p->c;
    const int64_t shape[] = {heads, c->shape[3]};
    const int rank = weights == CHECK_WEIGHTS_EACH ? 2 : 1;
    const check_fill fill = c->fill == CHECK_WIDE ? CHECK_WIDE : CHECK_NORMAL;
    if (weights == CHECK_NO_WEIGHTS)
        return 0;
    return check_fill_input(p, slot, c->qk.weight_type, rank, shape + 2 - rank, fill, state);
}

static int fill_scales(check_problem *p, int slot, check_scales scales, uint64_t *state)
{
    const int64_t count = scales == CHECK_ONE_SCALE ? 1 : p->c.qk.key_heads;
    return scales == CHECK_NO_SCALE ? 0 : check_fill_input(p, slot, CHECK_F32, 1, &count, CHECK_POSITIVE, state);
}

/* A slot that names no place. */
static double nowhere(check_slots slots, int64_t places, uint64_t *state)
{
    const double beyond[] = {-1, (double)places, (double)places + 1, -2, -0x1p63, 0x1p63, 0x1p32, -0x1p32};
    return slots == CHECK_SOME_BEYOND ? beyond[check_below(state, sizeof beyond / sizeof *beyond)] : -1;
}

/* Places in any order, each for one token. */
static int fill_slots(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    const int64_t places = c->qk.blocks * c->qk.page;
    oracle_tensor *slots = check_add_input(p, COPES_QK_SLOTS, CHECK_I64, 2, c->shape);
    if (slots == NULL || p->described)
        return slots == NULL ? -1 : 0;
    int64_t *free_places = calloc((size_t)places + 1, sizeof *free_places), left = places;
    if (free_places == NULL)
        return -1;
    for (int64_t i = 0; i < places; i++)
        free_places[i] = i;
    for (int64_t i = 0; i < oracle_count(slots); i++) {
        const bool outside =
            c->qk.slots != CHECK_ANY_PLACE && check_below(state, 6) < (c->qk.slots == CHECK_SOME_PADDED ? 2 : 3);
        if (outside || left == 0) {
            slots->value[i] = nowhere(c->qk.slots, places, state);
            continue;
        }
        const int64_t at = check_below(state, left--);
        slots->value[i] = (double)free_places[at];
        free_places[at] = free_places[left];
    }
    free(free_places);
    return 0;
}

static int prepare_caches(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    const check_qk *s = &c->qk;
    const int64_t keys[] = {s->blocks, s->page, s->key_heads, c->shape[3]};
    const int64_t values[] = {s->blocks, s->page, s->key_heads, s->e};
    const int64_t rows[] = {c->shape[0], c->shape[1], s->key_heads, s->e};
    if (!s->k_cache && !s->v_cache)
        return 0;
    if (fill_slots(p, state) != 0)
        return -1;
    if (s->k_cache && (fill_scales(p, COPES_QK_K_SCALE, s->k_scale, state) != 0 ||
                       check_add_updated(p, COPES_QK_K_CACHE, s->cache_type, 4, keys, state) != 0))
        return -1;
    if (!s->v_cache)
        return 0;
    if (check_fill_input(p, COPES_QK_V, c->type, 4, rows, c->fill, state) != 0 ||
        fill_scales(p, COPES_QK_V_SCALE, s->v_scale, state) != 0)
        return -1;
    return check_add_updated(p, COPES_QK_V_CACHE, s->cache_type, 4, values, state);
}

/* The queries or the keys, and what became of them. */
static int prepare_side(check_problem *p, int which, uint64_t *state)
{
    const check_case *c = &p->c;
    const bool backward = check_is_backward(&c->op);
    const check_weights weights = which == 0 ? c->qk.wq : c->qk.wk;
    int64_t shape[COPES_MAX_RANK];
    memcpy(shape, c->shape, sizeof shape);
    shape[2] = which == 0 ? shape[2] : c->qk.key_heads;
    if (fill_weights(p, COPES_QK_WQ + which, weights, shape[2], state) != 0)
        return -1;
    if ((!backward || weights != CHECK_NO_WEIGHTS) &&
        check_fill_input(p, COPES_QK_Q + which, c->type, 4, shape, c->fill, state) != 0)
        return -1;
    if (backward && check_fill_input(p, COPES_QK_GRAD_Q_OUT + which, c->type, 4, shape, c->fill, state) != 0)
        return -1;
    if ((which == 0 || c->qk.k_out) && check_add_output(p, COPES_QK_Q_OUT + which, c->type) != 0)
        return -1;
    if (!backward || !c->qk.grad_weights || weights == CHECK_NO_WEIGHTS)
        return 0;
    return check_add_output(p, COPES_QK_GRAD_WQ + which, c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32);
}

int check_prepare_qk(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    p->args.shorten = c->type == CHECK_F16 ? to_f16 : c->type == CHECK_BF16 ? to_bf16 : NULL;
    if (check_fill_rotation(p, COPES_QK_THETA, state) != 0 || prepare_side(p, 0, state) != 0 ||
        (c->qk.k && prepare_side(p, 1, state) != 0))
        return -1;
    return check_is_backward(&c->op) ? 0 : prepare_caches(p, state);
}
