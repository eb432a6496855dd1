/* The oracle's tpa_decode: queries, keys and values are formed whole, then plain softmax attention. */
#include "tests/oracle/internal.h"

#include <math.h>
#include <stdlib.h>

typedef struct attention {
    int64_t b, n, m, h, d, e, rq, rk, rv;
    real scale, scale_q, scale_k, scale_v;
    real *query, *keys, *values, *scores, *row; /* of one batch entry and head; query and row of one token */
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

/* row[i] = scale sum_r a[r] b[r, i]. */
static void combine(const double *a, const double *b, int64_t rank, int64_t width, real scale, real *row)
{
    for (int64_t i = 0; i < width; i++) {
        real sum = 0;
        for (int64_t r = 0; r < rank; r++) {
            sum += (real)a[r] * (real)b[r * width + i];
        }
        row[i] = scale * sum;
    }
}

static void form_cache(attention *a, const oracle_args *args, int64_t b, int64_t h)
{
    for (int64_t m = 0; m < a->m; m++) {
        int64_t token = b * a->m + m;
        combine(args->in[COPES_TPA_AK]->value + (token * a->h + h) * a->rk,
                args->in[COPES_TPA_BK]->value + token * a->rk * a->d, a->rk, a->d, a->scale_k, a->keys + m * a->d);
        combine(args->in[COPES_TPA_AV]->value + (token * a->h + h) * a->rv,
                args->in[COPES_TPA_BV]->value + token * a->rv * a->e, a->rv, a->e, a->scale_v, a->values + m * a->e);
    }
}

/* Fills a->row with the output over the first `visible` keys and returns log sum exp and its larger term. */
static oracle_number attend(attention *a, int64_t visible)
{
    real largest = -(real)INFINITY, sum = 0;
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
    for (int64_t i = 0; i < a->e; i++) {
        real mean = 0;
        for (int64_t m = 0; m < visible; m++) {
            mean += a->scores[m] * a->values[m * a->e + i];
        }
        a->row[i] = visible > 0 ? mean / sum : 0;
    }
    if (visible <= 0) {
        return (oracle_number){-(real)INFINITY, 1, 0};
    }
    return (oracle_number){largest + logl(sum), oracle_larger(oracle_larger(fabsl(largest), logl(sum)), 1), 0};
}

static int64_t visible_keys(const copes_op *op, const attention *a, const oracle_tensor *kv_len, int64_t b, int64_t n)
{
    int64_t length = a->m;
    if (kv_len != NULL) {
        int64_t given = (int64_t)kv_len->value[b];
        length = given < 0 ? 0 : given > a->m ? a->m : given;
    }
    int64_t visible = op->tpa.causal ? length - a->n + n + 1 : length;
    return visible < 0 ? 0 : visible;
}

static void store_row(const attention *a, oracle_tensor *out, int64_t row)
{
    real top = 0;
    for (int64_t i = 0; i < a->e; i++) {
        top = oracle_larger(fabsl(a->row[i]), top);
    }
    for (int64_t i = 0; i < a->e; i++) {
        out->value[row * a->e + i] = (double)a->row[i];
        out->term[row * a->e + i] = (double)top;
        out->turn[row * a->e + i] = 0;
    }
}

static void run_head(attention *a, const copes_op *op, const oracle_args *args, int64_t b, int64_t h)
{
    form_cache(a, args, b, h);
    for (int64_t n = 0; n < a->n; n++) {
        int64_t token = b * a->n + n, row = token * a->h + h;
        combine(args->in[COPES_TPA_AQ]->value + row * a->rq, args->in[COPES_TPA_BQ]->value + token * a->rq * a->d,
                a->rq, a->d, a->scale_q, a->query);
        oracle_number lse = attend(a, visible_keys(op, a, args->in[COPES_TPA_KV_LEN], b, n));
        store_row(a, args->out[COPES_TPA_OUT], row);
        oracle_tensor *out = args->out[COPES_TPA_OUT_LSE];
        if (out != NULL) {
            out->value[row] = (double)lse.value;
            out->term[row] = (double)lse.term;
            out->turn[row] = 0;
        }
    }
}

int oracle_run_tpa(const copes_op *op, const oracle_args *args)
{
    attention a = describe(op, args);
    real *memory = calloc((size_t)(a.m * (a.d + a.e + 1) + a.d + a.e + 1), sizeof *memory);
    if (memory == NULL) {
        return -1;
    }
    a.keys = memory;
    a.values = a.keys + a.m * a.d;
    a.scores = a.values + a.m * a.e;
    a.query = a.scores + a.m;
    a.row = a.query + a.d;
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
