/* The oracle's attention_merge and its gradient, row by row: a (batch, token, head) of all shares.
 *
 * A weight is as far off as the difference of two lse that it is the exponential of: a term counts as often as that difference is
 * larger than 1, and as a sixteenth of the smallest normal number at least, 1e-6 of which is half of the smallest number: so much
 * may its addition round off. A weight below the smallest normal number may count as 0, for which its term is room. */
#include "tests/oracle/internal.h"

#include <math.h>
#include <stdlib.h>

typedef struct merge {
    int64_t shares, rows, e;
    real ln_base, tiny;
    real *weight, *size; /* (S): of the row; the size is the weight's with what it may be off by */
    int *empty;          /* (S) */
    real *dot, *dot_size;
} merge;

/* Fills in the row's weights, sizes and empty shares, and returns log sum exp. */
static oracle_number weigh(merge *m, const double *lse, int64_t row)
{
    real most = -(real)INFINITY, sum = 0;
    for (int64_t s = 0; s < m->shares; s++) {
        const real x = (real)lse[s * m->rows + row];
        m->empty[s] = isinf(x) != 0;
        most = m->empty[s] ? most : oracle_larger(x, most);
    }
    for (int64_t s = 0; s < m->shares; s++) {
        const real x = ((real)lse[s * m->rows + row] - most) * m->ln_base;
        m->weight[s] = m->empty[s] ? 0 : expl(x);
        m->size[s] = m->empty[s] ? 0 : oracle_larger(fabsl(x), 1);
        sum += m->weight[s];
    }
    for (int64_t s = 0; s < m->shares; s++) {
        m->weight[s] = m->empty[s] ? 0 : m->weight[s] / sum;
        m->size[s] *= m->weight[s];
    }
    if (sum == 0) {
        return (oracle_number){-(real)INFINITY, 1, 0, 0};
    }
    const real of_sum = logl(sum) / m->ln_base;
    return (oracle_number){most + of_sum, oracle_larger(oracle_larger(fabsl(most), fabsl(of_sum)), 1), 0, 0};
}

/* How far the arithmetic may be from a weight below the smallest normal number: all of it, or a step of float32's numbers there. */
static real least_known(const merge *m, int64_t s)
{
    return m->weight[s] + m->tiny * 0x1p-23L;
}

static int vanishes(const merge *m, int64_t s)
{
    return m->weight[s] < 2 * m->tiny;
}

/* Adds a share's weight times x. */
static void add_term(const merge *m, int64_t s, real x, oracle_number *to)
{
    to->value += m->weight[s] * x;
    to->term += oracle_larger(m->size[s] * fabsl(x), m->tiny / 16);
    to->room += vanishes(m, s) && isfinite(x) ? least_known(m, s) * fabsl(x) : 0;
    if (vanishes(m, s) && isinf(x)) {
        to->turn = (real)INFINITY; /* times 0 it is NaN */
    }
}

static void store(oracle_tensor *out, int64_t at, oracle_number number)
{
    out->value[at] = (double)number.value;
    out->term[at] = oracle_size(number.term);
    out->turn[at] = (double)number.turn;
    if (out->room != NULL) {
        out->room[at] = oracle_size(number.room);
    }
}

static void run_forward(merge *m, const oracle_args *args, int64_t row)
{
    const oracle_tensor *shares = args->in[COPES_MERGE_O_SHARES];
    const oracle_number lse = weigh(m, args->in[COPES_MERGE_LSE_SHARES]->value, row);
    for (int64_t i = 0; i < m->e; i++) {
        oracle_number sum = {0, 0, 0, 0};
        for (int64_t s = 0; s < m->shares; s++) {
            if (!m->empty[s]) {
                add_term(m, s, (real)shares->value[(s * m->rows + row) * m->e + i], &sum);
            }
        }
        store(args->out[COPES_MERGE_OUT], row * m->e + i, sum);
    }
    if (args->out[COPES_MERGE_OUT_LSE] != NULL) {
        store(args->out[COPES_MERGE_OUT_LSE], row, lse);
    }
}

/* The gradients of the shares' lse. */
static void run_lse_gradient(merge *m, const oracle_args *args, int64_t row)
{
    const double *g = args->in[COPES_MERGE_GRAD_O]->value + row * m->e;
    const oracle_tensor *grad_lse = args->in[COPES_MERGE_GRAD_LSE];
    const real of_lse = grad_lse == NULL ? 0 : (real)grad_lse->value[row];
    oracle_number mean = {0, 0, 0, 0};
    for (int64_t s = 0; s < m->shares; s++) {
        const double *o = args->in[COPES_MERGE_O_SHARES]->value + (s * m->rows + row) * m->e;
        m->dot[s] = m->dot_size[s] = 0;
        for (int64_t i = 0; i < m->e && !m->empty[s]; i++) {
            m->dot[s] += (real)g[i] * (real)o[i];
            m->dot_size[s] += fabsl((real)g[i] * (real)o[i]);
        }
        mean.value += m->weight[s] * m->dot[s];
        mean.term += m->size[s] * m->dot_size[s];
        mean.room += vanishes(m, s) ? least_known(m, s) * m->dot_size[s] : 0;
    }
    for (int64_t s = 0; s < m->shares; s++) {
        oracle_number grad = {0, 0, 0, 0};
        if (!m->empty[s]) {
            const real sizes = m->ln_base * (m->dot_size[s] + mean.term) + fabsl(of_lse);
            grad.value = m->weight[s] * (m->ln_base * (m->dot[s] - mean.value) + of_lse);
            grad.term = m->size[s] * sizes;
            grad.room = vanishes(m, s) ? least_known(m, s) * sizes : m->weight[s] * m->ln_base * mean.room;
        }
        store(args->out[COPES_MERGE_OUT_LSE], s * m->rows + row, grad);
    }
}

static void run_backward(merge *m, const oracle_args *args, int64_t row)
{
    const double *g = args->in[COPES_MERGE_GRAD_O]->value + row * m->e;
    weigh(m, args->in[COPES_MERGE_LSE_SHARES]->value, row);
    for (int64_t s = 0; s < m->shares; s++) {
        for (int64_t i = 0; i < m->e; i++) {
            oracle_number grad = {0, 0, 0, 0};
            if (!m->empty[s]) {
                add_term(m, s, (real)g[i], &grad);
            }
            store(args->out[COPES_MERGE_OUT], (s * m->rows + row) * m->e + i, grad);
        }
    }
    if (args->out[COPES_MERGE_OUT_LSE] != NULL) {
        run_lse_gradient(m, args, row);
    }
}

int oracle_run_merge(const copes_op *op, const oracle_args *args)
{
    const int backward = op->kind == COPES_ATTENTION_MERGE_BACKWARD;
    const int64_t *lse = args->in[COPES_MERGE_LSE_SHARES]->shape;
    const oracle_tensor *wide = backward ? args->in[COPES_MERGE_GRAD_O] : args->in[COPES_MERGE_O_SHARES];
    merge m = {.shares = lse[0], .rows = lse[1] * lse[2] * lse[3], .e = wide->shape[wide->rank - 1]};
    m.ln_base = op->merge.base == COPES_LOG_BASE_2 ? logl(2) : 1;
    m.tiny = (real)args->tiny;
    m.weight = calloc((size_t)m.shares * 4 + 1, sizeof *m.weight);
    m.empty = calloc((size_t)m.shares + 1, sizeof *m.empty);
    if (m.weight != NULL && m.empty != NULL) {
        m.size = m.weight + m.shares;
        m.dot = m.size + m.shares;
        m.dot_size = m.dot + m.shares;
        for (int64_t row = 0; row < m.rows; row++) {
            (backward ? run_backward : run_forward)(&m, args, row);
        }
    }
    const int status = m.weight != NULL && m.empty != NULL ? 0 : -1;
    free(m.weight);
    free(m.empty);
    return status;
}

void oracle_infer_merge(const copes_op *op, const oracle_args *args, int slot, oracle_tensor *out)
{
    const int backward = op->kind == COPES_ATTENTION_MERGE_BACKWARD;
    const int64_t *lse = args->in[COPES_MERGE_LSE_SHARES]->shape;
    const oracle_tensor *wide = backward ? args->in[COPES_MERGE_GRAD_O] : args->in[COPES_MERGE_O_SHARES];
    out->rank = backward ? 4 : 3;
    for (int i = 0; i < out->rank; i++) {
        out->shape[i] = lse[i + 4 - out->rank];
    }
    if (slot == COPES_MERGE_OUT) {
        out->shape[out->rank++] = wide->shape[wide->rank - 1];
    }
}
