/* lrpe behind a softmax over the sequence. A column of N tokens must be read before any of it is written: the first pass keeps each
 * column's maximum, sum and, backward, its product with the gradient, all online; the second writes. A share of the tokens has one of
 * the passes: the caller gets what the first found, or gives what those of all shares did. A thread has a slab for itself, or, where
 * heads of batch entries are too few for the threads, they share the parts of its tokens. Arithmetic binds: two exponentials an
 * element, and a rotation for each pass that turns. */
#include "backends/openmp/sequence_slab.h"
#include "backends/openmp/streaming.h"

/* A call, as its threads see it. Tasks are slabs, or, where threads share, parts of slabs of one head of one entry. */
typedef struct sequence_job {
    const copes_lrpe_problem *problem;
    const copes_cpu_run *run;
    int64_t heads, entries;      /* of a slab */
    int64_t head_groups, groups; /* slabs side by side, and in all: groups of heads of groups of entries */
    column_parts parts;
    bool first; /* pass, where threads share */
    theta_sums sums;
} sequence_job;

int64_t TEMPLATE(lrpe_sequence_memory)(const copes_lrpe_problem *problem)
{
    const row_layout layout = layout_of(problem);
    const column_parts parts = column_parts_of(problem->n);
    const int64_t whole = slab_bytes(problem, slab_rows(problem)), one = slab_bytes(problem, 1);
    const int64_t shared =
        copes_add(one, copes_multiply(layout_stride(&layout), SHARED_SLABS * parts.count * columns_bytes(1)));
    return whole < 0 || shared < 0 ? -1 : whole > shared ? whole : shared;
}

static int64_t groups_of(int64_t count, int64_t each)
{
    return (count + each - 1) / each;
}

/* As many of `count` as `most` allows; one of none. */
static int64_t one_to(int64_t most, int64_t count)
{
    return count < 1 ? 1 : count < most ? count : most;
}

/* Slabs of as many heads, and then entries, as leave work for every thread. */
static void choose_slabs(sequence_job *job)
{
    const copes_lrpe_problem *problem = job->problem;
    const int64_t rows = slab_rows(problem);
    job->heads = one_to(rows, problem->h);
    job->entries = entries_have_positions(problem) ? 1 : one_to(rows / job->heads, problem->b);
    for (;;) {
        job->head_groups = groups_of(problem->h, job->heads);
        job->groups = job->head_groups * groups_of(problem->b, job->entries);
        if (job->groups >= SHARED_SLABS * job->run->threads || job->heads * job->entries == 1)
            return;
        if (job->entries > 1)
            job->entries--;
        else
            job->heads--;
    }
}

/* Theta's gradient is summed over tokens in their order. */
static bool threads_share(const sequence_job *job)
{
    return job->problem->grad_theta.data == NULL && job->parts.count > 1 &&
           job->groups < SHARED_SLABS * job->run->threads;
}

static slab slab_of(const sequence_job *job, int64_t group)
{
    const copes_lrpe_problem *problem = job->problem;
    slab s = {.problem = problem, .sums = job->sums};
    s.first = group / job->head_groups * job->entries;
    s.head = group % job->head_groups * job->heads;
    s.entries = s.first + job->entries < problem->b ? job->entries : problem->b - s.first;
    s.heads = s.head + job->heads < problem->h ? job->heads : problem->h - s.head;
    s.stream = lrpe_streams(problem, job->run);
    return s;
}

/* The first pass over a slab, part by part. */
static void read_slab(slab *s, const column_parts *parts)
{
    for (int64_t i = 0; i < parts->count; i++) {
        const copes_share tokens = column_part(parts, i);
        read_tokens(s, i == 0 ? s->total : s->part, tokens.begin, tokens.end);
        for (int64_t row = 0; row < s->entries * s->heads && i > 0; row++) {
            columns_merge(&s->total[row], &s->part[row]);
            s->part[row] = open_columns(s, row, (char *)s->part[row].most);
        }
    }
    finish_columns(s, true);
}

static void run_slabs(const copes_worker *worker, const void *argument)
{
    const sequence_job *job = argument;
    const copes_lrpe_problem *problem = job->problem;
    char *memory = thread_memory(job->run, worker, TEMPLATE(lrpe_sequence_memory)(problem));
    for (int64_t task = copes_next_task(worker, job->groups); task < job->groups;
         task = copes_next_task(worker, job->groups)) {
        slab s = slab_of(job, task);
        slab_open(&s, memory);
        for (int64_t row = 0; row < s.entries * s.heads && s.sums.at != NULL; row++)
            theta_sums_clear(&s.sums, s.first + row / s.heads, s.head + row % s.heads);
        if (problem->passes != COPES_SECOND_PASS)
            read_slab(&s, &job->parts);
        if (problem->passes != COPES_FIRST_PASS)
            write_tokens(&s, 0, problem->n);
    }
    finish_streaming();
}

/* The columns of a part of a slab of one row, behind a thread's own memory. */
static char *shared_columns(const sequence_job *job, const slab *s, int64_t group, int64_t part)
{
    const int64_t threads = job->run->threads, slot = group / threads * job->parts.count + part;
    char *const memory = memory_of_thread(job->run, group % threads, TEMPLATE(lrpe_sequence_memory)(job->problem));
    return memory + slab_bytes(job->problem, 1) + slot * columns_bytes(s->stride);
}

/* The first pass of one part, for whoever merges them. */
static void read_part(const sequence_job *job, slab *s, int64_t group, int64_t part)
{
    const copes_share tokens = column_part(&job->parts, part);
    s->part[0] = open_columns(s, 0, shared_columns(job, s, group, part));
    read_tokens(s, s->part, tokens.begin, tokens.end);
}

/* One pass of a slab's part. Each thread merges all parts for itself: that is little beside a part's tokens. */
static void run_part(const sequence_job *job, slab *s, int64_t group, int64_t part)
{
    const copes_share tokens = column_part(&job->parts, part);
    if (job->first) {
        read_part(job, s, group, part);
        return;
    }
    if (job->problem->passes != COPES_SECOND_PASS) {
        columns_merge_parts(&s->total[0], shared_columns(job, s, group, 0), job->parts.count, columns_bytes(s->stride));
        finish_columns(s, part == 0);
    }
    if (job->problem->passes != COPES_FIRST_PASS)
        write_tokens(s, tokens.begin, tokens.end);
}

static void run_parts(const copes_worker *worker, const void *argument)
{
    const sequence_job *job = argument;
    char *memory = thread_memory(job->run, worker, TEMPLATE(lrpe_sequence_memory)(job->problem));
    const int64_t tasks = job->groups * job->parts.count;
    for (int64_t task = copes_next_task(worker, tasks); task < tasks; task = copes_next_task(worker, tasks)) {
        slab s = slab_of(job, task / job->parts.count);
        slab_open(&s, memory);
        run_part(job, &s, task / job->parts.count, task % job->parts.count);
    }
    finish_streaming();
}

void TEMPLATE(lrpe_sequence)(const copes_lrpe_problem *problem, const copes_cpu_run *run)
{
    const bool learns = problem->grad_theta.data != NULL;
    sequence_job job = {.problem = problem,
                        .run = run,
                        .parts = column_parts_of(problem->n),
                        .sums = theta_sums_of(problem, problem->b)};
    if (learns && run->workspace != NULL) /* else there is no angle */
        job.sums.at = (double *)((char *)run->workspace +
                                 thread_workspace(TEMPLATE(lrpe_sequence_memory)(problem), run->threads));
    choose_slabs(&job);
    if (threads_share(&job)) {
        for (int pass = problem->passes == COPES_SECOND_PASS; pass < 2; pass++) {
            job.first = pass == 0;
            copes_team_run(run, run_parts, &job);
        }
    } else {
        copes_team_run(run, run_slabs, &job);
    }
    if (learns)
        theta_sums_finish(&job.sums, problem);
}
