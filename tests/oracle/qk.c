/* The oracle's qk_norm_rope: each token's heads are normed and turned, then put where they go; backward the other way round.
 *
 * What the roundings of a norm are relative to: x r w of an element to itself, and that of r, whose mean is a sum of squares
 * and cancels nothing, to r. The gradient r (g' - x' mean(g' x')) has two terms, of which the mean may cancel: its size is the
 * larger of its magnitude and the root of the sum of its terms' squares, as tpa.c's sums have it. Below the smallest normal
 * number a product has the ulp of that, whatever it is multiplied by next. */
#include "tests/oracle/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* The queries, or the keys. */
typedef struct side {
    const copes_qk_attributes *op;
    const oracle_args *args;
    oracle_rotation by;
    int64_t b, n, h, d;
    const oracle_tensor *from;   /* x, or the gradient of what became of it */
    const oracle_tensor *x;      /* NULL where a backward does not need it */
    const oracle_tensor *weight; /* NULL: no norm */
} side;

static int is_backward(const copes_op *op)
{
    return op->kind == COPES_QK_NORM_ROPE_BACKWARD;
}

/* `which` is 0 for queries, 1 for keys: slots of one follow those of the other. */
static side describe(const copes_op *op, const oracle_args *args, int which)
{
    const oracle_tensor *from = args->in[(is_backward(op) ? COPES_QK_GRAD_Q_OUT : COPES_QK_Q) + which];
    side s = {.op = &op->qk,
              .args = args,
              .b = from->shape[0],
              .n = from->shape[1],
              .h = from->shape[2],
              .d = from->shape[3],
              .from = from,
              .x = args->in[COPES_QK_Q + which],
              .weight = args->in[COPES_QK_WQ + which]};
    s.by = (oracle_rotation){.op = oracle_rotation_of(op),
                             .theta = args->in[COPES_QK_THETA],
                             .positions = args->in[COPES_QK_POSITIONS],
                             .offsets = args->in[COPES_QK_OFFSETS],
                             .positions_are_real = args->positions_are_real,
                             .b = s.b,
                             .n = s.n,
                             .angles = (op->qk.rotary_dim == 0 ? s.d - op->qk.rotary_begin : op->qk.rotary_dim) / 2,
                             .tiny = (real)args->tiny};
    return s;
}

/* Features that one mean is over. */
static int64_t width_of(const side *s)
{
    return s->op->norm_over == COPES_QK_NORM_ALL_HEADS ? s->h * s->d : s->d;
}

/* Where feature i of a token has its weight. */
static int64_t weight_place(const side *s, int64_t i)
{
    return s->weight->rank == 1 ? i % s->d : i;
}

static real weight_at(const side *s, int64_t i)
{
    return (real)s->weight->value[weight_place(s, i)] + (real)s->op->weight_offset;
}

/* (mean(x^2) + eps)^-1/2 */
static real inverse_root(const side *s, const double *x, int64_t width)
{
    real sum = 0;
    for (int64_t i = 0; i < width; i++) {
        sum += (real)x[i] * (real)x[i];
    }
    return 1 / sqrtl(sum / (real)width + (s->op->eps == 0 ? 1e-6L : (real)s->op->eps));
}

/* A norm's result is known to 1e-6 of it, or of the smallest normal number. Near the middle of two numbers it may be rounded to
 * either, so that only their mean and half their distance are known: what comes of them may be as far off as that half. All others
 * are rounded as here. */
static oracle_number rounded(const oracle_args *args, oracle_number y)
{
    const real doubt = 1e-6L * oracle_larger(fabsl(y.value), (real)args->tiny);
    const real low = (real)args->shorten((double)(y.value - doubt)),
               high = (real)args->shorten((double)(y.value + doubt));
    const int known = low == high || !isfinite(high - low);
    y.value = known ? (real)args->shorten((double)y.value) : (low + high) / 2;
    y.room = known ? 0 : (high - low) / 2;
    y.term = oracle_larger(y.term, fabsl(y.value));
    return y;
}

/* The norm of one mean's features. */
static void norm(const side *s, const double *x, int64_t begin, oracle_number *y)
{
    const int64_t width = width_of(s);
    const real r = inverse_root(s, x + begin, width);
    for (int64_t i = begin; i < begin + width; i++) {
        const real w = weight_at(s, i), scaled = (real)x[i] * r;
        y[i] = (oracle_number){scaled * w, oracle_larger(fabsl(scaled), (real)s->args->tiny) * fabsl(w), 0, 0};
        if (s->op->round_between && s->args->shorten != NULL) {
            y[i] = rounded(s->args, y[i]);
        }
    }
}

static void add_to_weight(oracle_number *sum, oracle_number g, real scaled, real tiny)
{
    sum->value += g.value * scaled;
    sum->term += (g.term + tiny) * (fabsl(scaled) + tiny) + (real)DBL_MIN;
    sum->turn += isinf(g.turn) ? g.turn : g.turn * fabsl(scaled);
}

/* The gradient of one mean's features, in place, from that of their norm, and their part of the weights' gradient. An infinity
 * that was turned, or that meets a mean, leaves nothing finite: which of inf and NaN it is hangs on factors that may be rounded
 * to 0. */
static void norm_gradient(const side *s, const double *x, int64_t begin, oracle_number *g, oracle_number *weights)
{
    const int64_t width = width_of(s);
    const real r = inverse_root(s, x + begin, width), tiny = (real)s->args->tiny;
    real sum = 0, squares = 0, turn = 0;
    int open = 0;
    for (int64_t i = begin; i < begin + width; i++) {
        const real w = weight_at(s, i), scaled = (real)x[i] * r;
        add_to_weight(&weights[weight_place(s, i)], g[i], scaled, tiny);
        open = open || isinf(g[i].value) || isinf(g[i].turn);
        g[i] = (oracle_number){g[i].value * w, oracle_larger(g[i].term * fabsl(w), tiny), g[i].turn * fabsl(w), 0};
        sum += g[i].value * scaled;
        squares += g[i].term * scaled * (g[i].term * scaled);
        turn += g[i].turn * fabsl(scaled);
    }
    const real mean = sum / (real)width, size = oracle_larger(fabsl(mean), sqrtl(squares) / (real)width);
    for (int64_t i = begin; i < begin + width; i++) {
        const real scaled = (real)x[i] * r;
        g[i].value = r * (g[i].value - scaled * mean);
        g[i].term = oracle_larger(r * oracle_larger(g[i].term, fabsl(scaled) * size), fabsl(g[i].value));
        g[i].turn = open ? (real)INFINITY : r * (g[i].turn + fabsl(scaled) * turn / (real)width);
    }
}

static void turn_token(const side *s, int64_t token, real direction, oracle_number *y)
{
    for (int64_t head = 0; head < s->h; head++) {
        oracle_rotate_head(&s->by, token / s->n, token % s->n, head, direction, y + head * s->d);
    }
}

static void take(const double *x, int64_t count, oracle_number *y)
{
    for (int64_t i = 0; i < count; i++) {
        y[i] = (oracle_number){(real)x[i], fabsl((real)x[i]), 0, 0};
    }
}

static void forward(const side *s, oracle_number *y)
{
    const int64_t row = s->h * s->d, width = width_of(s);
    for (int64_t token = 0; token < s->b * s->n; token++) {
        const double *x = s->from->value + token * row;
        take(x, row, y + token * row);
        for (int64_t begin = 0; begin < row && s->weight != NULL; begin += width) {
            norm(s, x, begin, y + token * row);
        }
        turn_token(s, token, 1, y + token * row);
    }
}

static void backward(const side *s, oracle_number *g, oracle_number *weights)
{
    const int64_t row = s->h * s->d, width = width_of(s);
    take(s->from->value, s->b * s->n * row, g);
    for (int64_t token = 0; token < s->b * s->n; token++, g += row) {
        turn_token(s, token, -1, g);
        for (int64_t begin = 0; begin < row && s->weight != NULL; begin += width) {
            norm_gradient(s, s->x->value + token * row, begin, g, weights);
        }
    }
}

/* Divided by a scale, of the head where there is one for each. */
static oracle_number divided(const oracle_tensor *scale, int64_t head, oracle_number y)
{
    if (scale == NULL) {
        return y;
    }
    const real by = (real)scale->value[scale->shape[0] == 1 ? 0 : head], size = fabsl(by);
    return (oracle_number){y.value / by, oracle_larger(y.term, 0) / size, y.turn / size, y.room / size};
}

/* Tokens' rows go to the places that their slots name; those outside the cache go nowhere, and the rest of it stays. */
static void fill_cache(const oracle_tensor *slots, const oracle_tensor *scale, const oracle_number *rows,
                       oracle_tensor *cache)
{
    const int64_t width = cache->shape[3], row = cache->shape[2] * width, places = cache->shape[0] * cache->shape[1];
    for (int64_t i = 0; i < oracle_count(cache); i++) {
        cache->term[i] = -1;
    }
    for (int64_t token = 0; token < oracle_count(slots); token++) {
        const double slot = slots->value[token];
        for (int64_t i = 0; i < row && slot >= 0 && slot < (double)places; i++) {
            const int64_t at = (int64_t)slot * row + i;
            const oracle_number y = divided(scale, i / width, rows[token * row + i]);
            cache->value[at] = (double)y.value;
            cache->term[at] = oracle_size(y.term);
            cache->turn[at] = oracle_size(y.turn);
            if (cache->room != NULL) {
                cache->room[at] = oracle_size(y.room);
            }
        }
    }
}

static int run_side(const copes_op *op, const oracle_args *args, int which)
{
    const side s = describe(op, args, which);
    oracle_tensor *out = args->out[COPES_QK_Q_OUT + which], *cache = args->out[COPES_QK_K_CACHE];
    oracle_tensor *learned = is_backward(op) ? args->out[COPES_QK_GRAD_WQ + which] : NULL;
    const int64_t count = s.b * s.n * s.h * s.d, weights = s.weight == NULL ? 0 : oracle_count(s.weight);
    oracle_number *numbers = calloc((size_t)(count + weights) + 1, sizeof *numbers);
    if (numbers == NULL) {
        return -1;
    }
    if (is_backward(op)) {
        backward(&s, numbers, numbers + count);
    } else {
        forward(&s, numbers);
    }
    if (out != NULL) {
        oracle_store(numbers, out);
    }
    if (learned != NULL) {
        oracle_store(numbers + count, learned);
    }
    if (!is_backward(op) && which == 1 && cache != NULL) {
        fill_cache(args->in[COPES_QK_SLOTS], args->in[COPES_QK_K_SCALE], numbers, cache);
    }
    free(numbers);
    return 0;
}

/* Without a scale, values are copied. */
static int store_values(const oracle_args *args)
{
    const oracle_tensor *v = args->in[COPES_QK_V];
    const int64_t count = oracle_count(v);
    oracle_number *numbers = calloc((size_t)count + 1, sizeof *numbers);
    if (numbers == NULL) {
        return -1;
    }
    take(v->value, count, numbers);
    for (int64_t i = 0; i < count && args->in[COPES_QK_V_SCALE] == NULL; i++) {
        numbers[i].term = -1;
    }
    fill_cache(args->in[COPES_QK_SLOTS], args->in[COPES_QK_V_SCALE], numbers, args->out[COPES_QK_V_CACHE]);
    free(numbers);
    return 0;
}

int oracle_run_qk(const copes_op *op, const oracle_args *args)
{
    const int keys = args->in[is_backward(op) ? COPES_QK_GRAD_K_OUT : COPES_QK_K] != NULL;
    if (run_side(op, args, 0) != 0 || (keys && run_side(op, args, 1) != 0)) {
        return -1;
    }
    return !is_backward(op) && args->out[COPES_QK_V_CACHE] != NULL ? store_values(args) : 0;
}

void oracle_infer_qk(const copes_op *op, const oracle_args *args, int slot, oracle_tensor *out)
{
    const int learned = slot == COPES_QK_GRAD_WQ || slot == COPES_QK_GRAD_WK; /* in a forward: the caches */
    if (learned && !is_backward(op)) {
        return;
    }
    const int source = learned ? COPES_QK_WQ + slot - COPES_QK_GRAD_WQ
                               : (is_backward(op) ? COPES_QK_GRAD_Q_OUT : COPES_QK_Q) + slot - COPES_QK_Q_OUT;
    const oracle_tensor *like = args->in[source];
    out->rank = like->rank;
    for (int i = 0; i < like->rank; i++) {
        out->shape[i] = like->shape[i];
    }
}
