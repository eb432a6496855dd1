/* Cases as text. */
#include "tests/harness/case.h"
#include "tests/oracle/oracle.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const acts[] = {"none", "relu", "sigmoid", "silu", "softmax"};
static const char *const fills[CHECK_FILLS] = {"normal", "wide", "special", "finite", "subnormal", "large",    "equal",
                                               "masked", "late", "rising",  "stray",  "every",     "positive", "tail"};
static const char *const position_names[CHECK_POSITIONS] = {"packed", "scattered", "far", "fraction", "odd"};
static const char *const kept[] = {"", " of_output", " of_output_beside_input", " mask", " mask_beside_others"};
static const char *const angle_names[CHECK_ANGLES] = {"rope", "any", "tiny", "huge", "odd"};

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

static void say_passes(line *l, check_passes passes)
{
    say(l, "%s", passes == CHECK_SUMS ? " sums" : passes == CHECK_APPLY ? " apply" : "");
}

static void say_rotation(line *l, const check_case *c)
{
    const copes_lrpe_attributes rotation = oracle_rotation_of(&c->op), *a = &rotation;
    int m = a->grid_rank > 0 ? a->grid_rank : 1;
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
    if (a->kv_first != 0 || a->kv_stride != 0 || a->kv_total != 0) {
        say(l, " kv=%lld+%lld:%lld", (long long)a->kv_first, (long long)a->kv_stride, (long long)a->kv_total);
    }
    say(l, " powers=%d,%d,%d,%d,%d,%d", c->powers[0], c->powers[1], c->powers[2], c->powers[3], c->powers[4],
        c->powers[5]);
}

static void say_qk(line *l, const check_case *c)
{
    static const char *const each[] = {"no", "one", "each"}, *const slots[CHECK_SLOTS] = {"any", "padded", "beyond"};
    const check_qk *s = &c->qk;
    say(l, "%s%s%s%s keys=%lld e=%lld weights=%s,%s:%s%s", s->k ? " k" : "", s->k_out ? " k_out" : "",
        s->k_cache ? " k_cache" : "", s->v_cache ? " v_cache" : "", (long long)s->key_heads, (long long)s->e,
        each[s->wq], each[s->wk], check_type_of(s->weight_type)->name, s->grad_weights ? " grad_weights" : "");
    if (s->k_cache || s->v_cache) {
        say(l, " cache=%lld,%lld:%s:%s scales=%s,%s", (long long)s->blocks, (long long)s->page,
            check_type_of(s->cache_type)->name, slots[s->slots], each[s->k_scale], each[s->v_scale]);
    }
    say(l, "%s eps=%g weight_offset=%g%s%s", s->packed ? " packed" : "", c->op.qk.eps, c->op.qk.weight_offset,
        c->op.qk.norm_over == COPES_QK_NORM_ALL_HEADS ? " all_heads" : "",
        c->op.qk.round_between ? " round_between" : "");
}

static void say_merge(line *l, const check_case *c)
{
    static const char *const kinds[CHECK_LSE_KINDS] = {"near", "equal", "apart", "extreme", "empty", "odd"};
    say(l, " base=%s lse_shares=%s%s", c->op.merge.base == COPES_LOG_BASE_2 ? "2" : "e", kinds[c->merge.lse],
        c->merge.grad_lse_shares ? " grad_lse_shares" : "");
}

const char *check_case_text(const check_case *c, char text[CHECK_CASE_TEXT])
{
    line l = {text, 0};
    say(&l, "%s %s %s", c->family, check_is_backward(&c->op) ? "backward" : "forward", check_type_of(c->type)->name);
    if (c->op.kind != COPES_TPA_DECODE) {
        say_list(&l, "x", c->rank, c->shape); /* or q */
    }
    switch (c->op.kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD:
        say_act(&l, c->op.act.act, c->op.act.dim);
        say_passes(&l, c->passes);
        say(&l, "%s", kept[c->kept]);
        break;
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD:
        say_act(&l, c->op.lrpe.act, c->op.lrpe.dim);
        say_passes(&l, c->passes);
        say_rotation(&l, c);
        break;
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD:
        say_qk(&l, c);
        say_rotation(&l, c);
        break;
    case COPES_TPA_DECODE: say_tpa(&l, c); break;
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD: say_merge(&l, c); break;
    }
    say(&l, "%s %s%s>%s %s", c->lse ? " lse" : "", check_layout_name(c->in_layout), c->mixed ? "+" : "",
        c->in_place ? "itself" : check_layout_name(c->out_layout), fills[c->fill]);
    say(&l, "%s", c->any_gradient ? " any_gradient" : "");
    say(&l, c->random ? " --seed %llu --cases 1" : " values=%llu", (unsigned long long)c->seed);
    return text;
}
