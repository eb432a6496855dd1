/* From a case to values: inputs of each slot, saved tensors of a forward, and the oracle's outputs. */
#include "tests/harness/fill.h"
#include "tests/harness/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a problem that is only described, tensors have no values. */
static int make_room(const check_problem *p, oracle_tensor *tensor)
{
    if (p->described)
        return 0;
    size_t count = (size_t)oracle_count(tensor);
    tensor->value = calloc(count * 3 + 1, sizeof *tensor->value);
    if (tensor->value == NULL) {
        return -1;
    }
    tensor->term = tensor->value + count;
    tensor->turn = tensor->term + count;
    return 0;
}

/* An input slot with room for its values. */
static oracle_tensor *add_input(check_problem *p, int slot, check_type type, int rank, const int64_t *shape)
{
    oracle_tensor *tensor = &p->in[slot];
    tensor->rank = rank;
    memcpy(tensor->shape, shape, (size_t)rank * sizeof *shape);
    p->in_type[slot] = type;
    if (make_room(p, tensor) != 0) {
        return NULL;
    }
    p->args.in[slot] = tensor;
    return tensor;
}

static int fill_input(check_problem *p, int slot, check_type type, int rank, const int64_t *shape, check_fill fill,
                      uint64_t *state)
{
    oracle_tensor *tensor = add_input(p, slot, type, rank, shape);
    if (tensor == NULL) {
        return -1;
    }
    if (!p->described)
        check_fill_values(tensor, type, fill, check_repeats_of(&p->c, slot), state);
    return 0;
}

static int add_output(check_problem *p, int slot, check_type type)
{
    oracle_infer(&p->c.op, &p->args, slot, &p->out[slot]);
    p->out_type[slot] = type;
    p->args.out[slot] = &p->out[slot];
    return make_room(p, &p->out[slot]);
}

static void round_all(oracle_tensor *tensor, check_type type)
{
    for (int64_t i = 0; i < oracle_count(tensor); i++) {
        tensor->value[i] = check_round(type, tensor->value[i]);
    }
}

/* The softmax that the forward would have saved. */
static int save_softmax(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    oracle_tensor *saved = add_input(p, COPES_ACT_O, c->type, c->rank, c->shape);
    oracle_tensor x = p->in[COPES_ACT_O];
    if (saved == NULL || make_room(p, &x) != 0) {
        return -1;
    }
    if (p->described)
        return 0;
    check_fill_values(&x, c->type, c->fill == CHECK_WIDE ? CHECK_WIDE : CHECK_NORMAL, check_repeats_of(c, COPES_ACT_O),
                      state);
    copes_op forward = {.kind = COPES_ACT_FORWARD, .act = c->op.act};
    oracle_args args = {.in = {[COPES_ACT_X] = &x}, .out = {saved}, .tiny = p->args.tiny};
    int status = oracle_run(&forward, &args);
    round_all(saved, c->type);
    free(x.value);
    return status;
}

static int prepare_act(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    copes_act act = c->op.act.act;
    if (c->op.kind == COPES_ACT_FORWARD) {
        return fill_input(p, COPES_ACT_X, c->type, c->rank, c->shape, c->fill, state);
    }
    if (fill_input(p, COPES_ACT_GRAD_O, c->type, c->rank, c->shape, c->fill, state) != 0) {
        return -1;
    }
    if (c->any_gradient && !p->described) {
        check_fill_finite(&p->in[COPES_ACT_GRAD_O], c->type, state);
    }
    if (act == COPES_ACT_SOFTMAX) {
        return save_softmax(p, state);
    }
    return act == COPES_ACT_NONE ? 0 : fill_input(p, COPES_ACT_X, c->type, c->rank, c->shape, c->fill, state);
}

/* The log sum exp that the forward would have saved. */
static int save_lse(check_problem *p)
{
    const check_case *c = &p->c;
    check_type type = c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32;
    copes_op forward = {.kind = COPES_LRPE_FORWARD, .lrpe = c->op.lrpe};
    oracle_args args = p->args;
    memset(args.out, 0, sizeof args.out);
    oracle_tensor o, lse;
    oracle_infer(&forward, &args, COPES_LRPE_OUT, &o);
    oracle_infer(&forward, &args, COPES_LRPE_OUT_LSE, &lse);
    oracle_tensor *saved = add_input(p, COPES_LRPE_LSE, type, lse.rank, lse.shape);
    if (saved == NULL || make_room(p, &o) != 0) {
        return -1;
    }
    if (p->described)
        return 0;
    args.out[COPES_LRPE_OUT] = &o;
    args.out[COPES_LRPE_OUT_LSE] = saved;
    int status = oracle_run(&forward, &args);
    round_all(saved, type);
    free(o.value);
    return status;
}

/* Dimensions of a case's positions. */
static int dimensions_of(const check_case *c)
{
    return c->position_rank == 3 ? c->dimensions : c->op.lrpe.grid_rank > 0 ? c->op.lrpe.grid_rank : 1;
}

static int prepare_positions(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    const int slot = c->offsets ? COPES_LRPE_OFFSETS : COPES_LRPE_POSITIONS, rank = c->offsets ? 1 : c->position_rank;
    const int64_t shape[3] = {c->dimensions, c->shape[0], c->shape[1]};
    if (rank == 0)
        return 0;
    oracle_tensor *tensor = add_input(p, slot, c->position_type, rank, c->offsets ? &c->shape[0] : shape + 3 - rank);
    if (tensor == NULL)
        return -1;
    p->args.positions_are_real = c->position_type == CHECK_F32;
    if (!p->described)
        check_fill_positions(tensor, c->position_type, c->positions, check_repeats_of(c, slot), state);
    return 0;
}

static int prepare_lrpe(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    const int64_t theta_shape[3] = {dimensions_of(c), c->theta_shape[0], c->theta_shape[1]};
    oracle_tensor *theta = add_input(p, COPES_LRPE_THETA, c->theta_type, c->theta_each ? 3 : 2,
                                     c->theta_each ? theta_shape : c->theta_shape);
    if (theta == NULL || prepare_positions(p, state) != 0) {
        return -1;
    }
    if (!p->described)
        check_fill_angles(theta, c->theta_type, c->angles, check_repeats_of(c, COPES_LRPE_THETA), state);
    bool backward = c->op.kind == COPES_LRPE_BACKWARD;
    if (!backward || c->op.lrpe.act != COPES_ACT_NONE || c->grad_theta) {
        if (fill_input(p, COPES_LRPE_X, c->type, c->rank, c->shape, c->fill, state) != 0) {
            return -1;
        }
    }
    if (!backward) {
        return 0;
    }
    int64_t shape[COPES_MAX_RANK];
    memcpy(shape, c->shape, sizeof shape);
    shape[c->rank - 1] *= c->op.lrpe.variant == COPES_LRPE_COSINE ? 2 : 1;
    if (fill_input(p, COPES_LRPE_GRAD_O, c->type, c->rank, shape, c->fill, state) != 0) {
        return -1;
    }
    return c->lse ? save_lse(p) : 0;
}

/* What lies past a cache's length is ignored, be it NaN. */
static void spoil_rest_of_cache(check_problem *p)
{
    const int64_t m = p->c.attention.m;
    for (int slot = COPES_TPA_AK; slot <= COPES_TPA_BV; slot++) {
        oracle_tensor *tensor = &p->in[slot];
        const int64_t count = oracle_count(tensor), rows = m * tensor->shape[0], width = rows == 0 ? 0 : count / rows;
        const bool shared = (check_repeats_of(&p->c, slot) & 3) != 0; /* by entries of other lengths, or other keys */
        for (int64_t i = 0; width > 0 && i < count && !shared; i++) {
            const bool ignored = (double)(i / width % m) >= p->in[COPES_TPA_KV_LEN].value[i / width / m];
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

static int prepare_tpa(check_problem *p, uint64_t *state)
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
        if (fill_input(p, slot, c->type, slots[slot].rank, slots[slot].shape, fill, state) != 0) {
            return -1;
        }
        if (!p->described)
            adapt_factor(p, slot);
    }
    oracle_tensor *lengths = c->lengths ? add_input(p, COPES_TPA_KV_LEN, CHECK_I32, 1, &s->b) : NULL;
    if (lengths != NULL && !p->described) {
        check_fill_lengths(lengths, s->m, state);
        spoil_rest_of_cache(p);
    }
    return c->lengths && lengths == NULL ? -1 : 0;
}

static int prepare_inputs(check_problem *p)
{
    uint64_t state = p->c.seed;
    switch (p->c.op.kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: return prepare_act(p, &state);
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: return prepare_lrpe(p, &state);
    case COPES_TPA_DECODE: break;
    }
    return prepare_tpa(p, &state);
}

/* Inputs and outputs, and the values of the inputs. */
static int arrange(check_problem *problem)
{
    const check_case *c = &problem->c;
    problem->args.tiny = check_type_of(c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32)->normal;
    if (prepare_inputs(problem) != 0 || add_output(problem, COPES_FIRST_OUT, c->type) != 0) {
        return -1;
    }
    const bool backward = c->op.kind == COPES_LRPE_BACKWARD;
    const bool second = backward ? c->grad_theta : c->lse; /* grad_theta, or lse */
    return second ? add_output(problem, COPES_LSE_OUT, c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32) : 0;
}

int check_prepare(check_problem *problem, const check_case *c)
{
    *problem = (check_problem){.c = *c};
    return arrange(problem) == 0 ? oracle_run(&problem->c.op, &problem->args) : -1;
}

void check_describe(check_problem *problem, const check_case *c)
{
    *problem = (check_problem){.c = *c, .described = true};
    arrange(problem);
}

void check_problem_free(check_problem *problem)
{
    for (int i = 0; i < COPES_MAX_INPUTS; i++) {
        free(problem->in[i].value);
    }
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        free(problem->out[i].value);
    }
    *problem = (check_problem){.in = {{.value = NULL}}};
}
