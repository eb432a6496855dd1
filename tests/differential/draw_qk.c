/* Cases of qk_norm_rope: lrpe's rotations, with and without keys, norms, and caches of every type. */
#include "tests/differential/draw.h"

#include "tests/harness/random.h"

static void draw_norms(check_case *c, uint64_t *state)
{
    static const double sizes[] = {0, 1e-5, 1e-12, 0.25, 1e-30}, offsets[] = {0, 1, -0.5};
    c->qk.wq = (check_weights)check_below(state, CHECK_WEIGHTS_EACH + 1);
    c->qk.wk = c->qk.k ? (check_weights)check_below(state, CHECK_WEIGHTS_EACH + 1) : CHECK_NO_WEIGHTS;
    c->qk.weight_type = draw_chance(state, 2) ? c->type : CHECK_F32;
    c->qk.grad_weights = draw_chance(state, 2);
    c->op.qk.eps = check_factor(c, sizes[check_below(state, 5)]);
    c->op.qk.weight_offset = check_factor(c, offsets[check_below(state, 3)]);
    c->op.qk.norm_over = (copes_qk_norm)check_below(state, 2);
    c->op.qk.round_between = draw_chance(state, 3);
}

/* A cache of about as many places as there are tokens. */
static void draw_caches(check_case *c, uint64_t *state)
{
    const int64_t d = c->shape[3], tokens = c->shape[0] * c->shape[1];
    check_qk *qk = &c->qk;
    qk->k_cache = qk->k && draw_chance(state, 2);
    qk->v_cache = draw_chance(state, 2);
    qk->k_out = qk->k && (!qk->k_cache || draw_chance(state, 2));
    qk->e = draw_chance(state, 2) ? d : draw_length(state, d > 1 ? d : 1);
    qk->page = draw_length(state, 20);
    qk->blocks = draw_between(state, 0, tokens / qk->page + 1);
    qk->slots = (check_slots)check_below(state, CHECK_SLOTS);
    qk->cache_type = draw_chance(state, 2) ? c->type : draw_chance(state, 2) ? CHECK_F8 : CHECK_U8;
    if (qk->cache_type == c->type)
        return;
    qk->k_scale = (check_scales)check_below(state, CHECK_SCALES_EACH + 1);
    qk->v_scale = (check_scales)check_below(state, CHECK_SCALES_EACH + 1);
}

void draw_qk(check_case *c, int64_t room, uint64_t *state)
{
    c->op.lrpe.variant = COPES_LRPE_ROTATE;
    draw_lrpe(c, room, state);
    const bool backward = draw_chance(state, 3);
    c->op = (copes_op){.kind = backward ? COPES_QK_NORM_ROPE_BACKWARD : COPES_QK_NORM_ROPE_FORWARD,
                       .qk = check_qk_of_rotation(&c->op.lrpe)};
    c->lse = c->grad_theta = false;
    if (c->rank == 3) {
        c->shape[3] = c->shape[2];
        c->shape[2] = 1;
        c->rank = 4;
    }
    const int64_t heads = c->shape[2];
    c->qk.k = !draw_chance(state, 4);
    c->qk.key_heads = draw_chance(state, 2) ? heads : draw_between(state, 1, heads);
    if (c->qk.k && c->qk.key_heads != heads)
        c->theta_shape[0] = 1;
    c->qk.k_out = c->qk.k;
    draw_norms(c, state);
    if (!backward)
        draw_caches(c, state);
}
