/* tpa_decode. Bound by multiply-adds: a key costs (D Rk + E Rv) of them for each head, and few bytes. Heads are the lanes of
 * vectors, and neither keys nor values are formed: a tile's scores are bk q^T, a product of small matrices, then scaled
 * by ak; outputs gather bv^T (av p), another. A task is a query token, a block of heads and a part of the cache, cut in
 * the same way for any number of threads; the parts' outputs are merged by their log sum exp, in order. */
#include "backends/openmp/factors.h"
#include "backends/openmp/product.h"
#include "backends/openmp/softmax.h"
#include "backends/openmp/template.h"

enum {
    TILE_ROWS = 48, /* key or value features in cache at once: a multiple of the rows of a product's block */
    HEAD_BLOCK_BYTES = 1 << 15, /* of a block of heads' queries, or outputs: what is read again for each few rows */
    PART_KEYS = 1024,           /* at least, in a part of the cache, so that partial outputs are small beside it */
    ENOUGH_TASKS = 64
};

typedef struct layout {
    int64_t heads, stride, blocks; /* of a block of heads: their number, the same in whole vectors, and the blocks */
    int64_t tile, part, parts;     /* keys of a tile and of a part, and the parts */
    int64_t rows, ranks, width;    /* the largest of a tile's feature rows, of ranks, and of D and E */
    int64_t partial;               /* reals of a partial output */
} layout;

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t parts_of(int64_t whole, int64_t part)
{
    return (whole + part - 1) / part;
}

static layout layout_of(const copes_tpa_problem *problem)
{
    const int64_t rank = most(problem->rk, problem->rv);
    layout l = {.width = most(problem->d, problem->e), .ranks = most(rank, problem->rq)};
    const int64_t fit = HEAD_BLOCK_BYTES / ((int64_t)sizeof(real) * l.width) / (2 * LANES) * (2 * LANES);
    l.blocks = parts_of(problem->h, most(fit, 2 * LANES));
    l.heads = parts_of(parts_of(problem->h, l.blocks), LANES) * LANES;
    l.blocks = parts_of(problem->h, l.heads);
    l.stride = l.heads;
    l.tile = most(TILE_ROWS / rank, 1);
    l.rows = most(l.tile * rank, problem->rq);
    const int64_t wanted = parts_of(ENOUGH_TASKS, problem->b * problem->n * l.blocks);
    l.part = parts_of(most(parts_of(problem->m, wanted), PART_KEYS), l.tile) * l.tile;
    l.parts = most(parts_of(problem->m, l.part), 1);
    l.partial = thread_part((problem->e + 2) * l.stride * (int64_t)sizeof(real)) / (int64_t)sizeof(real);
    return l;
}

/* What a thread works in. The output so far, and its largest score and sum, are a partial's or the thread's own. */
typedef struct memory {
    real *query;        /* (D, heads) */
    real *scores;       /* (tile rank, heads): scores, then their exponentials times av */
    real *features;     /* (tile rank, D or E) */
    real *coefficients; /* (rank, heads) */
    real *shrink, *carry;
    real *own;
} memory;

static int64_t memory_bytes(const copes_tpa_problem *problem, const layout *l)
{
    const int64_t reals = (problem->d + l->rows + l->ranks + 2) * l->stride + l->rows * l->width + l->partial;
    return reals * (int64_t)sizeof(real);
}

static memory memory_open(const copes_tpa_problem *problem, const layout *l, void *bytes)
{
    memory m = {.query = bytes};
    m.scores = m.query + problem->d * l->stride;
    m.coefficients = m.scores + l->rows * l->stride;
    m.shrink = m.coefficients + l->ranks * l->stride;
    m.carry = m.shrink + l->stride;
    m.own = m.carry + l->stride;
    m.features = m.own + l->partial;
    return m;
}

/* An output in the making: (heads) largest scores, (heads) sums, (E, heads) outputs. */
typedef struct partial {
    real *most, *sum, *o;
} partial;

static inline partial partial_at(real *data, const layout *l)
{
    return (partial){data, data + l->stride, data + 2 * l->stride};
}

/* Query token n of batch entry b and heads from `first` on. */
typedef struct query {
    int64_t b, n, block, first, heads, visible;
} query;

static query query_of(const copes_tpa_problem *problem, const layout *l, int64_t index)
{
    query q = {.block = index % l->blocks, .n = index / l->blocks % problem->n, .b = index / l->blocks / problem->n};
    q.first = q.block * l->heads;
    q.heads = least(l->heads, problem->h - q.first);
    q.visible = problem->m;
    if (problem->kv_len.data != NULL) {
        int32_t length;
        memcpy(&length, (const char *)problem->kv_len.data + q.b * problem->kv_len.stride[0] * (int64_t)sizeof length,
               sizeof length);
        q.visible = most(least(length, problem->m), 0);
    }
    if (problem->causal)
        q.visible = most(q.visible - problem->n + q.n + 1, 0);
    return q;
}

static inline const storage *coefficients_at(const copes_view *view, const query *q, int64_t token)
{
    return (const storage *)view->data + q->b * view->stride[0] + token * view->stride[1] + q->first * view->stride[2];
}

/* q[d, h] = score_scale sum_r bq[r, d] aq[h, r]. */
static NOINLINE void form_query(const copes_tpa_problem *problem, const layout *l, const query *q, const memory *m)
{
    const feature_rows bq = read_rows(&problem->bq, q->b, q->n, 1, problem->rq, problem->d, m->features);
    read_coefficients(&problem->aq, problem->rq, q->heads, coefficients_at(&problem->aq, q, q->n), l->stride,
                      m->coefficients);
    product_columns(m->query, bq.data, bq.stride, m->coefficients, problem->d, problem->rq, l->stride, NULL,
                    (ahead){0});
    for (int64_t i = 0; i < problem->d * l->stride; i += LANES)
        store_real(m->query + i, load_real(m->query + i) * (real)problem->score_scale);
}

/* Scores of `count` keys from `key` on, a row for each, and the largest so far. */
static NOINLINE void score_tile(const copes_tpa_problem *problem, const layout *l, const query *q, const memory *m, int64_t key,
                       int64_t count, partial *out)
{
    const int64_t rank = problem->rk, stride = l->stride;
    const feature_rows bk = read_rows(&problem->bk, q->b, key, count, rank, problem->d, m->features);
    product_rows(m->scores, bk.data, bk.stride, m->query, count * rank, problem->d, stride,
                 rows_ahead(&problem->bv, q->b, key, count, problem->rv, problem->e));
    for (int64_t i = 0; i < stride; i += LANES)
        store_real(m->shrink + i, load_real(out->most + i));
    for (int64_t j = 0; j < count; j++) {
        read_coefficients(&problem->ak, rank, q->heads, coefficients_at(&problem->ak, q, key + j), stride,
                          m->coefficients);
        for (int64_t i = 0; i < stride; i += LANES) {
            vreal score = vset(0);
            for (int64_t r = 0; r < rank; r++)
                score +=
                    load_real(m->coefficients + r * stride + i) * load_real(m->scores + (j * rank + r) * stride + i);
            store_real(m->scores + j * stride + i, score); /* at or before the rows just read */
            store_real(out->most + i, vmax(score, load_real(out->most + i)));
        }
    }
}

/* Scores become exponentials; the sum so far takes them in. */
static NOINLINE void exponentiate_tile(const layout *l, const memory *m, int64_t count, partial *out)
{
    for (int64_t i = 0; i < l->stride; i += LANES) {
        const vreal shift = vfinite_max(load_real(out->most + i)), shrink = vexp_term(load_real(m->shrink + i) - shift);
        vreal sum = load_real(out->sum + i) * shrink, carry = load_real(m->carry + i) * shrink, part = vset(0);
        for (int64_t j = 0; j < count; j++) {
            real *score = m->scores + j * l->stride + i;
            const vreal e = vexp_term(load_real(score) - shift);
            store_real(score, e);
            part += e;
        }
        vsum_add(&sum, &carry, part);
        store_real(out->sum + i, sum);
        store_real(m->carry + i, carry);
        store_real(m->shrink + i, shrink);
    }
}

/* o[e, h] = o[e, h] shrink[h] + sum over keys and ranks of bv[j, r, e] av[j, h, r] p[j, h]. `next` keys follow. */
static NOINLINE void add_values(const copes_tpa_problem *problem, const layout *l, const query *q, const memory *m, int64_t key,
                       int64_t count, int64_t next, partial *out)
{
    const int64_t rank = problem->rv, stride = l->stride;
    for (int64_t j = count - 1; j >= 0; j--) { /* backwards: a key's rows are at or past its row of exponentials */
        read_coefficients(&problem->av, rank, q->heads, coefficients_at(&problem->av, q, key + j), stride,
                          m->coefficients);
        for (int64_t i = 0; i < stride; i += LANES) {
            const vreal e = load_real(m->scores + j * stride + i);
            for (int64_t r = 0; r < rank; r++)
                store_real(m->scores + (j * rank + r) * stride + i, e * load_real(m->coefficients + r * stride + i));
        }
    }
    const feature_rows bv = read_rows(&problem->bv, q->b, key, count, rank, problem->e, m->features);
    product_columns(out->o, bv.data, bv.stride, m->scores, problem->e, count * rank, stride, m->shrink,
                    rows_ahead(&problem->bk, q->b, key + count, next, problem->rk, problem->d));
}

/* Attention over keys begin .. end - 1. */
static void attend(const copes_tpa_problem *problem, const layout *l, const query *q, const memory *m, int64_t begin,
                   int64_t end, partial *out)
{
    form_query(problem, l, q, m);
    for (int64_t i = 0; i < l->stride; i++) {
        out->most[i] = -(real)INFINITY;
        out->sum[i] = m->carry[i] = 0;
    }
    memset(out->o, 0, (size_t)(problem->e * l->stride) * sizeof *out->o);
    for (int64_t key = begin; key < end; key += l->tile) {
        const int64_t count = least(l->tile, end - key);
        score_tile(problem, l, q, m, key, count, out);
        exponentiate_tile(l, m, count, out);
        add_values(problem, l, q, m, key, count, least(l->tile, end - key - count), out);
    }
}

/* Adds a later part's output to an earlier one's. */
static NOINLINE void merge(const copes_tpa_problem *problem, const layout *l, partial *out, const partial *part)
{
    for (int64_t i = 0; i < l->stride; i += LANES) {
        const vreal a = load_real(out->most + i), b = load_real(part->most + i), largest = vmax(a, b);
        const vreal shift = vfinite_max(largest), keep = vexp_term(a - shift), add = vexp_term(b - shift);
        store_real(out->most + i, largest);
        store_real(out->sum + i, load_real(out->sum + i) * keep + load_real(part->sum + i) * add);
        for (int64_t e = 0; e < problem->e; e++) {
            real *o = out->o + e * l->stride + i;
            store_real(o, load_real(o) * keep + load_real(part->o + e * l->stride + i) * add);
        }
    }
}

/* Writes the finished output of a query, all 0 where it saw no key. */
static NOINLINE void finish(const copes_tpa_problem *problem, const layout *l, const query *q, const partial *out)
{
    const copes_view *o = &problem->o, *lse = &problem->lse;
    for (int64_t h = 0; h < q->heads; h++) {
        const real factor = (real)problem->value_scale / out->sum[h];
        storage *row = (storage *)o->data + q->b * o->stride[0] + q->n * o->stride[1] + (q->first + h) * o->stride[2];
        for (int64_t e = 0; e < problem->e; e++)
            store_scalar(row + e * o->stride[3], q->visible > 0 ? out->o[feature_place(e, problem->e) * l->stride + h] * factor : 0);
        if (lse->data == NULL)
            continue;
        const real value = (real)(out->most[h] + log(out->sum[h]));
        memcpy((real *)lse->data + q->b * lse->stride[0] + q->n * lse->stride[1] + (q->first + h) * lse->stride[2],
               &value, sizeof value);
    }
}

static int64_t partial_count(const copes_tpa_problem *problem, const layout *l)
{
    return l->parts == 1 ? 0 : problem->b * problem->n * l->blocks * l->parts;
}

size_t TEMPLATE(tpa_workspace)(const copes_tpa_problem *problem, int threads)
{
    if (problem->b * problem->n * problem->h == 0)
        return 0;
    const layout l = layout_of(problem);
    return thread_workspace(memory_bytes(problem, &l), threads) +
           (size_t)(partial_count(problem, &l) * l.partial) * sizeof(real);
}

/* A part of the cache for a query: finished at once if it is the only one, else left in its place for the merge. */
static void run_part(const copes_tpa_problem *problem, const layout *l, const memory *m, int64_t task, real *partials)
{
    const query q = query_of(problem, l, task / l->parts);
    const int64_t begin = task % l->parts * l->part, end = least(begin + l->part, q.visible);
    if (begin >= end && l->parts > 1)
        return;
    partial out = partial_at(l->parts > 1 ? partials + task * l->partial : m->own, l);
    attend(problem, l, &q, m, begin, end, &out);
    if (l->parts == 1)
        finish(problem, l, &q, &out);
}

static void merge_parts(const copes_tpa_problem *problem, const layout *l, int64_t index, real *partials)
{
    const query q = query_of(problem, l, index);
    real *first = partials + index * l->parts * l->partial;
    partial out = partial_at(first, l);
    if (q.visible == 0)
        for (int64_t i = 0; i < l->stride; i++)
            out.most[i] = -(real)INFINITY, out.sum[i] = 0;
    for (int64_t part = 1; part * l->part < q.visible; part++) {
        const partial later = partial_at(first + part * l->partial, l);
        merge(problem, l, &out, &later);
    }
    finish(problem, l, &q, &out);
}

void TEMPLATE(tpa)(const copes_tpa_problem *problem, const copes_cpu_run *run)
{
    const int64_t queries = problem->b * problem->n;
    if (queries * problem->h == 0)
        return;
    const layout l = layout_of(problem);
    const int64_t bytes = memory_bytes(problem, &l), tasks = queries * l.blocks * l.parts;
    real *partials = (real *)((char *)run->workspace + thread_workspace(bytes, run->threads));
#ifdef _OPENMP
#pragma omp parallel num_threads(run->threads)
#endif
    {
        _Alignas(THREAD_ALIGNMENT) char stack[STACK_BYTES];
        const memory m = memory_open(problem, &l, thread_memory(run, bytes, stack));
#ifdef _OPENMP
#pragma omp for schedule(dynamic)
#endif
        for (int64_t task = 0; task < tasks; task++)
            run_part(problem, &l, &m, task, partials);
        if (l.parts > 1) {
#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
            for (int64_t index = 0; index < queries * l.blocks; index++)
                merge_parts(problem, &l, index, partials);
        }
    }
}
