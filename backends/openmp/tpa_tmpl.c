/* tpa_decode. Bound by multiply-adds: a key costs (D Rk + E Rv) of them for each head, and few bytes. Heads are lanes
 * of vectors, and neither keys nor values are formed: a tile's scores are bk q^T, a product of small matrices, then
 * scaled by ak; outputs gather bv^T (av p), another. A task is a query token, a block of heads and a part of the cache,
 * cut in the same way for any number of threads; the parts' outputs are merged by their log sum exp, in order. Within a
 * part so are those of groups of tiles: sums of many keys keep what each addition of a group has rounded off. */
#include "backends/openmp/factors.h"
#include "backends/openmp/product.h"
#include "backends/openmp/softmax.h"
#include "backends/openmp/tpa_task.h"

static inline const storage *coefficients_at(const copes_view *view, const query *q, int64_t token)
{
    return (const storage *)view->data + q->b * view->stride[0] + token * view->stride[1] + q->first * view->stride[2];
}

/* x 2^exponent, which only what is past the type's range rounds. */
static inline real scaled_by(real x, int exponent)
{
    return (real)ldexp((double)x, exponent);
}

/* q[d, h] = scale sum_r bq[r, d] aq[h, r]. */
static NOINLINE void form_query(const copes_tpa_problem *problem, const layout *l, const query *q, const memory *m)
{
    const feature_rows bq = read_rows(&problem->bq, q->b, q->n, 1, problem->rq, problem->d, m->features);
    read_coefficients(&problem->aq, problem->rq, q->heads, coefficients_at(&problem->aq, q, q->n), l->stride,
                      m->coefficients);
    product_columns(m->query, bq.data, bq.stride, m->coefficients, problem->d, problem->rq, l->stride, NULL,
                    (ahead){0});
    for (int64_t i = 0; i < problem->d * l->stride; i += LANES)
        store_real(m->query + i, load_real(m->query + i) * (real)problem->score_scale);
    for (int64_t i = 0; problem->score_exponent != 0 && i < problem->d * l->stride; i++)
        m->query[i] = scaled_by(m->query[i], problem->score_exponent);
}

/* Scores of `count` keys from `key` on, a row for each, and the largest so far. */
static NOINLINE void score_tile(const copes_tpa_problem *problem, const layout *l, const query *q, const memory *m,
                                int64_t key, int64_t count, partial *out)
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
                score = vfma(load_real(m->coefficients + r * stride + i),
                             load_real(m->scores + (j * rank + r) * stride + i), score);
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
        vreal part = vset(0);
        for (int64_t j = 0; j < count; j++) {
            real *score = m->scores + j * l->stride + i;
            const vreal e = vexp_term(load_real(score) - shift);
            store_real(score, e);
            part += e;
        }
        store_real(out->sum + i, vfma(load_real(out->sum + i), shrink, part));
        store_real(m->shrink + i, shrink);
    }
}

/* o[e, h] = o[e, h] shrink[h] + sum over keys and ranks of bv[j, r, e] av[j, h, r] p[j, h]. `next` keys follow. */
static NOINLINE void add_values(const copes_tpa_problem *problem, const layout *l, const query *q, const memory *m,
                                int64_t key, int64_t count, int64_t next, partial *out)
{
    const int64_t rank = problem->rv, stride = l->stride;
    for (int64_t j = count - 1; j >= 0; j--) { /* backwards: a key's rows are at or past its row of exponentials */
        read_coefficients(&problem->av, rank, q->heads, coefficients_at(&problem->av, q, key + j), stride,
                          m->coefficients);
        for (int64_t i = 0; i < stride; i += LANES) {
            const vreal e = load_real(m->scores + j * stride + i), unit = load_real(out->unit + i);
            for (int64_t r = 0; r < rank; r++)
                store_real(m->scores + (j * rank + r) * stride + i,
                           e * load_real(m->coefficients + r * stride + i) * unit);
        }
    }
    const feature_rows bv = read_rows(&problem->bv, q->b, key, count, rank, problem->e, m->features);
    product_columns(out->o, bv.data, bv.stride, m->scores, problem->e, count * rank, stride, m->shrink,
                    rows_ahead(&problem->bk, q->b, key + count, next, problem->rk, problem->d));
}

/* No key has been seen. */
static void clear_output(const copes_tpa_problem *problem, const layout *l, const partial *out)
{
    for (int64_t i = 0; i < l->stride; i++) {
        out->most[i] = -(real)INFINITY;
        out->sum[i] = 0;
    }
    memset(out->o, 0, (size_t)(problem->e * l->stride) * sizeof *out->o);
}

/* Nothing has been rounded off. */
static void clear_carry(const copes_tpa_problem *problem, const layout *l, const partial *carry)
{
    memset(carry->sum, 0, (size_t)l->stride * sizeof *carry->sum);
    memset(carry->o, 0, (size_t)(problem->e * l->stride) * sizeof *carry->o);
}

/* Adds some keys' output to others', in a unit no larger than any of theirs. Sums are compensated, and shrink only where
 * `most` moves: to a score above it by so much that what their products round off shrinks in its turn and cannot grow
 * with the number of moves. */
static NOINLINE void merge(const copes_tpa_problem *problem, const layout *l, const partial *carry, const partial *out,
                           const partial *part)
{
    for (int64_t i = 0; i < l->stride; i += LANES) {
        const vreal before = load_real(out->most + i), other = load_real(part->most + i);
        const vreal most = vselect(other > before + 1, other, before), shift = vfinite_max(most);
        const vreal keep = vexp_term(before - shift), add = vexp_term(other - shift);
        const vreal unit = vmin(load_real(out->unit + i), load_real(part->unit + i));
        const vreal lower = unit / load_real(out->unit + i), lower_part = unit / load_real(part->unit + i);
        vreal sum = load_real(out->sum + i) * keep, lost = load_real(carry->sum + i) * keep;
        vsum_add(&sum, &lost, load_real(part->sum + i) * add);
        store_real(out->most + i, most);
        store_real(out->unit + i, unit);
        store_real(out->sum + i, sum);
        store_real(carry->sum + i, lost);
        for (int64_t at = i; at < problem->e * l->stride; at += l->stride) {
            vreal o = load_real(out->o + at) * lower * keep;
            lost = load_real(carry->o + at) * lower * keep;
            vsum_add(&o, &lost, load_real(part->o + at) * lower_part * add);
            store_real(out->o + at, o);
            store_real(carry->o + at, lost);
        }
    }
}

/* Attention over keys begin .. end - 1, few enough for plain sums, in units that are given. */
static void attend_group(const copes_tpa_problem *problem, const layout *l, const query *q, const memory *m,
                         int64_t begin, int64_t end, partial *out)
{
    clear_output(problem, l, out);
    for (int64_t key = begin; key < end; key += l->tile) {
        const int64_t count = least(l->tile, end - key);
        score_tile(problem, l, q, m, key, count, out);
        exponentiate_tile(l, m, count, out);
        add_values(problem, l, q, m, key, count, least(l->tile, end - key - count), out);
    }
}

/* The same for any number of keys. */
static void attend(const copes_tpa_problem *problem, const layout *l, const query *q, const memory *m, int64_t begin,
                   int64_t end, partial *out)
{
    const int64_t group = l->tile * GROUP_TILES;
    const partial carry = partial_at(m->carry, l);
    partial more = partial_at(m->group, l);
    form_query(problem, l, q, m);
    clear_carry(problem, l, &carry);
    attend_group(problem, l, q, m, begin, least(begin + group, end), out);
    for (int64_t key = begin + group; key < end; key += group) {
        memcpy(more.unit, out->unit, (size_t)l->stride * sizeof *out->unit);
        attend_group(problem, l, q, m, key, least(key + group, end), &more);
        merge(problem, l, &carry, out, &more);
    }
}

/* Nothing yet, in units of 1. */
static void clear_units(const layout *l, const partial *out)
{
    for (int64_t i = 0; i < l->stride; i++)
        out->unit[i] = 1;
}

/* Outputs are sums over keys, of values without scale_v, which may pass the largest number though the result does not.
 * Those that have done so are to be summed again, in the smaller units that this gives their heads; it returns false
 * where there are none, or nothing helps: the largest product of factors is the largest number's square. */
static NOINLINE bool lower_units(const copes_tpa_problem *problem, const layout *l, const partial *out)
{
    const real step = sizeof(real) == 8 ? (real)0x1p-512 : (real)0x1p-64;
    vint any = {0};
    for (int64_t i = 0; i < l->stride; i += LANES) {
        vreal poison = vset(0); /* NaN where an output is not finite */
        for (int64_t e = 0; e < problem->e; e++)
            poison += load_real(out->o + e * l->stride + i) * 0;
        const vreal unit = load_real(out->unit + i);
        const vint lower = (poison != 0) & (unit >= step);
        store_real(out->unit + i, vselect(lower, unit * step, unit));
        any |= lower;
    }
    return any_lane(any);
}

/* Writes the finished output of a query, all 0 where it saw no key. */
static NOINLINE void finish(const copes_tpa_problem *problem, const layout *l, const query *q, const partial *out)
{
    const copes_view *o = &problem->o, *lse = &problem->lse;
    for (int64_t h = 0; h < q->heads; h++) {
        const real factor = (real)problem->value_scale / out->sum[h];
        const int exponent = problem->value_exponent - ilogb((double)out->unit[h]);
        const int64_t row = q->b * o->stride[0] + q->n * o->stride[1] + (q->first + h) * o->stride[2];
        for (int64_t e = 0; e < problem->e; e++) {
            const real x = out->o[feature_place(e, problem->e) * l->stride + h] * factor;
            store_scalar((storage *)o->data + row + e * o->stride[3], q->visible == 0 ? 0
                                                                      : exponent == 0 ? x
                                                                                      : scaled_by(x, exponent));
        }
        if (lse->data == NULL)
            continue;
        const real value = (real)(out->most[h] + log(out->sum[h]));
        const int64_t at = q->b * lse->stride[0] + q->n * lse->stride[1] + (q->first + h) * lse->stride[2];
        memcpy((char *)lse->data + at * (int64_t)sizeof value, &value, sizeof value);
    }
}

static int64_t partial_count(const copes_tpa_problem *problem, const layout *l)
{
    return l->parts == 1 ? 0 : copes_multiply(problem->b * problem->n * l->blocks, l->parts);
}

int64_t TEMPLATE(tpa_workspace)(const copes_tpa_problem *problem, int threads)
{
    if (problem->b * problem->n * problem->h == 0)
        return 0;
    const layout l = layout_of(problem);
    const int64_t partials = copes_multiply(partial_count(problem, &l), copes_multiply(l.partial, sizeof(real)));
    return copes_add(thread_workspace(memory_bytes(problem, &l), threads), partials);
}

/* A part of the cache for a query: finished at once if it is the only one, else left in its place for the merge. */
static void run_part(const copes_tpa_problem *problem, const layout *l, const memory *m, int64_t task, real *partials)
{
    const query q = query_of(problem, l, task / l->parts);
    const int64_t begin = task % l->parts * l->part, end = least(begin + l->part, q.visible);
    if (begin >= end && l->parts > 1)
        return;
    partial out = partial_at(l->parts > 1 ? partials + task * l->partial : m->own, l);
    clear_units(l, &out);
    do
        attend(problem, l, &q, m, begin, end, &out);
    while (lower_units(problem, l, &out));
    if (l->parts == 1)
        finish(problem, l, &q, &out);
}

static void merge_parts(const copes_tpa_problem *problem, const layout *l, const memory *m, int64_t index,
                        real *partials)
{
    const query q = query_of(problem, l, index);
    real *first = partials + index * l->parts * l->partial;
    partial out = partial_at(m->own, l);
    const partial carry = partial_at(m->carry, l);
    clear_units(l, &out);
    do {
        clear_output(problem, l, &out);
        clear_carry(problem, l, &carry);
        for (int64_t part = 0; part * l->part < q.visible; part++) {
            const partial of_part = partial_at(first + part * l->partial, l);
            merge(problem, l, &carry, &out, &of_part);
        }
    } while (lower_units(problem, l, &out));
    finish(problem, l, &q, &out);
}

/* A call, as its threads see it. */
typedef struct tpa_job {
    const copes_tpa_problem *problem;
    const copes_cpu_run *run;
    layout layout;
    int64_t queries;
    real *partials;
} tpa_job;

static memory memory_of(const tpa_job *job, const copes_worker *worker)
{
    const int64_t bytes = memory_bytes(job->problem, &job->layout);
    return memory_open(job->problem, &job->layout, thread_memory(job->run, worker, bytes));
}

static void run_parts(const copes_worker *worker, const void *argument)
{
    const tpa_job *job = argument;
    const layout *l = &job->layout;
    const memory m = memory_of(job, worker);
    const int64_t tasks = job->queries * l->blocks * l->parts;
    for (int64_t task = copes_next_task(worker, tasks); task < tasks; task = copes_next_task(worker, tasks))
        run_part(job->problem, l, &m, task, job->partials);
}

static void merge_queries(const copes_worker *worker, const void *argument)
{
    const tpa_job *job = argument;
    const layout *l = &job->layout;
    const memory m = memory_of(job, worker);
    const copes_share share = copes_share_of(worker, job->queries * l->blocks);
    for (int64_t index = share.begin; index < share.end; index++)
        merge_parts(job->problem, l, &m, index, job->partials);
}

void TEMPLATE(tpa)(const copes_tpa_problem *problem, const copes_cpu_run *run)
{
    tpa_job job = {.problem = problem, .run = run, .queries = problem->b * problem->n};
    if (job.queries * problem->h == 0)
        return;
    job.layout = layout_of(problem);
    if (job.layout.parts > 1) /* else there may be no workspace */
        job.partials =
            (real *)((char *)run->workspace + thread_workspace(memory_bytes(problem, &job.layout), run->threads));
    copes_team_run(run, run_parts, &job);
    if (job.layout.parts > 1)
        copes_team_run(run, merge_queries, &job);
}
