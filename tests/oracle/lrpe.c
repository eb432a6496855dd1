/* The oracle's lrpe: the activation of the whole tensor, then the rotation of each element by its own angle; backward
 * the other way round. */
#include "tests/oracle/internal.h"

#include <math.h>
#include <stdlib.h>

typedef struct encoding {
    const copes_lrpe_attributes *op;
    const oracle_tensor *theta;
    int64_t b, n, h, d; /* of x */
    int64_t angles;     /* K */
    int64_t length;     /* tokens in the grid */
    int backward;
    oracle_axis axis; /* of softmax */
} encoding;

static encoding describe(const copes_op *op, const oracle_args *args)
{
    const oracle_tensor *wide = args->in[op->kind == COPES_LRPE_FORWARD ? COPES_LRPE_X : COPES_LRPE_GRAD_O];
    encoding c = {.op = &op->lrpe, .theta = args->in[COPES_LRPE_THETA], .backward = op->kind == COPES_LRPE_BACKWARD};
    c.b = wide->shape[0];
    c.n = wide->shape[1];
    c.h = wide->rank == 4 ? wide->shape[2] : 1;
    c.d = wide->shape[wide->rank - 1] / (c.backward && op->lrpe.variant == COPES_LRPE_COSINE ? 2 : 1);
    int64_t rotary = op->lrpe.rotary_dim == 0 ? c.d : op->lrpe.rotary_dim;
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

/* Which dimension of the grid turns angle i, and by which column of theta; column -1: the angle is 0. */
static int dimension_of(const encoding *c, int64_t i, int64_t *column)
{
    int64_t width = c->theta->shape[1], end = 0;
    for (int j = 0; j < COPES_MAX_GRID; j++) {
        end += c->op->sections[j];
        if (i < end) {
            *column = i;
            return j;
        }
    }
    if (c->op->grid_rank > 1) {
        *column = i % width;
        return (int)(i / width);
    }
    *column = width == 1 && !c->op->pad_theta ? 0 : i < width ? i : -1;
    return 0;
}

static real angle_of(const encoding *c, int64_t token, int64_t head, int64_t i)
{
    int64_t s = token - c->op->prefix, column;
    if (s < 0 || s >= c->length) {
        return 0;
    }
    int j = dimension_of(c, i, &column);
    if (column < 0) {
        return 0;
    }
    int64_t row = c->theta->shape[0] == 1 ? 0 : head;
    return oracle_angle(c->op->offset[j] + coordinate(c->op, s, j),
                        (float)c->theta->value[row * c->theta->shape[1] + column]);
}

/* a cos - b sin, with b's sign folded into sin. */
static oracle_number turned(const encoding *c, oracle_number a, real cosine, oracle_number b, real sine)
{
    oracle_number r = {a.value * cosine + b.value * sine, 0, hypotl(a.value, b.value)};
    int by_row = c->op->act == COPES_ACT_SOFTMAX && !c->backward;
    r.term = by_row ? oracle_larger(a.term, b.term)
                    : oracle_larger(oracle_larger(a.term * fabsl(cosine), b.term * fabsl(sine)), fabsl(r.value));
    return r;
}

/* Rotates a head in place; `direction` is 1, or -1 for the transpose. */
static void rotate_head(const encoding *c, int64_t token, int64_t head, real direction, oracle_number *y)
{
    for (int64_t i = 0; i < c->angles; i++) {
        real angle = direction * angle_of(c, token, head, i), cosine = cosl(angle), sine = sinl(angle);
        oracle_number *first = c->op->pairing == COPES_LRPE_HALF ? y + i : y + 2 * i;
        oracle_number *second = c->op->pairing == COPES_LRPE_HALF ? y + i + c->angles : first + 1;
        oracle_number a = *first, b = *second;
        *first = turned(c, a, cosine, b, -sine);
        *second = turned(c, b, cosine, a, sine);
    }
}

static void cosine_head(const encoding *c, int64_t token, int64_t head, const oracle_number *y, oracle_number *o)
{
    oracle_number nothing = {0, 0, 0};
    for (int64_t i = 0; i < c->d; i++) {
        real angle = angle_of(c, token, head, i);
        o[i] = turned(c, y[i], cosl(angle), nothing, 0);
        o[i + c->d] = turned(c, y[i], sinl(angle), nothing, 0);
    }
}

static void cosine_head_transpose(const encoding *c, int64_t token, int64_t head, const oracle_number *o,
                                  oracle_number *y)
{
    for (int64_t i = 0; i < c->d; i++) {
        real angle = angle_of(c, token, head, i);
        y[i] = turned(c, o[i], cosl(angle), o[i + c->d], sinl(angle));
    }
}

/* From `from` to `to`, which rotate takes to be the same array. */
static void encode(const encoding *c, oracle_number *from, oracle_number *to)
{
    for (int64_t row = 0; row < c->b * c->n * c->h; row++) {
        int64_t token = row / c->h % c->n, head = row % c->h;
        if (c->op->variant == COPES_LRPE_ROTATE) {
            rotate_head(c, token, head, c->backward ? -1 : 1, from + row * c->d);
        } else if (c->backward) {
            cosine_head_transpose(c, token, head, from + row * 2 * c->d, to + row * c->d);
        } else {
            cosine_head(c, token, head, from + row * c->d, to + row * 2 * c->d);
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

static void activation_backward(const encoding *c, const oracle_args *args, oracle_number *g, oracle_number *y)
{
    if (c->op->act == COPES_ACT_NONE) {
        return;
    }
    const double *x = args->in[COPES_LRPE_X]->value;
    if (c->op->act != COPES_ACT_SOFTMAX) {
        oracle_gradient(c->op->act, c->b * c->n * c->h * c->d, (real)args->tiny, x, g);
        return;
    }
    if (args->in[COPES_LRPE_LSE] != NULL) {
        restore_softmax(c, x, args->in[COPES_LRPE_LSE]->value, y);
    } else {
        oracle_activate(COPES_ACT_SOFTMAX, c->axis, x, y);
    }
    oracle_softmax_gradient(c->axis, y, g);
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
