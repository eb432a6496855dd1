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

static void store_lse(const encoding *c, const double *x, oracle_tensor *out)
{
    for (int64_t row = 0; row < c->b * c->h * c->d; row++) {
        const double *start = x + row / (c->h * c->d) * c->n * c->h * c->d + row % (c->h * c->d);
        real largest = -(real)INFINITY, sum = 0;
        for (int64_t t = 0; t < c->n; t++) {
            largest = oracle_larger((real)start[t * c->h * c->d], largest);
        }
        largest = largest == -(real)INFINITY ? 0 : largest; /* of no tokens, or of nothing but -inf: the sum is 0 */
        for (int64_t t = 0; t < c->n; t++) {
            sum += expl((real)start[t * c->h * c->d] - largest);
        }
        out->value[row] = (double)(largest + logl(sum));
        out->term[row] = (double)oracle_larger(oracle_larger(fabsl(largest), logl(sum)), 1);
        out->turn[row] = 0;
    }
}

/* The forward's softmax over the sequence, from the saved log sum exp. */
static void restore_softmax(const encoding *c, const double *x, const double *lse, oracle_number *y)
{
    int64_t head = c->h * c->d;
    for (int64_t i = 0; i < c->b * c->n * head; i++) {
        y[i] = (oracle_number){expl((real)x[i] - (real)lse[i / (c->n * head) * head + i % head]), 0, 0, 0};
    }
}

/* The forward's activation. */
static void restore_activation(const encoding *c, const oracle_args *args, oracle_number *y)
{
    const double *x = args->in[COPES_LRPE_X]->value;
    if (args->in[COPES_LRPE_LSE] != NULL) {
        restore_softmax(c, x, args->in[COPES_LRPE_LSE]->value, y);
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
    oracle_softmax_gradient(c->axis, y, g);
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

int oracle_run_lrpe(const copes_op *op, const oracle_args *args)
{
    encoding c = describe(op, args);
    int64_t count = c.b * c.n * c.h * c.d;
    oracle_number *narrow = calloc((size_t)count * 4 + 1, sizeof *narrow);
    if (narrow == NULL) {
        return -1;
    }
    oracle_number *wide = narrow + count, *spare = wide + 2 * count; /* `wide` has room for cosine's two halves */
    int in_place = op->lrpe.variant == COPES_LRPE_ROTATE;
    if (!c.backward) {
        oracle_activate(op->lrpe.act, c.axis, args->in[COPES_LRPE_X]->value, narrow);
        encode(&c, narrow, wide);
        oracle_store(in_place ? narrow : wide, args->out[COPES_LRPE_OUT]);
        if (args->out[COPES_LRPE_OUT_LSE] != NULL) {
            store_lse(&c, args->in[COPES_LRPE_X]->value, args->out[COPES_LRPE_OUT_LSE]);
        }
    } else {
        const double *grad = args->in[COPES_LRPE_GRAD_O]->value;
        if (args->out[COPES_LRPE_GRAD_THETA] != NULL) {
            restore_activation(&c, args, narrow);
            store_grad_theta(&c, args, narrow, args->out[COPES_LRPE_GRAD_THETA]);
        }
        oracle_number *from = in_place ? narrow : wide;
        for (int64_t i = 0; i < oracle_count(args->in[COPES_LRPE_GRAD_O]); i++) {
            from[i] = (oracle_number){(real)grad[i], fabsl((real)grad[i]), 0, 0};
        }
        encode(&c, from, narrow);
        activation_backward(&c, args, narrow, spare);
        oracle_store(narrow, args->out[COPES_LRPE_OUT]);
    }
    free(narrow);
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
    if (slot == COPES_LRPE_OUT_LSE) {
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
