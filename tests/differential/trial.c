/* Arranging, running and judging the calls of a case. */
#include "tests/differential/trial.h"

#include "tests/differential/draw.h"
#include "tests/harness/random.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRANGEMENTS = 3, REPEAT_ONE_IN = 8, TEAM_ONE_IN = 16, MOST_SHIFT = 64 };

static bool fail(trial *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t->message, sizeof t->message, format, arguments);
    va_end(arguments);
    t->failed = true;
    return false;
}

static const copes_op *op_of(const trial *t)
{
    return &t->c.op;
}

static size_t bytes_of(const oracle_tensor *tensor, check_type type)
{
    return tensor == NULL ? 0 : (size_t)oracle_count(tensor) * (size_t)check_type_of(type)->size;
}

static unsigned char *encode(const oracle_tensor *tensor, const double *values, check_type type)
{
    const int size = check_type_of(type)->size;
    unsigned char *bytes = malloc(bytes_of(tensor, type) + 1);
    for (int64_t i = 0; i < oracle_count(tensor) && bytes != NULL; i++)
        check_encode(type, values[i], bytes + i * size);
    return bytes;
}

/* What tensors hold before a call. False: there is no memory for it. */
static bool encode_all(trial *t)
{
    const check_problem *p = &t->problem;
    bool all = true;
    for (int slot = 0; slot < COPES_MAX_INPUTS && all; slot++)
        if (p->args.in[slot] != NULL) {
            t->dense[slot] = encode(p->args.in[slot], p->args.in[slot]->value, p->in_type[slot]);
            all = t->dense[slot] != NULL;
        }
    for (int slot = 0; slot < COPES_MAX_OUTPUTS && all; slot++)
        if (p->before[slot] != NULL) {
            t->before[slot] = encode(p->args.out[slot], p->before[slot], p->out_type[slot]);
            all = t->before[slot] != NULL;
        }
    return all;
}

static bool prepare(trial *t, uint64_t seed)
{
    check_case *c = &t->c;
    *c = draw_case(seed);
    const bool ready = check_prepare(&t->problem, c) == 0 && encode_all(t);
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
        t->bytes += bytes_of(t->problem.args.out[slot], t->problem.out_type[slot]);
    t->got = malloc(t->bytes + 1);
    t->first = malloc(t->bytes + 1);
    return (ready && t->got != NULL && t->first != NULL) || fail(t, "no memory for the oracle");
}

static void release(trial *t)
{
    check_problem_free(&t->problem);
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++)
        free(t->dense[slot]);
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
        free(t->before[slot]);
    for (int i = 0; i < t->rights; i++)
        free(t->right[i]);
    free(t->got);
    free(t->first);
}

/* Has the operator a second output that may replace an input, and is no output left out? */
static bool has_keys(const copes_op *op)
{
    return op->kind == COPES_QK_NORM_ROPE_FORWARD || op->kind == COPES_QK_NORM_ROPE_BACKWARD;
}

static bool can_be_in_place(const trial *t)
{
    const copes_op *op = op_of(t);
    const bool lrpe = op->kind == COPES_LRPE_FORWARD || op->kind == COPES_LRPE_BACKWARD;
    const bool merge = op->kind == COPES_ATTENTION_MERGE_FORWARD || op->kind == COPES_ATTENTION_MERGE_BACKWARD;
    if (t->c.passes == CHECK_SUMS)
        return false;
    const bool has_form = op->kind != COPES_TPA_DECODE && !merge && (!lrpe || op->lrpe.variant == COPES_LRPE_ROTATE);
    const int lead = check_lead_slot(op);
    return has_form && t->c.repeats[lead] == 0 && (!has_keys(op) || t->c.repeats[lead + 1] == 0);
}

static bool asks_for(const trial *t, int slot)
{
    return t->problem.args.out[slot] != NULL && (slot != COPES_LSE_OUT || t->with_lse || t->c.passes == CHECK_SUMS);
}

/* Where every tensor lies. The output that replaces an input is at times the same descriptor, at times one like it. */
static void arrange(trial *t, uint64_t *state)
{
    t->c.in_place = can_be_in_place(t) && draw_chance(state, 4);
    t->with_lse = !draw_chance(state, 4) || has_keys(op_of(t));
    t->args = (copes_args){.in = {NULL}};
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++)
        if (t->problem.args.in[slot] != NULL) {
            const unsigned repeats = draw_chance(state, 8) ? 0 : t->c.repeats[slot];
            view_draw(&t->in[slot], t->problem.in_type[slot], t->problem.args.in[slot], repeats, slot, state);
            t->args.in[slot] = &t->in[slot].tensor;
        }
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        if (!asks_for(t, slot))
            continue;
        const int replaced = check_replaced(&t->c, slot);
        if (replaced >= 0)
            view_share(&t->out[slot], &t->in[replaced]);
        else
            view_draw(&t->out[slot], t->problem.out_type[slot], t->problem.args.out[slot], 0, ARENA_OUTPUTS + slot,
                      state);
        t->args.out[slot] = &t->out[slot].tensor;
    }
    if (t->c.in_place && draw_chance(state, 2))
        t->args.out[COPES_FIRST_OUT] = t->args.in[check_lead_slot(op_of(t))];
    t->drawn = true;
}

static void write_tensors(trial *t)
{
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++)
        if (t->args.in[slot] != NULL)
            view_write(&t->in[slot], t->poison, t->dense[slot]);
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
        if (t->args.out[slot] != NULL && check_replaced(&t->c, slot) < 0)
            view_write(&t->out[slot], t->poison, t->before[slot]);
}

/* As many bytes as asked for and no more, of any content, at any address. */
static bool make_workspace(trial *t, copes_context *context, uint64_t *state, unsigned char **start)
{
    const arena_region *r = arena_at(ARENA_WORKSPACE);
    if (copes_workspace_size(context, op_of(t), &t->args, &t->workspace_bytes) != COPES_OK)
        return fail(t, "copes_workspace_size: %s", copes_last_error());
    const size_t bytes = t->workspace_bytes;
    if (bytes + MOST_SHIFT > (size_t)(r->high - r->low))
        return fail(t, "the call asks for a workspace of %zu bytes", bytes);
    const size_t shift = draw_chance(state, 2) ? (size_t)check_below(state, MOST_SHIFT) : 0;
    *start = draw_chance(state, 2) ? r->low + shift : r->high - bytes - shift;
    t->workspace = arena_window_of(ARENA_WORKSPACE, *start, *start + bytes);
    memset(t->workspace.begin, t->poison, (size_t)(t->workspace.end - t->workspace.begin));
    return true;
}

static bool all_are(const unsigned char *begin, const unsigned char *end, unsigned char poison)
{
    return begin == end || (*begin == poison && memcmp(begin, begin + 1, (size_t)(end - begin) - 1) == 0);
}

static bool workspace_kept_to(trial *t, const unsigned char *start)
{
    return (all_are(t->workspace.begin, start, t->poison) &&
            all_are(start + t->workspace_bytes, t->workspace.end, t->poison)) ||
           fail(t, "memory around the workspace was written");
}

/* Gathers the outputs; all other bytes must be what they were. */
static bool read_tensors(trial *t)
{
    unsigned char *got = t->got;
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        if (!asks_for(t, slot))
            continue;
        if (!view_read(&t->out[slot], got))
            return fail(t, "memory between or around the elements of output %d was written", slot);
        got += bytes_of(t->problem.args.out[slot], t->problem.out_type[slot]);
    }
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++)
        if (t->args.in[slot] != NULL && !arena_kept(&t->in[slot].window))
            return fail(t, "input %d was written", slot);
    return true;
}

static void count_run(trial *t)
{
    const check_case *c = &t->c;
    const bool backward = check_is_backward(&c->op);
    for (int family = 0; family < TRIAL_FAMILIES; family++)
        if (check_families[family].name == c->family)
            t->counts.runs[family][backward][t->level][c->type][t->team]++;
    t->counts.all++;
}

/* One execution: the outputs' elements are then in t->got. */
static bool execute(trial *t, const trial_contexts *contexts, uint64_t *state)
{
    static const unsigned char poisons[] = {0xff, 0x5a, 0x00, 0x7f};
    copes_context *context = contexts->at[t->level][t->team];
    unsigned char *workspace = NULL;
    t->poison = poisons[check_below(state, sizeof poisons)];
    write_tensors(t);
    if (!make_workspace(t, context, state, &workspace))
        return false;
    if (copes_run(context, op_of(t), &t->args, t->workspace_bytes == 0 ? NULL : workspace, t->workspace_bytes) !=
        COPES_OK)
        return fail(t, "copes_run: %s", copes_last_error());
    count_run(t);
    return read_tensors(t) && workspace_kept_to(t, workspace);
}

static bool judge_output(trial *t, int slot, const unsigned char *got)
{
    const oracle_tensor *wanted = t->problem.args.out[slot];
    const check_type type = t->problem.out_type[slot];
    check_bound bound = check_bound_of(op_of(t), &t->problem.args, slot, type, (DLDevice){kDLCPU, 0});
    for (int64_t i = 0; i < oracle_count(wanted); i++) {
        bound.room = wanted->room[i];
        const double value = check_decode(type, got + i * check_type_of(type)->size);
        const check_verdict verdict =
            check_compare(bound, type, wanted->value[i], wanted->term[i], wanted->turn[i], value);
        if (verdict.beyond)
            return fail(t, "output %d, element %lld is %.9g, not %.9g (largest term %.4g): %.3g ulp", slot,
                        (long long)i, value, wanted->value[i], wanted->term[i], verdict.ulps);
    }
    return true;
}

/* Bits that were found right need no second look. */
static bool judge(trial *t)
{
    size_t asked = 0;
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
        asked += asks_for(t, slot) ? bytes_of(t->problem.args.out[slot], t->problem.out_type[slot]) : 0;
    for (int i = 0; i < t->rights; i++)
        if (memcmp(t->right[i], t->got, asked) == 0)
            return true;
    const unsigned char *got = t->got;
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        if (!asks_for(t, slot))
            continue;
        if (!judge_output(t, slot, got))
            return false;
        got += bytes_of(t->problem.args.out[slot], t->problem.out_type[slot]);
    }
    if (asked == t->bytes && t->rights < TRIAL_RIGHT && (t->right[t->rights] = malloc(t->bytes + 1)) != NULL)
        memcpy(t->right[t->rights++], t->got, t->bytes);
    return true;
}

/* The same call again, by more threads or not, and among other bytes. */
static bool execute_again(trial *t, const trial_contexts *contexts, int team, uint64_t *state)
{
    t->team = team;
    if (!execute(t, contexts, state))
        return false;
    return memcmp(t->got, t->first, t->bytes) == 0 || fail(t, "the same call gave other bits");
}

static bool run_level(trial *t, const trial_contexts *contexts, uint64_t *state)
{
    t->team = 0;
    memset(t->got, 0, t->bytes); /* an output that is not asked for stays so */
    if (!execute(t, contexts, state) || !judge(t))
        return false;
    memcpy(t->first, t->got, t->bytes);
    if (draw_chance(state, REPEAT_ONE_IN) && !execute_again(t, contexts, 0, state))
        return false;
    return !draw_chance(state, TEAM_ONE_IN) ||
           execute_again(t, contexts, 1 + (int)check_below(state, TRIAL_TEAMS - 1), state);
}

/* What is by chance hangs on the seed alone, not on the levels that the processor has. */
static bool run_arrangement(trial *t, const trial_contexts *contexts)
{
    uint64_t state = t->seed ^ (uint64_t)(t->arrangement + 1) << 56;
    arrange(t, &state);
    const uint64_t after = state;
    for (t->level = 0; t->level < LEVELS; t->level++) {
        state = after ^ (uint64_t)(t->level + 1) << 56;
        if (contexts->at[t->level][0] != NULL && !run_level(t, contexts, &state))
            return false;
    }
    return true;
}

bool trial_run(trial *t, const trial_contexts *contexts, uint64_t seed)
{
    const trial_counts counts = t->counts;
    *t = (trial){.seed = seed, .counts = counts};
    if (prepare(t, seed))
        while (t->arrangement < ARRANGEMENTS && run_arrangement(t, contexts))
            t->arrangement++;
    t->counts.cases++;
    release(t);
    return !t->failed;
}
