/* The oracle's lrpe: the activation of the whole tensor, then the rotation of each element by its own angle; backward
 * the other way round. */
#include "tests/oracle/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

typedef struct encoding {
    const copes_lrpe_attributes *op;
    const oracle_tensor *theta, *positions, *offsets;
    int positions_are_real; /* float32 */
    int64_t b, n, h, d;     /* of x */
    int64_t angles;         /* K */
    int64_t length;         /* tokens in the grid */
    int backward;
    real tiny;        /* oracle_args has it */
    oracle_axis axis; /* of softmax */
} encoding;

static encoding describe(const copes_op *op, const oracle_args *args)
{
    const oracle_tensor *wide = args->in[op->kind == COPES_LRPE_FORWARD ? COPES_LRPE_X : COPES_LRPE_GRAD_O];
    encoding c = {.op = &op->lrpe,
                  .theta = args->in[COPES_LRPE_THETA],
                  .positions = args->in[COPES_LRPE_POSITIONS],
                  .offsets = args->in[COPES_LRPE_OFFSETS],
                  .positions_are_real = args->positions_are_real,
                  .backward = op->kind == COPES_LRPE_BACKWARD,
                  .tiny = (real)args->tiny};
    c.b = wide->shape[0];
    c.n = wide->shape[1];
    c.h = wide->rank == 4 ? wide->shape[2] : 1;
    c.d = wide->shape[wide->rank - 1] / (c.backward && op->lrpe.variant == COPES_LRPE_COSINE ? 2 : 1);
    int64_t rotary = op->lrpe.rotary_dim == 0 ? c.d - op->lrpe.rotary_begin : op->lrpe.rotary_dim;
    c.angles = op->lrpe.variant == COPES_LRPE_COSINE ? c.d : rotary / 2;
    c.length = c.n - op->lrpe.prefix - op->lrpe.suffix;
    int over_sequence = op->lrpe.dim == -3;
    c.axis = over_sequence ? (oracle_axis){c.b, c.n, c.h * c.d} : (oracle_axis){c.b * c.n * c.h, c.d, 1};
    return c;
}

/* Coordinate j of grid token s, counted row-major. */
static int64_t coordinate(const copes_lrpe_attributes *op, int64_t s, int j)
{
    for (int i = op->grid_rank - 1; i > j; i--) {
        s /= op->grid[i];
    }
    return op->grid_rank == 0 ? s : s % op->grid[j];
}

/* Dimensions of positions. */
static int dimensions(const encoding *c)
{
    if (c->positions != NULL) {
        return c->positions->rank == 3 ? (int)c->positions->shape[0] : 1;
    }
    return c->op->grid_rank > 0 ? c->op->grid_rank : 1;
}

/* Which column of theta turns angle i in dimension j; -1: none does. */
static int64_t column_of(const encoding *c, int64_t i, int j)
{
    int64_t width = c->theta->shape[c->theta->rank - 1], begin = 0;
    if (c->theta->rank == 3) {
        return i;
    }
    for (int before = 0; before < j; before++) {
        begin += c->op->sections[before];
    }
    if (c->op->sections[0] + c->op->sections[1] + c->op->sections[2] + c->op->sections[3] > 0) {
        return i >= begin && i < begin + c->op->sections[j] ? i : -1;
    }
    if (dimensions(c) > 1) {
        return i / width == j ? i % width : -1;
    }
    return width == 1 && !c->op->pad_theta ? 0 : i < width ? i : -1;
}

static int64_t theta_place(const encoding *c, int64_t head, int64_t column, int j)
{
    int64_t heads = c->theta->shape[c->theta->rank - 2], width = c->theta->shape[c->theta->rank - 1];
    return ((c->theta->rank == 3 ? j : 0) * heads + (heads == 1 ? 0 : head)) * width + column;
}

/* A token's position in a dimension: an integer, and a float32 to be added to it. */
typedef struct position {
    int64_t whole;
    float real;
    int inside; /* 0: of the prefix or suffix */
} position;

static position position_of(const encoding *c, int64_t b, int64_t token, int j)
{
    int64_t s = token - c->op->prefix;
    position p = {c->op->offset[j], 0, c->positions != NULL || (s >= 0 && s < c->length)};
    const oracle_tensor *given = c->positions != NULL ? c->positions : c->offsets;
    if (!p.inside) {
        return p;
    }
    if (given != NULL) {
        int64_t at =
            c->positions == NULL ? b : ((given->rank == 3 ? j * c->b : 0) + (given->rank > 1 ? b : 0)) * c->n + token;
        double value = given->value[at];
        if (c->positions_are_real) {
            p.real = (float)value;
        } else {
            p.whole = (int64_t)((uint64_t)p.whole + (uint64_t)(int64_t)value);
        }
    }
    if (c->positions == NULL) {
        p.whole = (int64_t)((uint64_t)p.whole + (uint64_t)coordinate(c->op, s, j));
    }
    return p;
}

static real angle_of(const encoding *c, int64_t b, int64_t token, int64_t head, int64_t i)
{
    real angle = 0;
    for (int j = 0; j < dimensions(c); j++) {
        position p = position_of(c, b, token, j);
        int64_t column = column_of(c, i, j);
        if (column < 0 || !p.inside) {
            continue;
        }
        float theta = (float)c->theta->value[theta_place(c, head, column, j)];
        angle += oracle_angle(p.whole, theta) + oracle_angle_of_float(p.real, theta);
    }
    return c->op->inverse ? -angle : angle;
}

static real amplitude_of(const encoding *c)
{
    return c->op->amplitude != 0 ? (real)c->op->amplitude : 1;
}

/* The amplitude times a cos - b sin, with b's sign folded into sin. Below the smallest normal number a and b have the ulp of that,
 * which the amplitude multiplies. */
static oracle_number turned(const encoding *c, oracle_number a, real cosine, oracle_number b, real sine)
{
    real factor = amplitude_of(c), sum = a.value * cosine + b.value * sine;
    int by_row = c->op->act == COPES_ACT_SOFTMAX && !c->backward;
    real term = by_row ? oracle_larger(a.term, b.term)
                       : oracle_larger(oracle_larger(a.term * fabsl(cosine), b.term * fabsl(sine)), fabsl(sum));
    return (oracle_number){factor * sum, fabsl(factor) * oracle_larger(term, c->tiny),
                           fabsl(factor) * hypotl(a.value, b.value)};
}

/* Rotates a head in place; `direction` is 1, or -1 for the transpose. */
static void rotate_head(const encoding *c, int64_t b, int64_t token, int64_t head, real direction, oracle_number *y)
{
    y += c->op->rotary_begin;
    for (int64_t i = 0; i < c->angles; i++) {
        real angle = direction * angle_of(c, b, token, head, i), cosine = cosl(angle), sine = sinl(angle);
        oracle_number *first = c->op->pairing == COPES_LRPE_HALF ? y + i : y + 2 * i;
        oracle_number *second = c->op->pairing == COPES_LRPE_HALF ? y + i + c->angles : first + 1;
        oracle_number one = *first, other = *second;
        *first = turned(c, one, cosine, other, -sine);
        *second = turned(c, other, cosine, one, sine);
    }
}

static void cosine_head(const encoding *c, int64_t b, int64_t token, int64_t head, const oracle_number *y,
                        oracle_number *o)
{
    oracle_number nothing = {0, 0, 0};
    for (int64_t i = 0; i < c->d; i++) {
        real angle = angle_of(c, b, token, head, i);
        o[i] = turned(c, y[i], cosl(angle), nothing, 0);
        o[i + c->d] = turned(c, y[i], sinl(angle), nothing, 0);
    }
}

static void cosine_head_transpose(const encoding *c, int64_t b, int64_t token, int64_t head, const oracle_number *o,
                                  oracle_number *y)
{
    for (int64_t i = 0; i < c->d; i++) {
        real angle = angle_of(c, b, token, head, i);
        y[i] = turned(c, o[i], cosl(angle), o[i + c->d], sinl(angle));
    }
}

/* From `from` to `to`, which rotate takes to be the same array. */
static void encode(const encoding *c, oracle_number *from, oracle_number *to)
{
    for (int64_t row = 0; row < c->b * c->n * c->h; row++) {
        int64_t b = row / c->h / c->n, token = row / c->h % c->n, head = row % c->h;
        if (c->op->variant == COPES_LRPE_ROTATE) {
            rotate_head(c, b, token, head, c->backward ? -1 : 1, from + row * c->d);
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
        y[i] = (oracle_number){expl((real)x[i] - (real)lse[i / (c->n * head) * head + i % head]), 0, 0};
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
    real factor = amplitude_of(c), cosine = factor * cosl(angle), sine = factor * sinl(angle);
    if (c->op->variant == COPES_LRPE_COSINE) {
        real along = (real)grad_o[i], across = (real)grad_o[i + c->d], size = fabsl(y[i].value) + y[i].term + c->tiny;
        return (oracle_number){y[i].value * (across * cosine - along * sine),
                               size * (fabsl(across * cosine) + fabsl(along * sine) + c->tiny) + (real)DBL_MIN,
                               size * fabsl(factor) * (fabsl(across) + fabsl(along))};
    }
    int64_t half = c->op->pairing == COPES_LRPE_HALF, first = c->op->rotary_begin + (half ? i : 2 * i);
    int64_t second = half ? first + c->angles : first + 1;
    oracle_number a = y[first], b = y[second];
    real turned_a = a.value * cosine - b.value * sine, turned_b = a.value * sine + b.value * cosine;
    real size = fabsl(a.value) + fabsl(b.value) + a.term + b.term + c->tiny;
    real gradients = fabsl(factor) * (fabsl((real)grad_o[first]) + fabsl((real)grad_o[second]));
    return (oracle_number){(real)grad_o[second] * turned_a - (real)grad_o[first] * turned_b,
                           size * (gradients + c->tiny) + (real)DBL_MIN, size * gradients};
}

/* The gradient of theta. */
static void store_grad_theta(const encoding *c, const oracle_args *args, const oracle_number *y, oracle_tensor *out)
{
    const double *grad_o = args->in[COPES_LRPE_GRAD_O]->value;
    int64_t wide = c->op->variant == COPES_LRPE_COSINE ? 2 * c->d : c->d;
    oracle_number *sums = calloc((size_t)oracle_count(out) + 1, sizeof *sums);
    for (int64_t row = 0; row < c->b * c->n * c->h; row++) {
        int64_t b = row / c->h / c->n, token = row / c->h % c->n, head = row % c->h;
        for (int64_t i = 0; i < c->angles; i++) {
            oracle_number d =
                derivative_by_angle(c, angle_of(c, b, token, head, i), i, grad_o + row * wide, y + row * c->d);
            for (int j = 0; j < dimensions(c); j++) {
                position p = position_of(c, b, token, j);
                int64_t column = column_of(c, i, j);
                if (column < 0 || !p.inside) {
                    continue;
                }
                real factor = (c->op->inverse ? -1 : 1) * ((real)p.whole + (real)p.real);
                oracle_number *sum = &sums[theta_place(c, head, column, j)];
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
            from[i] = (oracle_number){(real)grad[i], fabsl((real)grad[i]), 0};
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
        out->rank = c.theta->rank;
        for (int i = 0; i < out->rank; i++) {
            out->shape[i] = c.theta->shape[i];
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
