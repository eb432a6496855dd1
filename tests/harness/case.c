/* Cases as text, lists of them, and the table of families. */
#include "tests/harness/case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const check_family check_families[] = {
    {"act", check_act_table, check_act_random},
    {"lrpe_rotate", check_rotate_table, check_rotate_random},
    {"lrpe_cosine", check_cosine_table, check_cosine_random},
    {"tpa_decode", check_tpa_table, check_tpa_random},
};
const size_t check_family_count = sizeof check_families / sizeof *check_families;

static const char *const acts[] = {"none", "relu", "sigmoid", "silu", "softmax"};
static const char *const fills[CHECK_FILLS] = {"normal", "wide", "special", "finite", "subnormal", "large",   "equal",
                                               "masked", "late", "rising",  "stray",  "every",     "positive"};
static const char *const position_names[CHECK_POSITIONS] = {"packed", "scattered", "far", "fraction", "odd"};
static const char *const angle_names[CHECK_ANGLES] = {"rope", "any", "tiny", "huge", "odd"};

int check_lead_slot(const copes_op *op)
{
    switch (op->kind) {
    case COPES_ACT_BACKWARD: return COPES_ACT_GRAD_O;
    case COPES_LRPE_BACKWARD: return COPES_LRPE_GRAD_O;
    case COPES_ACT_FORWARD:
    case COPES_LRPE_FORWARD:
    case COPES_TPA_DECODE: break;
    }
    return 0;
}

/* A tensor that is written, or whose entries are made of others, cannot repeat along its first axis. */
static bool may_repeat(const check_case *c, int slot)
{
    switch (c->op.kind) {
    case COPES_LRPE_BACKWARD:
        if (slot == COPES_LRPE_LSE) {
            return false;
        }
        break;
    case COPES_TPA_DECODE:
        if (slot == COPES_TPA_KV_LEN) {
            return false;
        }
        break;
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD:
    case COPES_LRPE_FORWARD: break;
    }
    return !c->in_place || slot != check_lead_slot(&c->op);
}

check_layout check_layout_of(const check_case *c, int slot)
{
    check_layout layout = c->mixed ? (check_layout)(((int)c->in_layout + 4 * slot) % CHECK_LAYOUTS) : c->in_layout;
    return layout == CHECK_BROADCAST && !may_repeat(c, slot) ? CHECK_DENSE : layout;
}

unsigned check_repeats_of(const check_case *c, int slot)
{
    return c->repeats[slot] | (check_layout_of(c, slot) == CHECK_BROADCAST);
}

void check_set_amplitude(check_case *c, double amplitude)
{
    c->op.lrpe.amplitude = check_round(c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32, amplitude);
}

bool check_makes_sense(const check_case *c)
{
    const bool huge =
        c->fill == CHECK_LARGE || c->fill == CHECK_FINITE || c->fill == CHECK_SPECIAL || c->fill == CHECK_EVERY;
    const bool infinite = c->fill == CHECK_MASKED || c->fill == CHECK_LATE;
    const bool enlarged = huge && fabs(c->op.lrpe.amplitude) > 1 && c->type != CHECK_F16; /* of lrpe */
    switch (c->op.kind) {
    case COPES_ACT_BACKWARD: return c->op.act.act != COPES_ACT_SOFTMAX || !huge || c->type == CHECK_F16;
    case COPES_LRPE_BACKWARD:
        return !enlarged &&
               ((c->op.lrpe.act <= COPES_ACT_RELU && !c->grad_theta) || !(huge || infinite) || c->type == CHECK_F16);
    case COPES_LRPE_FORWARD: return !enlarged;
    case COPES_ACT_FORWARD:
    case COPES_TPA_DECODE: break;
    }
    return true;
}

/* Text that grows to the right and is cut at its end. */
typedef struct line {
    char *text;
    size_t used;
} line;

static void say(line *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(l->text + l->used, CHECK_CASE_TEXT - l->used, format, arguments);
    va_end(arguments);
    l->used += length > 0 ? (size_t)length : 0;
    l->used = l->used < CHECK_CASE_TEXT ? l->used : CHECK_CASE_TEXT - 1;
}

static void say_list(line *l, const char *name, int count, const int64_t *values)
{
    say(l, " %s=", name);
    for (int i = 0; i < count; i++) {
        say(l, i == 0 ? "%lld" : ",%lld", (long long)values[i]);
    }
}

static void say_act(line *l, copes_act act, int dim)
{
    say(l, " act=%s", acts[act]);
    if (act == COPES_ACT_SOFTMAX) {
        say(l, ":%d", dim);
    }
}

static void say_lrpe(line *l, const check_case *c)
{
    const copes_lrpe_attributes *a = &c->op.lrpe;
    int m = a->grid_rank > 0 ? a->grid_rank : 1;
    say_act(l, a->act, a->dim);
    say_list(l, "theta", 2, c->theta_shape);
    say(l, ":%s:%s%s", check_type_of(c->theta_type)->name, angle_names[c->angles], c->theta_each ? ":each" : "");
    if (c->position_rank > 0 || c->offsets) {
        say(l, " %s=%d:%d:%s:%s", c->offsets ? "offsets" : "positions", c->position_rank, c->dimensions,
            check_type_of(c->position_type)->name, position_names[c->positions]);
    }
    say_list(l, "grid", a->grid_rank, a->grid);
    say_list(l, "offset", m, a->offset);
    say(l, " prefix=%lld suffix=%lld%s", (long long)a->prefix, (long long)a->suffix, a->pad_theta ? " pad_theta" : "");
    if (a->sections[0] + a->sections[1] + a->sections[2] + a->sections[3] > 0) {
        say_list(l, "sections", m, a->sections);
    }
    say(l, "%s%s", a->inverse ? " inverse" : "", c->grad_theta ? " grad_theta" : "");
    if (a->amplitude != 0) {
        say(l, " amplitude=%g", a->amplitude);
    }
    if (a->variant == COPES_LRPE_ROTATE) {
        say(l, " rotary=%lld+%lld %s", (long long)a->rotary_begin, (long long)a->rotary_dim,
            a->pairing == COPES_LRPE_HALF ? "half" : "interleaved");
    }
}

static void say_tpa(line *l, const check_case *c)
{
    const check_attention_shape *s = &c->attention;
    const copes_tpa_attributes *a = &c->op.tpa;
    say(l, " b=%lld n=%lld m=%lld h=%lld d=%lld e=%lld ranks=%lld,%lld,%lld", (long long)s->b, (long long)s->n,
        (long long)s->m, (long long)s->h, (long long)s->d, (long long)s->e, (long long)s->rq, (long long)s->rk,
        (long long)s->rv);
    say(l, "%s%s%s%s scale=%g,%g,%g,%g", c->bare_keys ? " bare_keys" : "", c->bare_values ? " bare_values" : "",
        c->lengths ? " kv_len" : "", a->causal ? " causal" : "", a->scale, a->scale_q, a->scale_k, a->scale_v);
    say(l, " powers=%d,%d,%d,%d,%d,%d", c->powers[0], c->powers[1], c->powers[2], c->powers[3], c->powers[4],
        c->powers[5]);
}

const char *check_case_text(const check_case *c, char text[CHECK_CASE_TEXT])
{
    line l = {text, 0};
    bool backward = c->op.kind == COPES_ACT_BACKWARD || c->op.kind == COPES_LRPE_BACKWARD;
    say(&l, "%s %s %s", c->family, backward ? "backward" : "forward", check_type_of(c->type)->name);
    if (c->op.kind != COPES_TPA_DECODE) {
        say_list(&l, "x", c->rank, c->shape);
    }
    switch (c->op.kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: say_act(&l, c->op.act.act, c->op.act.dim); break;
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: say_lrpe(&l, c); break;
    case COPES_TPA_DECODE: say_tpa(&l, c); break;
    }
    say(&l, "%s %s%s>%s %s", c->lse ? " lse" : "", check_layout_name(c->in_layout), c->mixed ? "+" : "",
        c->in_place ? "itself" : check_layout_name(c->out_layout), fills[c->fill]);
    say(&l, "%s", c->any_gradient ? " any_gradient" : "");
    say(&l, c->random ? " --seed %llu --cases 1" : " values=%llu", (unsigned long long)c->seed);
    return text;
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
