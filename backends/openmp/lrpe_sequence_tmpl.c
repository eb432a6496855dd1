/* lrpe behind a softmax over the sequence. A column of N tokens must be read before any of it is written, so a task is
 * a head of a few batch entries: the first pass keeps each column's maximum, sum and, backward, its product with the
 * gradient, all online; the second writes. A share of the tokens has one of the passes: the caller gets what the first found, or
 * gives what those of all shares did. Arithmetic binds, not memory: two exponentials an element and, for each pass that turns, a
 * sine and a cosine that the batch entries of a task share. */
#include "backends/openmp/columns.h"
#include "backends/openmp/encode.h"
#include "backends/openmp/template.h"
#include "backends/openmp/theta_gradient.h"

enum { TOKENS = 16, MOST_ENTRIES = 8 }; /* tokens of a block, batch entries that share a task's angles */
enum { TOKENS_AHEAD = 8 };              /* how far a walk over rows looks ahead */

/* A task's memory. x and g hold a block of TOKENS rows of each entry; rows are `stride` reals. */
typedef struct slab {
    const copes_lrpe_problem *problem;
    encoding encoding;
    angles angles;
    row_layout layout;
    int64_t head, first, entries, stride;
    columns columns[MOST_ENTRIES];
    real *x, *g;
    storage *line, *out; /* compact copies of strided rows */
    bool direct;         /* rows of x are whole pairs as they lie in memory */
    theta_sums sums;     /* a chunk for each batch entry */
} slab;

int64_t TEMPLATE(lrpe_sequence_memory)(const copes_lrpe_problem *problem)
{
    const row_layout layout = layout_of(problem);
    const int64_t feature =
        MOST_ENTRIES * (columns_bytes(1) + TOKENS * (int64_t)(2 * sizeof(real))) + 4 * (int64_t)sizeof(storage);
    return copes_add(angles_bytes(problem, 1, 1, by_products(problem)),
                     copes_multiply(layout_stride(&layout), feature));
}

static void slab_open(slab *s, char *memory)
{
    const copes_lrpe_problem *problem = s->problem;
    s->layout = layout_of(problem);
    s->stride = layout_stride(&s->layout);
    TEMPLATE(angles_open)(&s->angles, problem, s->head, 1, 1, by_products(problem), memory);
    memory += angles_bytes(problem, 1, 1, by_products(problem));
    const term_use use = problem->backward ? FOR_GRADIENT : problem->lse.data != NULL ? FOR_LSE : FOR_STORAGE;
    for (int64_t i = 0; i < s->entries; i++) {
        s->columns[i] = columns_open(s->stride, use, memory);
        memory += columns_bytes(s->stride);
    }
    s->x = (real *)memory;
    s->g = s->x + MOST_ENTRIES * TOKENS * s->stride;
    s->line = (storage *)(s->g + MOST_ENTRIES * TOKENS * s->stride);
    s->out = s->line + 2 * s->stride;
}

static storage *row_at(const slab *s, const copes_view *view, int64_t entry, int64_t token)
{
    return (storage *)view->data + (s->first + entry) * view->stride[0] + token * view->stride[1] +
           s->head * view->stride[2];
}

/* A row as compact elements: itself, or a copy. */
static const storage *take_row(const slab *s, const copes_view *view, int64_t entry, int64_t token, int64_t width)
{
    const storage *row = row_at(s, view, entry, token);
    if (view->stride[3] == 1)
        return row;
    gather(row, view->stride[3], s->line, width);
    return s->line;
}

/* What the softmax is of. */
static const copes_view *view_of_x(const copes_lrpe_problem *problem)
{
    return problem->backward ? &problem->x : &problem->src;
}

static void read_x(const slab *s, const copes_view *view, int64_t entry, int64_t token, real *x)
{
    read_row(&s->layout, COPES_ACT_NONE, take_row(s, view, entry, token, s->problem->d), x, -(real)INFINITY,
             TOKENS_AHEAD * view->stride[1]);
}

static void read_g(const slab *s, int64_t entry, int64_t token, real *g)
{
    const int64_t width = s->problem->variant == COPES_LRPE_COSINE ? 2 * s->problem->d : s->problem->d;
    const storage *row = take_row(s, &s->problem->src, entry, token, width);
    TEMPLATE(decode_reals)(&s->encoding,
                           (row_block){(storage *)(uintptr_t)row, 0, TOKENS_AHEAD * s->problem->src.stride[1]},
                           (row_block){g, s->stride, 0});
}

/* The number of a column in lse or delta. */
static real *column_at(const slab *s, const copes_view *view, int64_t entry, int64_t feature)
{
    return (real *)view->data + (s->first + entry) * view->stride[0] + s->head * view->stride[1] +
           feature * view->stride[2];
}

/* What the caller gave of the columns. */
static void take_given(slab *s, int64_t entry)
{
    const copes_lrpe_problem *problem = s->problem;
    columns *c = &s->columns[entry];
    const bool has_lse = problem->lse.data != NULL && (problem->backward || problem->passes == COPES_SECOND_PASS);
    const bool has_delta = problem->delta.data != NULL && problem->passes == COPES_SECOND_PASS;
    for (int64_t i = 0; i < problem->d && has_lse; i++)
        columns_fix(c, layout_place(&s->layout, i), take_real(column_at(s, &problem->lse, entry, i)));
    for (int64_t i = 0; i < problem->d && has_delta; i++)
        c->dot[layout_place(&s->layout, i)] = take_real(column_at(s, &problem->delta, entry, i));
}

static void give_lse(const slab *s, int64_t entry)
{
    const copes_lrpe_problem *problem = s->problem;
    if (problem->backward || problem->lse.data == NULL)
        return;
    for (int64_t i = 0; i < problem->d; i++)
        give_real(column_at(s, &problem->lse, entry, i), columns_lse(&s->columns[entry], layout_place(&s->layout, i)));
}

/* Of the first pass alone. */
static void give_delta(const slab *s, int64_t entry)
{
    const copes_lrpe_problem *problem = s->problem;
    if (problem->passes != COPES_FIRST_PASS || problem->delta.data == NULL)
        return;
    for (int64_t i = 0; i < problem->d; i++)
        give_real(column_at(s, &problem->delta, entry, i), s->columns[entry].dot[layout_place(&s->layout, i)]);
}

/* The first pass: statistics of every column. */
static void read_columns(slab *s)
{
    const copes_lrpe_problem *problem = s->problem;
    const copes_view *view = view_of_x(problem);
    for (int64_t token = 0; token < problem->n; token += TOKENS) {
        const int64_t count = token + TOKENS < problem->n ? TOKENS : problem->n - token;
        for (int64_t i = 0; i < count; i++) {
            if (problem->backward)
                TEMPLATE(angles_make)(&s->angles, problem, s->first, token + i, 0, 1, 0);
            for (int64_t entry = 0; entry < s->entries; entry++) {
                const int64_t at = (entry * TOKENS + i) * s->stride;
                if (!s->direct)
                    read_x(s, view, entry, token + i, s->x + at);
                if (problem->backward)
                    read_g(s, entry, token + i, s->g + at);
            }
        }
        for (int64_t entry = 0; entry < s->entries; entry++) {
            const int64_t at = entry * TOKENS * s->stride;
            const column_rows g = {s->g + at, s->stride, 0};
            const column_rows x =
                s->direct ? (column_rows){row_at(s, view, entry, token), view->stride[1], TOKENS * view->stride[1]}
                          : (column_rows){s->x + at, s->stride, 0};
            columns_add(&s->columns[entry], !s->direct, x, problem->backward ? &g : NULL, count);
        }
    }
    for (int64_t entry = 0; entry < s->entries; entry++) {
        give_lse(s, entry);
        columns_finish(&s->columns[entry]);
        give_delta(s, entry);
    }
}

/* Adds a row, whose softmax and gradient are there as reals, to the gradient of theta. */
static void learn_row(const slab *s, int64_t entry, int64_t token)
{
    const storage *grad_o = take_row(s, &s->problem->src, entry, token,
                                     s->problem->variant == COPES_LRPE_COSINE ? 2 * s->problem->d : s->problem->d);
    const learned_row row = {s->x, s->g, grad_o, s->angles.cosine, s->angles.sine};
    theta_sums_add(&s->sums, s->problem, &s->layout, &row, s->first + entry, s->first + entry, token, s->head);
}

/* The second pass: a row's softmax and its encoding, or the gradient. */
static void write_row(const slab *s, int64_t entry, int64_t token)
{
    const copes_lrpe_problem *problem = s->problem;
    const int64_t wide = problem->variant == COPES_LRPE_COSINE ? 2 * problem->d : problem->d;
    const bool compact = problem->dst.stride[3] == 1;
    const copes_view *view = view_of_x(problem);
    storage *row = row_at(s, &problem->dst, entry, token), *out = compact ? row : s->out;
    if (!s->direct)
        read_x(s, view, entry, token, s->x);
    columns_apply(&s->columns[entry], !s->direct, s->direct ? (const void *)row_at(s, view, entry, token) : s->x, s->x,
                  TOKENS_AHEAD * view->stride[1]);
    if (!problem->backward) {
        TEMPLATE(encode_reals)(&s->encoding, (row_block){s->x, s->stride, 0}, (row_block){out, 0, 0});
    } else {
        read_g(s, entry, token, s->g);
        if (s->sums.at != NULL)
            learn_row(s, entry, token);
        columns_gradient(&s->columns[entry], s->x, s->g);
        write_gradient(&s->layout, COPES_ACT_NONE, s->g, NULL, out, s->encoding.stream, 0);
    }
    if (!compact)
        scatter(out, row, problem->dst.stride[3], problem->backward ? problem->d : wide);
}

static void write_rows(const slab *s)
{
    for (int64_t token = 0; token < s->problem->n; token++) {
        TEMPLATE(angles_make)(&s->angles, s->problem, s->first, token, 0, 1, 0);
        for (int64_t entry = 0; entry < s->entries; entry++)
            write_row(s, entry, token);
    }
}

/* Batch entries of a task: as many as leave work for every thread, since they share angles. */
static int64_t choose_entries(const copes_lrpe_problem *problem, const copes_cpu_run *run)
{
    if (entries_have_positions(problem))
        return 1;
    const int64_t leaves = problem->b * problem->h / (2 * run->threads);
    const int64_t entries = leaves < MOST_ENTRIES ? leaves : MOST_ENTRIES;
    return entries > 1 ? entries : 1;
}

/* A call, as its threads see it. */
typedef struct sequence_job {
    const copes_lrpe_problem *problem;
    const copes_cpu_run *run;
    int64_t entries, groups;
    theta_sums sums;
} sequence_job;

static void run_slabs(const copes_worker *worker, const void *argument)
{
    const sequence_job *job = argument;
    const copes_lrpe_problem *problem = job->problem;
    void *memory = thread_memory(job->run, worker, TEMPLATE(lrpe_sequence_memory)(problem));
    slab s = {.problem = problem, .sums = job->sums};
    s.encoding = (encoding){problem->variant,
                            problem->pairing,
                            1,
                            problem->d,
                            &s.angles,
                            &s.layout,
                            copes_lrpe_bytes(problem) > (double)job->run->cache,
                            NULL};
    const int64_t tasks = job->groups * problem->h;
    for (int64_t task = copes_next_task(worker); task < tasks; task = copes_next_task(worker)) {
        s.first = task / problem->h * job->entries;
        s.head = task % problem->h;
        s.entries = s.first + job->entries < problem->b ? job->entries : problem->b - s.first;
        slab_open(&s, memory);
        s.direct = layout_plain(&s.layout) && view_of_x(problem)->stride[3] == 1;
        for (int64_t entry = 0; entry < s.entries && s.sums.at != NULL; entry++)
            theta_sums_clear(&s.sums, s.first + entry, s.head);
        for (int64_t entry = 0; entry < s.entries; entry++)
            take_given(&s, entry);
        if (problem->passes != COPES_SECOND_PASS)
            read_columns(&s);
        if (problem->passes != COPES_FIRST_PASS)
            write_rows(&s);
    }
    finish_streaming();
}

void TEMPLATE(lrpe_sequence)(const copes_lrpe_problem *problem, const copes_cpu_run *run)
{
    const int64_t entries = choose_entries(problem, run), memory = TEMPLATE(lrpe_sequence_memory)(problem);
    const bool learns = problem->grad_theta.data != NULL;
    sequence_job job = {problem, run, entries, (problem->b + entries - 1) / entries,
                        theta_sums_of(problem, problem->b)};
    if (learns && run->workspace != NULL) /* else there is no angle */
        job.sums.at = (double *)((char *)run->workspace + thread_workspace(memory, run->threads));
    copes_team_run(run, run_slabs, &job);
    if (learns)
        theta_sums_finish(&job.sums, problem);
}
