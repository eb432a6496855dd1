/* The oracle's tpa_decode: queries, keys and values are formed whole, then plain softmax attention.
 *
 * Beside it go the sizes of its sums, which are of ranks, and over features for a score and over keys for an output. A
 * size is what roundings can be relative to though the sum cancels. Those of different features or keys are independent,
 * and come to the root of the sum of their squares; there the ranks' terms count by magnitude, as they are few. Where
 * features or keys are alike so are their roundings, and come to the sum: this is taken for each rank, as the ranks'
 * coefficients are rounded on their own. The size is the larger of the two. */
#include "tests/oracle/internal.h"

#include <math.h>
#include <stdlib.h>

typedef struct attention {
    int64_t b, n, m, h, d, e, rq, rk, rv;
    real scale, scale_q, scale_k, scale_v;
    real *query, *keys, *values, *scores, *row; /* of one batch entry and head; query and row of one token */
    real *query_size, *key_size, *value_size;   /* the same with the ranks' terms by magnitude */
    real *score_size;
} attention;

static real or_else(double given, real fallback)
{
    return given == 0 ? fallback : (real)given;
}

static attention describe(const copes_op *op, const oracle_args *args)
{
    const int64_t *aq = args->in[COPES_TPA_AQ]->shape, *bq = args->in[COPES_TPA_BQ]->shape;
    const oracle_tensor *ak = args->in[COPES_TPA_AK], *av = args->in[COPES_TPA_AV], *bv = args->in[COPES_TPA_BV];
    attention a = {.b = aq[0], .n = aq[1], .m = ak->shape[1], .h = aq[2], .d = bq[3], .rq = aq[3]};
    a.rk = ak->rank == 4 ? ak->shape[3] : 1;
    a.rv = av->rank == 4 ? av->shape[3] : 1;
    a.e = bv->shape[bv->rank - 1];
    a.scale = or_else(op->tpa.scale, 1 / sqrtl((real)a.d));
    a.scale_q = or_else(op->tpa.scale_q, 1 / (real)a.rq);
    a.scale_k = or_else(op->tpa.scale_k, 1 / (real)a.rk);
    a.scale_v = or_else(op->tpa.scale_v, 1 / (real)a.rv);
    return a;
}

/* row[i] = scale sum_r a[r] b[r, i], and size[i] the same of magnitudes. */
static void combine(const double *a, const double *b, int64_t rank, int64_t width, real scale, real *row, real *size)
{
    for (int64_t i = 0; i < width; i++) {
        real sum = 0, magnitudes = 0;
        for (int64_t r = 0; r < rank; r++) {
            const real term = (real)a[r] * (real)b[r * width + i];
            sum += term;
            magnitudes += fabsl(term);
        }
        row[i] = scale * sum;
        size[i] = fabsl(scale) * magnitudes;
    }
}

/* The factors of one batch entry and head. */
typedef struct head_factors {
    const double *aq, *bq; /* of the query's token */
    const double *ak, *bk, *av, *bv;
    int64_t step; /* from one key's ak or av to the next, in ranks */
} head_factors;

static head_factors factors_of(const attention *a, const oracle_args *args, int64_t b, int64_t n, int64_t h)
{
    const int64_t query = b * a->n + n, key = b * a->m;
    return (head_factors){.aq = args->in[COPES_TPA_AQ]->value + (query * a->h + h) * a->rq,
                          .bq = args->in[COPES_TPA_BQ]->value + query * a->rq * a->d,
                          .ak = args->in[COPES_TPA_AK]->value + (key * a->h + h) * a->rk,
                          .bk = args->in[COPES_TPA_BK]->value + key * a->rk * a->d,
                          .av = args->in[COPES_TPA_AV]->value + (key * a->h + h) * a->rv,
                          .bv = args->in[COPES_TPA_BV]->value + key * a->rv * a->e,
                          .step = a->h};
}

static void form_cache(attention *a, const head_factors *f)
{
    for (int64_t m = 0; m < a->m; m++) {
        combine(f->ak + m * f->step * a->rk, f->bk + m * a->rk * a->d, a->rk, a->d, a->scale_k, a->keys + m * a->d,
                a->key_size + m * a->d);
        combine(f->av + m * f->step * a->rv, f->bv + m * a->rv * a->e, a->rv, a->e, a->scale_v, a->values + m * a->e,
                a->value_size + m * a->e);
    }
}

/* The size of key m's score. */
static real size_of_score(const attention *a, const head_factors *f, int64_t m)
{
    const double *ak = f->ak + m * f->step * a->rk, *bk = f->bk + m * a->rk * a->d;
    double alike = 0;
    real squares = 0;
    for (int64_t r = 0; r < a->rk; r++) {
        for (int64_t p = 0; p < a->rq; p++) {
            double dot = 0;
            for (int64_t i = 0; i < a->d; i++) {
                dot += bk[r * a->d + i] * f->bq[p * a->d + i];
            }
            alike += fabs(ak[r] * f->aq[p] * dot);
        }
    }
    for (int64_t i = 0; i < a->d; i++) {
        const real term = a->query_size[i] * a->key_size[m * a->d + i];
        squares += term * term;
    }
    return fabsl(a->scale) * oracle_larger(fabsl(a->scale_q * a->scale_k) * (real)alike, sqrtl(squares));
}

/* The size of output i, for weights that add up to 1. A weight is known as well as its score. */
static real size_of_output(const attention *a, const head_factors *f, int64_t visible, int64_t i)
{
    real alike = 0, squares = 0;
    for (int64_t r = 0; r < a->rv; r++) {
        real sum = 0;
        for (int64_t m = 0; m < visible; m++) {
            sum += a->scores[m] * (real)f->av[m * f->step * a->rv + r] * (real)f->bv[(m * a->rv + r) * a->e + i];
        }
        alike += fabsl(sum);
    }
    for (int64_t m = 0; m < visible; m++) {
        const real term = a->scores[m] * a->value_size[m * a->e + i] * oracle_larger(a->score_size[m], 1);
        squares += term * term;
    }
    return oracle_larger(fabsl(a->scale_v) * alike, sqrtl(squares));
}

/* Scores of the first `visible` keys become weights that add up to 1. Returns log sum exp with the largest of 1, its two
 * terms, and the mean of the scores' sizes, by which it changes with them. */
static oracle_number weigh(attention *a, const head_factors *f, int64_t visible)
{
    real largest = -(real)INFINITY, sum = 0, size = 0;
    for (int64_t m = 0; m < visible; m++) {
        real dot = 0;
        for (int64_t i = 0; i < a->d; i++) {
            dot += a->query[i] * a->keys[m * a->d + i];
        }
        a->scores[m] = a->scale * dot;
        largest = oracle_larger(a->scores[m], largest);
    }
    const real shift = largest == -(real)INFINITY ? 0 : largest; /* of nothing but -inf the sum is 0 */
    for (int64_t m = 0; m < visible; m++) {
        a->scores[m] = expl(a->scores[m] - shift);
        sum += a->scores[m];
    }
    for (int64_t m = 0; m < visible; m++) {
        a->scores[m] /= sum;
        a->score_size[m] = a->scores[m] > 0 ? size_of_score(a, f, m) : 0;
        size += a->scores[m] * a->score_size[m];
    }
    const real terms = oracle_larger(oracle_larger(fabsl(largest), logl(sum)), 1);
    return (oracle_number){largest + logl(sum), oracle_larger(size, terms), 0, 0};
}

/* Fills a->row with the output over the first `visible` keys and returns log sum exp. */
static oracle_number attend(attention *a, const head_factors *f, int64_t visible)
{
    const oracle_number lse = weigh(a, f, visible);
    for (int64_t i = 0; i < a->e; i++) {
        real mean = 0;
        for (int64_t m = 0; m < visible; m++) {
            mean += a->scores[m] * a->values[m * a->e + i];
        }
        a->row[i] = mean;
    }
    return visible > 0 ? lse : (oracle_number){-(real)INFINITY, 1, 0, 0};
}

static int64_t visible_keys(const copes_op *op, const attention *a, const oracle_tensor *kv_len, int64_t b, int64_t n)
{
    int64_t step = op->tpa.kv_stride == 0 ? 1 : op->tpa.kv_stride;
    int64_t length = op->tpa.kv_total != 0 ? op->tpa.kv_total : op->tpa.kv_first + (a->m - 1) * step + 1;
    if (kv_len != NULL) {
        int64_t given = (int64_t)kv_len->value[b];
        length = given < 0 ? 0 : given > length ? length : given;
    }
    int64_t last = op->tpa.causal ? length - a->n + n : length - 1, visible = 0;
    while (visible < a->m && op->tpa.kv_first + visible * step <= last) {
        visible++;
    }
    return visible;
}

static void store_row(const attention *a, const head_factors *f, int64_t visible, oracle_tensor *out, int64_t row)
{
    real top = 0;
    for (int64_t i = 0; i < a->e; i++) {
        top = oracle_larger(oracle_larger(fabsl(a->row[i]), size_of_output(a, f, visible, i)), top);
    }
    for (int64_t i = 0; i < a->e; i++) {
        out->value[row * a->e + i] = (double)a->row[i];
        out->term[row * a->e + i] = oracle_size(top);
        out->turn[row * a->e + i] = 0;
    }
}

static void run_head(attention *a, const copes_op *op, const oracle_args *args, int64_t b, int64_t h)
{
    for (int64_t n = 0; n < a->n; n++) {
        const head_factors f = factors_of(a, args, b, n, h);
        const int64_t row = (b * a->n + n) * a->h + h;
        const int64_t visible = visible_keys(op, a, args->in[COPES_TPA_KV_LEN], b, n);
        if (n == 0) {
            form_cache(a, &f);
        }
        combine(f.aq, f.bq, a->rq, a->d, a->scale_q, a->query, a->query_size);
        const oracle_number lse = attend(a, &f, visible);
        store_row(a, &f, visible, args->out[COPES_TPA_OUT], row);
        oracle_tensor *out = args->out[COPES_TPA_OUT_LSE];
        if (out != NULL) {
            out->value[row] = (double)lse.value;
            out->term[row] = oracle_size(lse.term);
            out->turn[row] = 0;
        }
    }
}

int oracle_run_tpa(const copes_op *op, const oracle_args *args)
{
    attention a = describe(op, args);
    real *memory = calloc((size_t)(2 * a.m * (a.d + a.e + 1) + 2 * a.d + a.e + 1), sizeof *memory);
    if (memory == NULL) {
        return -1;
    }
    a.keys = memory;
    a.values = a.keys + a.m * a.d;
    a.scores = a.values + a.m * a.e;
    a.query = a.scores + a.m;
    a.row = a.query + a.d;
    a.query_size = a.row + a.e;
    a.key_size = a.query_size + a.d;
    a.value_size = a.key_size + a.m * a.d;
    a.score_size = a.value_size + a.m * a.e;
    for (int64_t b = 0; b < a.b; b++) {
        for (int64_t h = 0; h < a.h; h++) {
            run_head(&a, op, args, b, h);
        }
    }
    free(memory);
    return 0;
}

void oracle_infer_tpa(const oracle_args *args, int slot, oracle_tensor *out)
{
    const int64_t *aq = args->in[COPES_TPA_AQ]->shape;
    const oracle_tensor *bv = args->in[COPES_TPA_BV];
    out->rank = slot == COPES_TPA_OUT_LSE ? 3 : 4;
    out->shape[0] = aq[0];
    out->shape[1] = aq[1];
    out->shape[2] = aq[2];
    out->shape[3] = bv->shape[bv->rank - 1];
}
