/* The oracle's activations, and the operator act. */
#include "tests/oracle/internal.h"

#include <math.h>
#include <stdlib.h>

static real sigmoid(real x)
{
    return 1 / (1 + expl(-x));
}

static oracle_number activate(copes_act act, real x)
{
    real value = x;
    switch (act) {
    case COPES_ACT_NONE:
    case COPES_ACT_SOFTMAX: break;
    case COPES_ACT_RELU: value = x < 0 ? 0 : x; break;
    case COPES_ACT_SIGMOID: value = sigmoid(x); break;
    case COPES_ACT_SILU: value = x * sigmoid(x); break;
    }
    return (oracle_number){value, fabsl(value), 0, 0};
}

static void softmax_row(const double *x, int64_t length, int64_t stride, oracle_number *y)
{
    real largest = -(real)INFINITY, sum = 0, top = 0;
    for (int64_t i = 0; i < length; i++) {
        largest = oracle_larger((real)x[i * stride], largest);
    }
    for (int64_t i = 0; i < length; i++) {
        y[i * stride].value = expl((real)x[i * stride] - largest);
        sum += y[i * stride].value;
    }
    for (int64_t i = 0; i < length; i++) {
        y[i * stride].value /= sum;
        top = oracle_larger(y[i * stride].value, top);
    }
    for (int64_t i = 0; i < length; i++) {
        y[i * stride].term = top;
        y[i * stride].turn = 0;
    }
}

void oracle_activate(copes_act act, oracle_axis axis, const double *x, oracle_number *y)
{
    if (act != COPES_ACT_SOFTMAX) {
        for (int64_t i = 0; i < axis.outer * axis.length * axis.inner; i++) {
            y[i] = activate(act, (real)x[i]);
        }
        return;
    }
    for (int64_t o = 0; o < axis.outer; o++) {
        for (int64_t i = 0; i < axis.inner; i++) {
            int64_t start = o * axis.length * axis.inner + i;
            softmax_row(x + start, axis.length, axis.inner, y + start);
        }
    }
}

/* 1 - s is sigmoid(-x), which loses nothing where s is near 1. An infinity times a factor that may be rounded to 0 is
 * an infinity or NaN, which an infinite `turn` says. */
static oracle_number derivative(copes_act act, real tiny, real x, oracle_number g)
{
    oracle_number d = {0, 0, 0, 0};
    if (act == COPES_ACT_RELU) {
        return x > 0 ? g : d;
    }
    if (act != COPES_ACT_SIGMOID && act != COPES_ACT_SILU) {
        return g;
    }
    real s = sigmoid(x), rest = sigmoid(-x);
    int open = isinf(g.value) && (s < tiny || rest < tiny);
    if (act == COPES_ACT_SIGMOID) {
        d = (oracle_number){g.value * s * rest, g.term * s * rest, g.turn * s * rest, 0};
    } else {
        d = (oracle_number){g.value * s * (1 + x * rest), oracle_larger(g.term * s, g.term * s * fabsl(x) * rest),
                            g.turn * fabsl(s * (1 + x * rest)), 0};
    }
    d.term = oracle_larger(d.term, fabsl(d.value));
    d.turn = open && !isnan(x) ? (real)INFINITY : d.turn;
    return d;
}

void oracle_gradient(copes_act act, int64_t count, real tiny, const double *x, oracle_number *g)
{
    for (int64_t i = 0; i < count; i++) {
        g[i] = derivative(act, tiny, (real)x[i], g[i]);
    }
}

/* Where an infinity is in the sum it may as well have met a y that was rounded to 0: see derivative. */
static void softmax_gradient_row(const oracle_number *y, int64_t length, int64_t stride, oracle_number *g)
{
    real sum = 0, squares = 0, turn = 0, top = 0;
    for (int64_t i = 0; i < length * stride; i += stride) {
        const real term = y[i].value * g[i].term;
        sum += y[i].value * g[i].value;
        squares += term * term;
        turn += y[i].value * g[i].turn;
    }
    const real size = oracle_larger(fabsl(sum), sqrtl(squares)); /* though it cancels: see tpa.c */
    for (int64_t i = 0; i < length * stride; i += stride) {
        real value = fabsl(y[i].value);
        top = oracle_larger(oracle_larger(value * g[i].term, value * size), top);
        g[i].value = y[i].value * (g[i].value - sum);
        g[i].turn = isinf(sum) ? (real)INFINITY : value * (g[i].turn + turn);
    }
    for (int64_t i = 0; i < length * stride; i += stride) {
        g[i].term = top;
    }
}

void oracle_softmax_gradient(oracle_axis axis, const oracle_number *y, oracle_number *g)
{
    for (int64_t o = 0; o < axis.outer; o++) {
        for (int64_t i = 0; i < axis.inner; i++) {
            int64_t start = o * axis.length * axis.inner + i;
            softmax_gradient_row(y + start, axis.length, axis.inner, g + start);
        }
    }
}

static oracle_number lse_of_row(const double *x, int64_t length, int64_t stride)
{
    real largest = -(real)INFINITY, sum = 0;
    for (int64_t i = 0; i < length; i++) {
        largest = oracle_larger((real)x[i * stride], largest);
    }
    largest = largest == -(real)INFINITY ? 0 : largest; /* of no elements, or of nothing but -inf: the sum is 0 */
    for (int64_t i = 0; i < length; i++) {
        sum += expl((real)x[i * stride] - largest);
    }
    real term = oracle_larger(oracle_larger(fabsl(largest), logl(sum)), 1);
    return (oracle_number){largest + logl(sum), term, 0, 0};
}

void oracle_lse(oracle_axis axis, const double *x, oracle_number *lse)
{
    for (int64_t i = 0; i < axis.outer * axis.inner; i++) {
        const double *start = x + i / axis.inner * axis.length * axis.inner + i % axis.inner;
        lse[i] = lse_of_row(start, axis.length, axis.inner);
    }
}

/* The number of its row, among those of the sums. */
static int64_t row_of(oracle_axis axis, int64_t i)
{
    return i / (axis.length * axis.inner) * axis.inner + i % axis.inner;
}

/* A product below the smallest normal number has the ulp of that. */
void oracle_delta(oracle_axis axis, real tiny, const oracle_number *y, const oracle_number *g, oracle_number *delta)
{
    for (int64_t i = 0; i < axis.outer * axis.inner; i++) {
        delta[i] = (oracle_number){0, 0, 0, 0};
    }
    for (int64_t i = 0; i < axis.outer * axis.length * axis.inner; i++) {
        oracle_number *sum = &delta[row_of(axis, i)];
        sum->value += y[i].value * g[i].value;
        sum->term += oracle_larger(y[i].term * g[i].term, tiny);
        sum->turn += fabsl(y[i].value) * g[i].turn;
    }
    for (int64_t i = 0; i < axis.outer * axis.inner; i++) {
        delta[i].turn = isinf(delta[i].value) ? (real)INFINITY : delta[i].turn;
    }
}

/* What is below the smallest normal number may be 0. */
void oracle_softmax_of_lse(oracle_axis axis, real tiny, const double *x, const double *lse, oracle_number *y)
{
    for (int64_t i = 0; i < axis.outer * axis.length * axis.inner; i++) {
        real exponent = (real)x[i] - (real)lse[row_of(axis, i)], value = expl(exponent);
        real size = isinf(exponent) ? 1 : oracle_larger(fabsl(exponent), 1);
        y[i] = (oracle_number){value, value * size, 0, value < tiny ? value : 0};
    }
}

/* As softmax_gradient_row, for a sum that may be any number. */
void oracle_gradient_of_delta(oracle_axis axis, const oracle_number *y, const double *delta, oracle_number *g)
{
    for (int64_t i = 0; i < axis.outer * axis.length * axis.inner; i++) {
        real sum = (real)delta[row_of(axis, i)], value = fabsl(y[i].value), term = y[i].term;
        real room = y[i].room * fabsl(g[i].value - sum);
        g[i] = (oracle_number){y[i].value * (g[i].value - sum), term * oracle_larger(g[i].term, fabsl(sum)),
                               isinf(sum) ? (real)INFINITY : value * g[i].turn, room};
    }
}

static oracle_axis axis_of(const oracle_tensor *tensor, int dim)
{
    oracle_axis axis = {1, 1, 1};
    int at = tensor->rank + (dim == 0 ? -1 : dim);
    for (int i = 0; i < tensor->rank; i++) {
        *(i < at ? &axis.outer : i == at ? &axis.length : &axis.inner) *= tensor->shape[i];
    }
    return axis;
}

/* What a softmax in shares makes of one of them; 0: the call is none. */
static int run_share(const copes_op *op, const oracle_args *args, oracle_axis axis, oracle_number *g,
                     const oracle_number *y, oracle_number *made)
{
    oracle_tensor *sums = args->out[COPES_ACT_OUT_LSE];
    int backward = op->kind == COPES_ACT_BACKWARD;
    const oracle_tensor *given = args->in[backward ? COPES_ACT_DELTA_ALL : COPES_ACT_LSE_ALL];
    if (sums == NULL && given == NULL) {
        return 0;
    }
    if (sums != NULL && backward) {
        oracle_delta(axis, (real)args->tiny, y, g, made);
    } else if (sums != NULL) {
        oracle_lse(axis, args->in[COPES_ACT_X]->value, made);
    } else if (backward) {
        oracle_gradient_of_delta(axis, y, given->value, g);
    } else {
        oracle_softmax_of_lse(axis, (real)args->tiny, args->in[COPES_ACT_X]->value, given->value, g);
    }
    oracle_store(sums != NULL ? made : g, sums != NULL ? sums : args->out[COPES_ACT_OUT]);
    return 1;
}

/* The same of relu and sigmoid, from the output. 1 - s is exact, but that the arithmetic may round it. */
static oracle_number derivative_of_output(copes_act act, real tiny, real o, oracle_number g)
{
    if (act == COPES_ACT_RELU) {
        return o > 0 ? g : (oracle_number){0, 0, 0, 0};
    }
    real slope = o * (1 - o);
    oracle_number d = {g.value * slope, fabsl(g.value * slope), g.turn * fabsl(slope), 0};
    d.turn = isinf(g.value) && fabsl(slope) < tiny ? (real)INFINITY : d.turn;
    return d;
}

/* The byte and the bit of element i, in rows of `length`. */
static int64_t byte_of(int64_t i, int64_t length)
{
    return i / length * ((length + 7) / 8) + i % length / 8;
}

static int bit_of(int64_t i, int64_t length)
{
    return 1 << i % length % 8;
}

static void store_mask(const oracle_tensor *x, oracle_tensor *mask)
{
    int64_t length = x->shape[x->rank - 1];
    for (int64_t i = 0; i < oracle_count(mask); i++) {
        mask->value[i] = 0;
        mask->term[i] = -1;
    }
    for (int64_t i = 0; i < oracle_count(x); i++) {
        mask->value[byte_of(i, length)] += x->value[i] > 0 ? bit_of(i, length) : 0;
    }
}

/* Of what the mask lets pass. */
static void apply_mask(const oracle_tensor *mask, const oracle_tensor *grad, oracle_number *g)
{
    int64_t length = grad->shape[grad->rank - 1];
    for (int64_t i = 0; i < oracle_count(grad); i++) {
        int passes = ((int)mask->value[byte_of(i, length)] & bit_of(i, length)) != 0;
        g[i] = passes ? g[i] : (oracle_number){0, -1, 0, 0};
    }
}

/* The gradient of the output and, for softmax, the output. */
static void read_gradient(const copes_op *op, const oracle_args *args, oracle_number *g, oracle_number *y)
{
    const oracle_tensor *grad = args->in[COPES_ACT_GRAD_O];
    int64_t count = oracle_count(grad);
    for (int64_t i = 0; i < count; i++) {
        g[i] = (oracle_number){(real)grad->value[i], fabsl((real)grad->value[i]), 0, 0};
    }
    if (op->act.act == COPES_ACT_SOFTMAX) {
        for (int64_t i = 0; i < count; i++) {
            real value = (real)args->in[COPES_ACT_O]->value[i];
            y[i] = (oracle_number){value, fabsl(value), 0, 0};
        }
    }
}

static void run_backward(const copes_op *op, const oracle_args *args, oracle_axis axis, oracle_number *g,
                         const oracle_number *y)
{
    const oracle_tensor *o = args->in[COPES_ACT_O];
    if (op->act.act == COPES_ACT_SOFTMAX) {
        oracle_softmax_gradient(axis, y, g);
    } else if (args->in[COPES_ACT_MASK] != NULL) {
        apply_mask(args->in[COPES_ACT_MASK], args->in[COPES_ACT_GRAD_O], g);
    } else if (o != NULL && (op->act.act == COPES_ACT_RELU || op->act.act == COPES_ACT_SIGMOID)) {
        for (int64_t i = 0; i < oracle_count(o); i++) {
            g[i] = derivative_of_output(op->act.act, (real)args->tiny, (real)o->value[i], g[i]);
        }
    } else if (op->act.act != COPES_ACT_NONE) {
        oracle_gradient(op->act.act, oracle_count(args->in[COPES_ACT_X]), (real)args->tiny,
                        args->in[COPES_ACT_X]->value, g);
    }
}

int oracle_run_act(const copes_op *op, const oracle_args *args)
{
    const oracle_tensor *lead = args->in[op->kind == COPES_ACT_FORWARD ? COPES_ACT_X : COPES_ACT_GRAD_O];
    oracle_axis axis = axis_of(lead, op->act.dim);
    int64_t count = oracle_count(lead), rows = axis.outer * axis.inner;
    oracle_number *numbers = calloc((size_t)(2 * count + rows) + 1, sizeof *numbers);
    if (numbers == NULL) {
        return -1;
    }
    if (op->kind == COPES_ACT_BACKWARD) {
        read_gradient(op, args, numbers, numbers + count);
    }
    if (!run_share(op, args, axis, numbers, numbers + count, numbers + 2 * count)) {
        if (op->kind == COPES_ACT_FORWARD) {
            oracle_activate(op->act.act, axis, args->in[COPES_ACT_X]->value, numbers);
        } else {
            run_backward(op, args, axis, numbers, numbers + count);
        }
        oracle_store(numbers, args->out[COPES_ACT_OUT]);
    }
    if (op->kind == COPES_ACT_FORWARD && args->out[COPES_ACT_OUT_MASK] != NULL) {
        store_mask(args->in[COPES_ACT_X], args->out[COPES_ACT_OUT_MASK]);
    }
    free(numbers);
    return 0;
}
