/* attention_merge. Bound by memory: a row of each share is read once, and written once. A row is a (batch, token, head); its
 * shares' weights are found first, in the thread's memory. Shares are summed in groups, plainly within one and with what
 * roundings lost from one to the next, so that a thousand shares are as good as two. */
#include "backends/openmp/rows.h"
#include "backends/openmp/softmax.h"
#include "backends/openmp/streaming.h"

enum { GROUP = 8 };

/* In place of the weight of a share that is empty. */
static const real EMPTY = -1;

/* A call, as its threads see it. */
typedef struct merge_job {
    const copes_merge_problem *problem;
    const copes_cpu_run *run;
    bool stream;
} merge_job;

/* One row's place, and what a thread knows of it. */
typedef struct merge_row {
    int64_t b, n, h;
    real *weights; /* (S), and room to whole vectors */
    real *dots;    /* (S): grad_o . o_s */
} merge_row;

/* The element of a view at a row's place; `axis` is that of B. */
static inline int64_t place_of(const copes_view *view, int axis, const merge_row *row)
{
    return row->b * view->stride[axis] + row->n * view->stride[axis + 1] + row->h * view->stride[axis + 2];
}

static inline real *wide_at(const copes_view *view, int64_t place)
{
    return (real *)view->data + place;
}

static inline real read_wide(const copes_view *view, int64_t place)
{
    real value;
    memcpy(&value, (const void *)wide_at(view, place), sizeof value);
    return value;
}

static inline void write_wide(const copes_view *view, int64_t place, real value)
{
    memcpy((void *)wide_at(view, place), &value, sizeof value);
}

/* Elements of a row, with any stride: i .. i + n - 1, as load_from and store_to take them. */
typedef struct elements {
    storage *data;
    int64_t stride;
} elements;

static inline elements elements_of(const copes_view *view, const merge_row *row)
{
    return (elements){(storage *)view->data + place_of(view, 0, row), view->stride[3]};
}

/* The row in a view that has an axis of shares before those of rows. */
typedef struct share_rows {
    elements first;
    int64_t apart;
} share_rows;

static inline share_rows shares_of(const copes_view *view, const merge_row *row)
{
    if (view->data == NULL)
        return (share_rows){{NULL, 0}, 0};
    return (share_rows){{(storage *)view->data + place_of(view, 1, row), view->stride[4]}, view->stride[0]};
}

static ALWAYS_INLINE elements share_at(share_rows rows, int64_t s)
{
    return (elements){rows.first.data + s * rows.apart, rows.first.stride};
}

static ALWAYS_INLINE vpair load_elements(elements x, int64_t i, int64_t n)
{
    if (x.stride == 1)
        return load_from(false, x.data, i, n);
    storage part[PAIR] = {0};
    gather(x.data + i * x.stride, x.stride, part, n);
    return load_split(part);
}

static ALWAYS_INLINE void store_elements(elements x, int64_t i, int64_t n, vpair v, bool stream)
{
    if (x.stride == 1) {
        store_to(false, x.data, i, n, v, stream);
    } else {
        storage part[PAIR];
        store_split(part, v, false);
        scatter(part, x.data + i * x.stride, x.stride, n);
    }
}

/* The largest lse of the shares that are not empty; those that are become -inf. NaN where one is. */
static real read_lse(const copes_merge_problem *problem, const merge_row *row)
{
    const copes_view *lse = &problem->lse_shares;
    real most = -(real)INFINITY;
    for (int64_t s = 0; s < problem->shares; s++) {
        const real x = read_wide(lse, s * lse->stride[0] + place_of(lse, 1, row));
        row->weights[s] = isinf(x) ? -(real)INFINITY : x;
        most = row->weights[s] > most || x != x ? row->weights[s] : most;
    }
    for (int64_t s = problem->shares; s % LANES != 0; s++)
        row->weights[s] = -(real)INFINITY;
    return most;
}

/* Fills in the weights, which add up to 1, and returns log sum exp. */
static NOINLINE real weigh(const copes_merge_problem *problem, const merge_row *row)
{
    const bool binary = problem->base == COPES_LOG_BASE_2;
    const real most = read_lse(problem, row), scale = binary ? (real)0x1.62e42fefa39efp-1 : 1;
    vreal sum = vset(0), lost = vset(0);
    for (int64_t s = 0; s < problem->shares; s += LANES) {
        const vreal lse = load_real(row->weights + s);
        const vint empty = lse == vset(-(real)INFINITY);
        const vreal e = vselect(empty, vset(0), vexp((lse - most) * scale).value);
        vsum_add(&sum, &lost, e);
        store_real(row->weights + s, vselect(empty, vset(EMPTY), e));
    }
    const real all = sum_lanes(sum);
    for (int64_t s = 0; s < problem->shares; s += LANES) {
        const vreal weight = load_real(row->weights + s);
        store_real(row->weights + s, vselect(weight == vset(EMPTY), weight, weight / all));
    }
    return all == 0 ? -(real)INFINITY : (real)(most + (binary ? log2((double)all) : log((double)all)));
}

/* Elements i .. i + n - 1 of the row. */
static ALWAYS_INLINE void merge_elements(const merge_job *job, const merge_row *row, share_rows from, elements to,
                                         int64_t i, int64_t n)
{
    const int64_t shares = job->problem->shares;
    vpair sum = {vset(0), vset(0)}, lost = sum;
    for (int64_t first = 0; first < shares; first += GROUP) {
        const int64_t end = first + GROUP < shares ? first + GROUP : shares;
        vpair part = {vset(0), vset(0)};
        for (int64_t s = first; s < end; s++) {
            if (row->weights[s] == EMPTY)
                continue;
            const vpair x = load_elements(share_at(from, s), i, n);
            part.low = vfma(vset(row->weights[s]), x.low, part.low);
            part.high = vfma(vset(row->weights[s]), x.high, part.high);
        }
        vsum_add(&sum.low, &lost.low, part.low);
        vsum_add(&sum.high, &lost.high, part.high);
    }
    store_elements(to, i, n, sum, job->stream);
}

static NOINLINE void merge_row_forward(const merge_job *job, const merge_row *row)
{
    const copes_merge_problem *problem = job->problem;
    const share_rows from = shares_of(&problem->o_shares, row);
    const elements to = elements_of(&problem->row, row);
    const real lse = weigh(problem, row);
    int64_t i = 0;
    for (; i + PAIR <= problem->e; i += PAIR)
        merge_elements(job, row, from, to, i, PAIR);
    if (i < problem->e)
        merge_elements(job, row, from, to, i, problem->e - i);
    if (problem->lse.data != NULL)
        write_wide(&problem->lse, place_of(&problem->lse, 0, row), lse);
}

/* One share of a row's gradient. */
typedef struct spread {
    elements g, x, to; /* x.data is NULL where grad_o . o_s is not asked for */
    real weight;
    bool stream;
    vreal sum, lost; /* of grad_o . o_s, in the lanes */
} spread;

/* Elements i .. i + n - 1 of a share's gradient, and what they add to grad_o . o_s. */
static ALWAYS_INLINE void spread_elements(spread *d, int64_t i, int64_t n)
{
    const vpair g = load_elements(d->g, i, n);
    const vreal weight = vset(d->weight);
    store_elements(d->to, i, n, (vpair){weight * g.low, weight * g.high}, d->stream);
    if (d->x.data == NULL)
        return;
    const vpair x = load_elements(d->x, i, n);
    vsum_add(&d->sum, &d->lost, vfma(g.high, x.high, g.low * x.low));
}

/* The gradient of a share's o; returns grad_o . o_s. */
static real spread_share(const merge_job *job, spread d)
{
    int64_t i = 0;
    for (; i + PAIR <= job->problem->e; i += PAIR)
        spread_elements(&d, i, PAIR);
    if (i < job->problem->e)
        spread_elements(&d, i, job->problem->e - i);
    return sum_lanes(d.sum);
}

static void clear_share(const merge_job *job, elements to)
{
    for (int64_t i = 0; i < job->problem->e; i++)
        store_scalar(to.data + i * to.stride, 0);
}

/* The gradients of the shares' lse. As w_s (grad_o . o_s - the mean of all) is small where shares agree, the mean is in double
 * precision. */
static void finish_lse(const copes_merge_problem *problem, const merge_row *row)
{
    const copes_view *to = &problem->grad_lse_shares;
    const double slope = problem->base == COPES_LOG_BASE_2 ? 0x1.62e42fefa39efp-1 : 1;
    const real grad_lse = problem->lse.data == NULL ? 0 : read_wide(&problem->lse, place_of(&problem->lse, 0, row));
    double mean = 0;
    for (int64_t s = 0; s < problem->shares; s++)
        if (row->weights[s] != EMPTY)
            mean += (double)row->weights[s] * (double)row->dots[s];
    for (int64_t s = 0; s < problem->shares; s++) {
        const double grad = slope * ((double)row->dots[s] - mean) + (double)grad_lse;
        const real value = row->weights[s] == EMPTY ? 0 : (real)((double)row->weights[s] * grad);
        write_wide(to, s * to->stride[0] + place_of(to, 1, row), value);
    }
}

static NOINLINE void merge_row_backward(const merge_job *job, const merge_row *row)
{
    const copes_merge_problem *problem = job->problem;
    const share_rows from = shares_of(&problem->o_shares, row), to = shares_of(&problem->grad_o_shares, row);
    const bool learns = from.first.data != NULL;
    weigh(problem, row);
    for (int64_t s = 0; s < problem->shares; s++) {
        row->dots[s] = 0;
        if (row->weights[s] == EMPTY)
            clear_share(job, share_at(to, s));
        else
            row->dots[s] = spread_share(job, (spread){.g = elements_of(&problem->row, row),
                                                      .x = learns ? share_at(from, s) : (elements){NULL, 0},
                                                      .to = share_at(to, s),
                                                      .weight = row->weights[s],
                                                      .stream = job->stream});
    }
    if (problem->grad_lse_shares.data != NULL)
        finish_lse(problem, row);
}

static int64_t whole_vectors(const copes_merge_problem *problem)
{
    const int64_t padded = copes_add(problem->shares, LANES - 1);
    return padded < 0 ? -1 : padded / LANES * LANES;
}

static int64_t memory_bytes(const copes_merge_problem *problem)
{
    return copes_multiply(whole_vectors(problem), 2 * (int64_t)sizeof(real));
}

int64_t TEMPLATE(merge_workspace)(const copes_merge_problem *problem, int threads)
{
    return thread_workspace(memory_bytes(problem), threads);
}

static void run_rows(const copes_worker *worker, const void *argument)
{
    const merge_job *job = argument;
    const copes_merge_problem *problem = job->problem;
    const copes_share share = copes_share_of(worker, problem->b * problem->n * problem->h);
    merge_row row = {.weights = thread_memory(job->run, worker, memory_bytes(problem))};
    row.dots = row.weights + whole_vectors(problem);
    for (int64_t index = share.begin; index < share.end; index++) {
        row.h = index % problem->h;
        row.n = index / problem->h % problem->n;
        row.b = index / problem->h / problem->n;
        if (problem->backward)
            merge_row_backward(job, &row);
        else
            merge_row_forward(job, &row);
    }
    finish_streaming();
}

void TEMPLATE(merge)(const copes_merge_problem *problem, const copes_cpu_run *run)
{
    const double rows = (double)problem->b * (double)problem->n * (double)problem->h;
    const double bytes = rows * (double)(problem->shares + 1) * (double)problem->e * (double)sizeof(storage);
    const merge_job job = {problem, run, bytes > (double)run->cache && are_lines(problem->e)};
    copes_team_run(run, run_rows, &job);
}
