/* What follows from a case for its tensors, lists of cases, and the table of families. */
#include "tests/harness/case.h"
#include "tests/harness/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const check_family check_families[] = {
    {"act", check_act_table, check_act_random},
    {"lrpe_rotate", check_rotate_table, check_rotate_random},
    {"lrpe_cosine", check_cosine_table, check_cosine_random},
    {"tpa_decode", check_tpa_table, check_tpa_random},
    {"qk_norm_rope", check_qk_table, check_qk_random},
    {"attention_merge", check_merge_table, check_merge_random},
};
const size_t check_family_count = sizeof check_families / sizeof *check_families;

bool check_is_backward(const copes_op *op)
{
    return op->kind == COPES_ACT_BACKWARD || op->kind == COPES_LRPE_BACKWARD ||
           op->kind == COPES_QK_NORM_ROPE_BACKWARD || op->kind == COPES_ATTENTION_MERGE_BACKWARD;
}

/* Can the softmax lie in shares? */
static bool takes_shares(const copes_op *op)
{
    if (op->kind == COPES_ACT_FORWARD || op->kind == COPES_ACT_BACKWARD)
        return op->act.act == COPES_ACT_SOFTMAX;
    const bool lrpe = op->kind == COPES_LRPE_FORWARD || op->kind == COPES_LRPE_BACKWARD;
    return lrpe && op->lrpe.act == COPES_ACT_SOFTMAX && op->lrpe.dim == -3;
}

void check_draw_passes(check_case *c, uint64_t *state)
{
    const check_passes passes = (check_passes)check_below(state, 3);
    if (!takes_shares(&c->op) || passes == CHECK_WHOLE)
        return;
    c->passes = passes;
    c->in_place = c->in_place && passes == CHECK_APPLY;
    c->lse = c->op.kind == COPES_LRPE_BACKWARD;
    c->grad_theta = c->grad_theta && passes == CHECK_APPLY;
}

void check_draw_kept(check_case *c, uint64_t *state)
{
    const bool backward = c->op.kind == COPES_ACT_BACKWARD, relu = c->op.act.act == COPES_ACT_RELU;
    if (backward && (relu || c->op.act.act == COPES_ACT_SIGMOID))
        c->kept = (check_kept)check_below(state, relu ? CHECK_KEPT_ALL + 1 : CHECK_KEPT_BOTH + 1);
    if (c->op.kind == COPES_ACT_FORWARD && relu && check_below(state, 2) == 0)
        c->kept = CHECK_KEPT_MASK;
}

static bool is_qk(const copes_op *op)
{
    return op->kind == COPES_QK_NORM_ROPE_FORWARD || op->kind == COPES_QK_NORM_ROPE_BACKWARD;
}

int check_lead_slot(const copes_op *op)
{
    switch (op->kind) {
    case COPES_ACT_BACKWARD: return COPES_ACT_GRAD_O;
    case COPES_LRPE_BACKWARD: return COPES_LRPE_GRAD_O;
    case COPES_QK_NORM_ROPE_BACKWARD: return COPES_QK_GRAD_Q_OUT;
    case COPES_ACT_FORWARD:
    case COPES_LRPE_FORWARD:
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_TPA_DECODE:
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD: break;
    }
    return 0;
}

int check_replaced(const check_case *c, int output)
{
    if (!c->in_place || (output != COPES_FIRST_OUT && !(is_qk(&c->op) && output == COPES_QK_K_OUT)))
        return -1;
    return check_lead_slot(&c->op) + output; /* keys follow queries */
}

bool check_is_updated(const copes_op *op, int output)
{
    return op->kind == COPES_QK_NORM_ROPE_FORWARD && (output == COPES_QK_K_CACHE || output == COPES_QK_V_CACHE);
}

int64_t check_packed_head(const check_case *c, int slot)
{
    if (!is_qk(&c->op) || !c->qk.packed)
        return -1;
    switch (slot) {
    case COPES_QK_Q: return 0;
    case COPES_QK_K: return c->shape[2];
    case COPES_QK_V: return c->shape[2] + (c->qk.k ? c->qk.key_heads : 0);
    default: return -1;
    }
}

bool check_packed_shape(const check_case *c, int64_t shape[4])
{
    memcpy(shape, c->shape, 4 * sizeof *shape);
    shape[2] += c->qk.k ? c->qk.key_heads : 0;
    shape[2] += c->qk.v_cache ? c->qk.key_heads : 0;
    return check_packed_head(c, COPES_QK_Q) >= 0;
}

/* A tensor that is written, whose entries are made of others, or must differ, cannot repeat along its first axis. */
static bool may_repeat(const check_case *c, int slot)
{
    switch (c->op.kind) {
    case COPES_LRPE_BACKWARD:
        if (slot == COPES_LRPE_LSE || slot == COPES_LRPE_DELTA_ALL) {
            return false;
        }
        break;
    case COPES_LRPE_FORWARD:
        if (slot == COPES_LRPE_LSE_ALL) {
            return false;
        }
        break;
    case COPES_ACT_FORWARD:
        if (slot == COPES_ACT_LSE_ALL) {
            return false;
        }
        break;
    case COPES_ACT_BACKWARD:
        if (slot == COPES_ACT_DELTA_ALL) {
            return false;
        }
        break;
    case COPES_TPA_DECODE:
        if (slot == COPES_TPA_KV_LEN) {
            return false;
        }
        break;
    case COPES_QK_NORM_ROPE_FORWARD:
        if (slot == COPES_QK_SLOTS || check_packed_head(c, slot) >= 0) {
            return false;
        }
        break;
    case COPES_QK_NORM_ROPE_BACKWARD:
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD: break;
    }
    return check_replaced(c, COPES_FIRST_OUT) != slot && check_replaced(c, COPES_QK_K_OUT) != slot;
}

check_layout check_layout_of(const check_case *c, int slot)
{
    const int from = check_packed_head(c, slot) >= 0 ? COPES_QK_Q : slot; /* a pack has the layout of its first part */
    check_layout layout = c->mixed ? (check_layout)(((int)c->in_layout + 4 * from) % CHECK_LAYOUTS) : c->in_layout;
    return layout == CHECK_BROADCAST && !may_repeat(c, slot) ? CHECK_DENSE : layout;
}

unsigned check_repeats_of(const check_case *c, int slot)
{
    return c->repeats[slot] | (check_layout_of(c, slot) == CHECK_BROADCAST);
}

double check_factor(const check_case *c, double factor)
{
    return check_round(c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32, factor);
}

/* A norm squares: what has a square past the arithmetic's range has no mean there, though its norm has a value. Infinities
 * do: with them r is 0, and what they are in is NaN, the rest of it 0. */
static bool norm_makes_sense(const check_case *c, bool huge)
{
    const bool normed = c->qk.wq != CHECK_NO_WEIGHTS || c->qk.wk != CHECK_NO_WEIGHTS;
    const bool enlarged = fabs(c->op.qk.amplitude) > 1;
    return !huge || c->type == CHECK_F16 || !(normed || enlarged);
}

bool check_makes_sense(const check_case *c)
{
    const bool huge =
        c->fill == CHECK_LARGE || c->fill == CHECK_FINITE || c->fill == CHECK_SPECIAL || c->fill == CHECK_EVERY;
    const bool infinite = c->fill == CHECK_MASKED || c->fill == CHECK_LATE;
    switch (c->op.kind) {
    case COPES_ACT_BACKWARD: return c->op.act.act != COPES_ACT_SOFTMAX || !huge || c->type == CHECK_F16;
    case COPES_LRPE_BACKWARD:
        if (!((c->op.lrpe.act <= COPES_ACT_RELU && !c->grad_theta) || !(huge || infinite) || c->type == CHECK_F16))
            return false;
        break;
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD: return norm_makes_sense(c, huge);
    case COPES_ATTENTION_MERGE_BACKWARD: return !huge && !infinite;
    case COPES_LRPE_FORWARD: break;
    case COPES_ACT_FORWARD:
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_TPA_DECODE: return true;
    }
    return !huge || fabs(c->op.lrpe.amplitude) <= 1 || c->type == CHECK_F16;
}

void case_list_add(case_list *list, const check_case *c)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity * 2 + 64;
        check_case *cases = realloc(list->cases, list->capacity * sizeof *cases);
        if (cases == NULL) {
            fputs("no memory for the table of cases\n", stderr);
            exit(1);
        }
        list->cases = cases;
    }
    list->cases[list->count++] = *c;
}

void case_list_free(case_list *list)
{
    free(list->cases);
    *list = (case_list){.cases = NULL};
}
