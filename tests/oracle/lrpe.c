/* The oracle's lrpe: the activation of the whole tensor, then the rotation of each element by its own angle, or cosine's
 * products; backward the other way round. */
#include "tests/oracle/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

typedef struct encoding {
    const copes_lrpe_attributes *op;
    oracle_rotation by;
    int64_t b, n, h, d; /* of x */
    int backward;
    real tiny;        /* oracle_args has it */
    oracle_axis axis; /* of softmax */
} encoding;

static encoding describe(const copes_op *op, const oracle_args *args)
{
    const oracle_tensor *wide = args->in[op->kind == COPES_LRPE_FORWARD ? COPES_LRPE_X : COPES_LRPE_GRAD_O];
    encoding c = {.op = &op->lrpe, .backward = op->kind == COPES_LRPE_BACKWARD, .tiny = (real)args->tiny};
    c.b = wide->shape[0];
    c.n = wide->shape[1];
    c.h = wide->rank == 4 ? wide->shape[2] : 1;
    c.d = wide->shape[wide->rank - 1] / (c.backward && op->lrpe.variant == COPES_LRPE_COSINE ? 2 : 1);
    int64_t rotary = op->lrpe.rotary_dim == 0 ? c.d - op->lrpe.rotary_begin : op->lrpe.rotary_dim;
    c.by = (oracle_rotation){.op = op->lrpe,
                             .theta = args->in[COPES_LRPE_THETA],
                             .positions = args->in[COPES_LRPE_POSITIONS],
                             .offsets = args->in[COPES_LRPE_OFFSETS],
                             .positions_are_real = args->positions_are_real,
                             .b = c.b,
                             .n = c.n,
                             .angles = op->lrpe.variant == COPES_LRPE_COSINE ? c.d : rotary / 2,
                             .by_row = op->lrpe.act == COPES_ACT_SOFTMAX && !c.backward,
                             .tiny = c.tiny};
    int over_sequence = op->lrpe.dim == -3;
    c.axis = over_sequence ? (oracle_axis){c.b, c.n, c.h * c.d} : (oracle_axis){c.b * c.n * c.h, c.d, 1};
    return c;
}

static void cosine_head(const encoding *c, int64_t b, int64_t token, int64_t head, const oracle_number *y,
                        oracle_number *o)
{
    oracle_number nothing = {0, 0, 0, 0};
    for (int64_t i = 0; i < c->d; i++) {
        real angle = oracle_angle_at(&c->by, b, token, head, i);
        o[i] = oracle_turned(&c->by, y[i], cosl(angle), nothing, 0);
        o[i + c->d] = oracle_turned(&c->by, y[i], sinl(angle), nothing, 0);
    }
}

static void cosine_head_transpose(const encoding *c, int64_t b, int64_t token, int64_t head, const oracle_number *o,
                                  oracle_number *y)
{
    for (int64_t i = 0; i < c->d; i++) {
        real angle = oracle_angle_at(&c->by, b, token, head, i);
        y[i] = oracle_turned(&c->by, o[i], cosl(angle), o[i + c->d], sinl(angle));
    }
}

/* From `from` to `to`, which rotate takes to be the same array. */
static void encode(const encoding *c, oracle_number *from, oracle_number *to)
{
    for (int64_t row = 0; row < c->b * c->n * c->h; row++) {
        int64_t b = row / c->h / c->n, token = row / c->h % c->n, head = row % c->h;
        if (c->op->variant == COPES_LRPE_ROTATE) {
            oracle_rotate_head(&c->by, b, token, head, c->backward ? -1 : 1, from + row * c->d);
        } else if (c->backward) {
            cosine_head_transpose(c, b, token, head, from + row * 2 * c->d, to + row * c->d);
        } else {
            cosine_head(c, b, token, head, from + row * c->d, to + row * 2 * c->d);
        }
    }
}

/* Of a backward: is the sequence in shares? */
static int is_share(const oracle_args *args)
{
    return args->in[COPES_LRPE_DELTA_ALL] != NULL || args->out[COPES_LRPE_DELTA] != NULL;
}

/* The forward's activation; a softmax over the sequence from the saved log sum exp. */
static void restore_activation(const encoding *c, const oracle_args *args, oracle_number *y)
{
    const double *x = args->in[COPES_LRPE_X]->value;
    if (args->in[COPES_LRPE_LSE] != NULL) {
        oracle_softmax_of_lse(c->axis, c->tiny, x, args->in[COPES_LRPE_LSE]->value, y);
        for (int64_t i = 0; i < c->b * c->n * c->h * c->d && !is_share(args); i++) {
            y[i].term = 0; /* beside the largest of its column */
        }
    } else {
        oracle_activate(c->op->act, c->axis, x, y);
    }
}

static void activation_backward(const encoding *c, const oracle_args *args, oracle_number *g, oracle_number *y)
{
    if (c->op->act == COPES_ACT_NONE) {
        return;
    }
    if (c->op->act != COPES_ACT_SOFTMAX) {
        oracle_gradient(c->op->act, c->b * c->n * c->h * c->d, (real)args->tiny, args->in[COPES_LRPE_X]->value, g);
        return;
    }
    restore_activation(c, args, y);
    if (args->in[COPES_LRPE_DELTA_ALL] != NULL) {
        oracle_gradient_of_delta(c->axis, y, args->in[COPES_LRPE_DELTA_ALL]->value, g);
    } else {
        oracle_softmax_gradient(c->axis, y, g);
    }
}

/* By angle i of a row: its derivative, and the sizes of the derivative's terms and of an error of the phase. What is below the
 * smallest normal number counts as that: its error is not relative to itself. So does the product, of doubles for every type. */
static oracle_number derivative_by_angle(const encoding *c, real angle, int64_t i, const double *grad_o,
                                         const oracle_number *y)
{
    real factor = oracle_amplitude(&c->by), cosine = factor * cosl(angle), sine = factor * sinl(angle);
    if (c->op->variant == COPES_LRPE_COSINE) {
        real along = (real)grad_o[i], across = (real)grad_o[i + c->d], size = fabsl(y[i].value) + y[i].term + c->tiny;
        return (oracle_number){y[i].value * (across * cosine - along * sine),
                               size * (fabsl(across * cosine) + fabsl(along * sine) + c->tiny) + (real)DBL_MIN,
                               size * fabsl(factor) * (fabsl(across) + fabsl(along)), 0};
    }
    int64_t half = c->op->pairing == COPES_LRPE_HALF, first = c->op->rotary_begin + (half ? i : 2 * i);
    int64_t second = half ? first + c->by.angles : first + 1;
    oracle_number a = y[first], b = y[second];
    real turned_a = a.value * cosine - b.value * sine, turned_b = a.value * sine + b.value * cosine;
    real size = fabsl(a.value) + fabsl(b.value) + a.term + b.term + c->tiny;
    real gradients = fabsl(factor) * (fabsl((real)grad_o[first]) + fabsl((real)grad_o[second]));
    return (oracle_number){(real)grad_o[second] * turned_a - (real)grad_o[first] * turned_b,
                           size * (gradients + c->tiny) + (real)DBL_MIN, size * gradients, 0};
}

/* The gradient of theta. */
static void store_grad_theta(const encoding *c, const oracle_args *args, const oracle_number *y, oracle_tensor *out)
{
    const double *grad_o = args->in[COPES_LRPE_GRAD_O]->value;
    int64_t wide = c->op->variant == COPES_LRPE_COSINE ? 2 * c->d : c->d;
    oracle_number *sums = calloc((size_t)oracle_count(out) + 1, sizeof *sums);
    for (int64_t row = 0; row < c->b * c->n * c->h; row++) {
        int64_t b = row / c->h / c->n, token = row / c->h % c->n, head = row % c->h;
        for (int64_t i = 0; i < c->by.angles; i++) {
            oracle_number d = derivative_by_angle(c, oracle_angle_at(&c->by, b, token, head, i), i, grad_o + row * wide,
                                                  y + row * c->d);
            for (int j = 0; j < oracle_dimensions(&c->by); j++) {
                oracle_position p = oracle_position_of(&c->by, b, token, j);
                int64_t place = oracle_theta_place(&c->by, head, i, j);
                if (place < 0 || !p.inside) {
                    continue;
                }
                real factor = (c->op->inverse ? -1 : 1) * ((real)p.whole + (real)p.real);
                oracle_number *sum = &sums[place];
                sum->value += factor * d.value;
                sum->term += fabsl(factor) * d.term;
                sum->turn += fabsl(factor) * d.turn;
            }
        }
    }
    oracle_store(sums, out);
    free(sums);
}

/* Room for the numbers of a call. */
typedef struct numbers {
    oracle_number *narrow, *wide, *spare; /* wide: for cosine's two halves */
    oracle_number *columns;               /* one for each */
} numbers;

static void run_forward(const encoding *c, const oracle_args *args, const numbers *at)
{
    const double *x = args->in[COPES_LRPE_X]->value;
    const oracle_tensor *given = args->in[COPES_LRPE_LSE_ALL];
    if (args->out[COPES_LRPE_OUT_LSE] != NULL) {
        oracle_lse(c->axis, x, at->columns);
        oracle_store(at->columns, args->out[COPES_LRPE_OUT_LSE]);
    }
    if (args->out[COPES_LRPE_OUT] == NULL) {
        return;
    }
    if (given != NULL) {
        oracle_softmax_of_lse(c->axis, c->tiny, x, given->value, at->narrow);
    } else {
        oracle_activate(c->op->act, c->axis, x, at->narrow);
    }
    encode(c, at->narrow, at->wide);
    oracle_store(c->op->variant == COPES_LRPE_ROTATE ? at->narrow : at->wide, args->out[COPES_LRPE_OUT]);
}

static void run_backward(const encoding *c, const oracle_args *args, const numbers *at)
{
    const double *grad = args->in[COPES_LRPE_GRAD_O]->value;
    oracle_number *from = c->op->variant == COPES_LRPE_ROTATE ? at->narrow : at->wide;
    if (args->out[COPES_LRPE_GRAD_THETA] != NULL) {
        restore_activation(c, args, at->narrow);
        store_grad_theta(c, args, at->narrow, args->out[COPES_LRPE_GRAD_THETA]);
    }
    for (int64_t i = 0; i < oracle_count(args->in[COPES_LRPE_GRAD_O]); i++) {
        from[i] = (oracle_number){(real)grad[i], fabsl((real)grad[i]), 0, 0};
    }
    encode(c, from, at->narrow);
    if (args->out[COPES_LRPE_DELTA] != NULL) {
        restore_activation(c, args, at->spare);
        oracle_delta(c->axis, c->tiny, at->spare, at->narrow, at->columns);
        oracle_store(at->columns, args->out[COPES_LRPE_DELTA]);
        return;
    }
    activation_backward(c, args, at->narrow, at->spare);
    oracle_store(at->narrow, args->out[COPES_LRPE_OUT]);
}

int oracle_run_lrpe(const copes_op *op, const oracle_args *args)
{
    encoding c = describe(op, args);
    int64_t count = c.b * c.n * c.h * c.d;
    oracle_number *all = calloc((size_t)(count * 4 + c.b * c.h * c.d) + 1, sizeof *all);
    if (all == NULL) {
        return -1;
    }
    const numbers at = {all, all + count, all + 3 * count, all + 4 * count};
    if (c.backward) {
        run_backward(&c, args, &at);
    } else {
        run_forward(&c, args, &at);
    }
    free(all);
    return 0;
}

void oracle_infer_lrpe(const copes_op *op, const oracle_args *args, int slot, oracle_tensor *out)
{
    encoding c = describe(op, args);
    const oracle_tensor *like = args->in[c.backward ? COPES_LRPE_GRAD_O : COPES_LRPE_X];
    if (slot == COPES_LRPE_GRAD_THETA && c.backward) {
        out->rank = c.by.theta->rank;
        for (int i = 0; i < out->rank; i++) {
            out->shape[i] = c.by.theta->shape[i];
        }
        return;
    }
    if (slot == (c.backward ? COPES_LRPE_DELTA : COPES_LRPE_OUT_LSE)) {
        out->rank = 3;
        out->shape[0] = c.b;
        out->shape[1] = c.h;
        out->shape[2] = c.d;
        return;
    }
    out->rank = like->rank;
    for (int i = 0; i < like->rank; i++) {
        out->shape[i] = like->shape[i];
    }
    out->shape[like->rank - 1] = op->lrpe.variant == COPES_LRPE_COSINE && !c.backward ? 2 * c.d : c.d;
}
