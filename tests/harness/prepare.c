/* From a case to values: inputs of each slot, saved tensors of a forward, and the oracle's outputs. */
#include "tests/harness/prepare.h"
#include "tests/harness/fill.h"
#include "tests/harness/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a problem that is only described, tensors have no values. */
static int make_room(const check_problem *p, oracle_tensor *tensor)
{
    if (p->described)
        return 0;
    size_t count = (size_t)oracle_count(tensor);
    tensor->value = calloc(count * 4 + 1, sizeof *tensor->value);
    if (tensor->value == NULL) {
        return -1;
    }
    tensor->term = tensor->value + count;
    tensor->turn = tensor->term + count;
    tensor->room = tensor->turn + count;
    return 0;
}

oracle_tensor *check_add_input(check_problem *p, int slot, check_type type, int rank, const int64_t *shape)
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

int check_fill_input(check_problem *p, int slot, check_type type, int rank, const int64_t *shape, check_fill fill,
                     uint64_t *state)
{
    oracle_tensor *tensor = check_add_input(p, slot, type, rank, shape);
    if (tensor == NULL) {
        return -1;
    }
    if (!p->described)
        check_fill_values(tensor, type, fill, check_repeats_of(&p->c, slot), state);
    return 0;
}

int check_add_output(check_problem *p, int slot, check_type type)
{
    oracle_infer(&p->c.op, &p->args, slot, &p->out[slot]);
    p->out_type[slot] = type;
    p->args.out[slot] = &p->out[slot];
    return make_room(p, &p->out[slot]);
}

int check_add_updated(check_problem *p, int slot, check_type type, int rank, const int64_t *shape, uint64_t *state)
{
    oracle_tensor *tensor = &p->out[slot];
    tensor->rank = rank;
    memcpy(tensor->shape, shape, (size_t)rank * sizeof *shape);
    p->out_type[slot] = type;
    p->args.out[slot] = tensor;
    if (p->described)
        return 0;
    const size_t count = (size_t)oracle_count(tensor);
    p->before[slot] = calloc(count + 1, sizeof *p->before[slot]);
    if (make_room(p, tensor) != 0 || p->before[slot] == NULL)
        return -1;
    check_fill_values(tensor, type, CHECK_SPECIAL, 0, state);
    memcpy(p->before[slot], tensor->value, count * sizeof *tensor->value);
    return 0;
}

static void round_all(oracle_tensor *tensor, check_type type)
{
    for (int64_t i = 0; i < oracle_count(tensor); i++) {
        tensor->value[i] = check_round(type, tensor->value[i]);
    }
}

/* The output that the forward would have saved. */
static int save_output(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    const bool softmax = c->op.act.act == COPES_ACT_SOFTMAX;
    oracle_tensor *saved = check_add_input(p, COPES_ACT_O, c->type, c->rank, c->shape);
    oracle_tensor x = p->in[COPES_ACT_O];
    if (saved == NULL || make_room(p, &x) != 0) {
        return -1;
    }
    if (p->described)
        return 0;
    check_fill_values(&x, c->type, !softmax || c->fill == CHECK_WIDE ? c->fill : CHECK_NORMAL,
                      check_repeats_of(c, COPES_ACT_O), state);
    copes_op forward = {.kind = COPES_ACT_FORWARD, .act = c->op.act};
    oracle_args args = {.in = {[COPES_ACT_X] = &x}, .out = {saved}, .tiny = p->args.tiny};
    int status = oracle_run(&forward, &args);
    round_all(saved, c->type);
    free(x.value);
    return status;
}

/* Any bits, those past the last element among them. */
static int fill_mask(check_problem *p, uint64_t *state)
{
    int64_t shape[COPES_MAX_RANK];
    memcpy(shape, p->c.shape, sizeof shape);
    shape[p->c.rank - 1] = (shape[p->c.rank - 1] + 7) / 8;
    return check_fill_input(p, COPES_ACT_MASK, CHECK_BYTE, p->c.rank, shape, CHECK_EVERY, state);
}

static check_type wide_of(const check_case *c)
{
    return c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32;
}

/* What other shares have: of a log sum exp less or more, or far more; of a delta any number. Among special values infinities and
 * NaN, too. */
static void add_others(const check_case *c, bool logarithm, oracle_tensor *sums, uint64_t *state)
{
    const double far = check_below(state, 4) == 0 ? 60 : 3;
    for (int64_t i = 0; i < oracle_count(sums); i++) {
        const double drawn = (double)check_below(state, 1 << 20) * 0x1p-20;
        sums->value[i] += logarithm ? far * drawn : 4 * drawn - 2;
        if (c->fill == CHECK_SPECIAL && check_below(state, 8) == 0)
            sums->value[i] =
                check_below(state, 3) == 0 ? (double)NAN : (double)INFINITY * (check_below(state, 2) == 0 ? -1 : 1);
    }
    round_all(sums, wide_of(c));
}

/* The sums of all shares, as an input: the case's own by the oracle, and others. `forward` of the kind that gives them. */
static int give_sums(check_problem *p, int slot, copes_kind kind, int made, uint64_t *state)
{
    copes_op op = p->c.op;
    op.kind = kind;
    oracle_args args = p->args;
    oracle_tensor sums = {.rank = 0};
    oracle_infer(&op, &args, made, &sums);
    oracle_tensor *given = check_add_input(p, slot, wide_of(&p->c), sums.rank, sums.shape);
    if (given == NULL)
        return -1;
    if (p->described)
        return 0;
    memset(args.out, 0, sizeof args.out);
    args.out[made] = given;
    if (oracle_run(&op, &args) != 0)
        return -1;
    if (p->c.passes != CHECK_WHOLE)
        add_others(&p->c, kind == COPES_ACT_FORWARD || kind == COPES_LRPE_FORWARD, given, state);
    round_all(given, wide_of(&p->c));
    return 0;
}

static int prepare_act_backward(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    copes_act act = c->op.act.act;
    if (check_fill_input(p, COPES_ACT_GRAD_O, c->type, c->rank, c->shape, c->fill, state) != 0) {
        return -1;
    }
    if (c->any_gradient && !p->described) {
        check_fill_finite(&p->in[COPES_ACT_GRAD_O], c->type, state);
    }
    if (c->kept >= CHECK_KEPT_MASK) {
        const int status = fill_mask(p, state);
        if (status != 0 || c->kept == CHECK_KEPT_MASK)
            return status;
    }
    if (act == COPES_ACT_SOFTMAX || c->kept != CHECK_KEPT_USUAL) {
        const int status = save_output(p, state);
        if (status != 0 || c->kept == CHECK_KEPT_USUAL || c->kept == CHECK_KEPT_OUTPUT)
            return status;
    }
    return act == COPES_ACT_NONE ? 0 : check_fill_input(p, COPES_ACT_X, c->type, c->rank, c->shape, c->fill, state);
}

static int prepare_act(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    const bool backward = c->op.kind == COPES_ACT_BACKWARD;
    const int status = backward ? prepare_act_backward(p, state)
                                : check_fill_input(p, COPES_ACT_X, c->type, c->rank, c->shape, c->fill, state);
    if (status != 0 || c->passes != CHECK_APPLY)
        return status;
    return give_sums(p, backward ? COPES_ACT_DELTA_ALL : COPES_ACT_LSE_ALL, c->op.kind, COPES_ACT_OUT_LSE, state);
}

/* Dimensions of a case's positions. */
static int dimensions_of(const check_case *c)
{
    const int grid_rank = oracle_rotation_of(&c->op).grid_rank;
    return c->position_rank == 3 ? c->dimensions : grid_rank > 0 ? grid_rank : 1;
}

static int fill_positions(check_problem *p, int positions_slot, uint64_t *state)
{
    const check_case *c = &p->c;
    const int slot = positions_slot + c->offsets, rank = c->offsets ? 1 : c->position_rank;
    const int64_t shape[3] = {c->dimensions, c->shape[0], c->shape[1]};
    if (rank == 0)
        return 0;
    oracle_tensor *tensor =
        check_add_input(p, slot, c->position_type, rank, c->offsets ? &c->shape[0] : shape + 3 - rank);
    if (tensor == NULL)
        return -1;
    p->args.positions_are_real = c->position_type == CHECK_F32;
    if (!p->described)
        check_fill_positions(tensor, c->position_type, c->positions, check_repeats_of(c, slot), state);
    return 0;
}

int check_fill_rotation(check_problem *p, int theta_slot, uint64_t *state)
{
    const check_case *c = &p->c;
    const int64_t theta_shape[3] = {dimensions_of(c), c->theta_shape[0], c->theta_shape[1]};
    oracle_tensor *theta = check_add_input(p, theta_slot, c->theta_type, c->theta_each ? 3 : 2,
                                           c->theta_each ? theta_shape : c->theta_shape);
    if (theta == NULL || fill_positions(p, theta_slot + 1, state) != 0) {
        return -1;
    }
    if (!p->described)
        check_fill_angles(theta, c->theta_type, c->angles, check_repeats_of(c, theta_slot), state);
    return 0;
}

static int prepare_lrpe(check_problem *p, uint64_t *state)
{
    const check_case *c = &p->c;
    if (check_fill_rotation(p, COPES_LRPE_THETA, state) != 0) {
        return -1;
    }
    bool backward = c->op.kind == COPES_LRPE_BACKWARD;
    if (!backward || c->op.lrpe.act != COPES_ACT_NONE || c->grad_theta) {
        if (check_fill_input(p, COPES_LRPE_X, c->type, c->rank, c->shape, c->fill, state) != 0) {
            return -1;
        }
    }
    if (!backward) {
        return c->passes == CHECK_APPLY
                   ? give_sums(p, COPES_LRPE_LSE_ALL, COPES_LRPE_FORWARD, COPES_LRPE_OUT_LSE, state)
                   : 0;
    }
    int64_t shape[COPES_MAX_RANK];
    memcpy(shape, c->shape, sizeof shape);
    shape[c->rank - 1] *= c->op.lrpe.variant == COPES_LRPE_COSINE ? 2 : 1;
    if (check_fill_input(p, COPES_LRPE_GRAD_O, c->type, c->rank, shape, c->fill, state) != 0) {
        return -1;
    }
    if (c->lse && give_sums(p, COPES_LRPE_LSE, COPES_LRPE_FORWARD, COPES_LRPE_OUT_LSE, state) != 0) {
        return -1;
    }
    return c->passes == CHECK_APPLY ? give_sums(p, COPES_LRPE_DELTA_ALL, COPES_LRPE_BACKWARD, COPES_LRPE_DELTA, state)
                                    : 0;
}

static int prepare_inputs(check_problem *p)
{
    uint64_t state = p->c.seed;
    switch (p->c.op.kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: return prepare_act(p, &state);
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: return prepare_lrpe(p, &state);
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD: return check_prepare_qk(p, &state);
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD: return check_prepare_merge(p, &state);
    case COPES_TPA_DECODE: break;
    }
    return check_prepare_tpa(p, &state);
}

/* Of the families whose inputs tell their outputs. */
static int add_outputs(check_problem *problem)
{
    const check_case *c = &problem->c;
    if (c->passes == CHECK_SUMS) {
        const int sums = c->op.kind == COPES_LRPE_BACKWARD ? COPES_LRPE_DELTA : COPES_LSE_OUT;
        return check_add_output(problem, sums, wide_of(c));
    }
    if (check_add_output(problem, COPES_FIRST_OUT, c->type) != 0) {
        return -1;
    }
    if (c->op.kind == COPES_ACT_FORWARD && c->kept == CHECK_KEPT_MASK) {
        return check_add_output(problem, COPES_ACT_OUT_MASK, CHECK_BYTE);
    }
    const bool lse = c->lse && c->passes == CHECK_WHOLE;
    const bool second = c->op.kind == COPES_LRPE_BACKWARD ? c->grad_theta : lse; /* grad_theta, or lse */
    return second ? check_add_output(problem, COPES_LSE_OUT, wide_of(c)) : 0;
}

/* Inputs and outputs, and the values of the inputs. */
static int arrange(check_problem *problem)
{
    const check_case *c = &problem->c;
    problem->args.tiny = check_type_of(c->type == CHECK_F64 ? CHECK_F64 : CHECK_F32)->normal;
    if (prepare_inputs(problem) != 0) {
        return -1;
    }
    return problem->args.out[COPES_FIRST_OUT] != NULL ? 0 : add_outputs(problem);
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
        free(problem->before[i]);
    }
    *problem = (check_problem){.in = {{.value = NULL}}};
}
