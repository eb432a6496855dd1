/* Softmax over columns: its neighbours in memory belong to other softmaxes. A task is a slab of neighbouring columns, which is read
 * twice and found in the cache the second time. Where slabs are too few for the threads, they share the parts of a slab's rows. */
#include "backends/openmp/act_place.h"
#include "backends/openmp/columns_apply.h"

enum { COLUMNS = 512 / (int)sizeof(real) }; /* of a slab */

/* What a thread works in. `line` is a compact copy of strided elements, `shared` what threads leave to each other of columns. */
typedef struct slab_memory {
    real x[COLUMN_BLOCK * COLUMNS], g[COLUMN_BLOCK * COLUMNS], total[5 * COLUMNS], part[5 * COLUMNS];
    real shared[SHARED_SLABS][MOST_COLUMN_PARTS][5 * COLUMNS];
    storage line[COLUMNS];
} slab_memory;

_Static_assert(sizeof(slab_memory) <= SCRATCH_BYTES, "a thread's scratch memory takes it");

/* A task: up to COLUMNS neighbours along the innermost dimension, and all of the axis. */
typedef struct slab {
    const copes_act_problem *problem;
    act_place at;
    int64_t width, stride; /* columns, and the same in whole pairs */
    columns total, part;   /* of all rows, and of a part of them */
    slab_memory *memory;
    bool direct, stream; /* direct: rows are whole pairs as they lie in memory */
} slab;

/* Slabs side by side along the innermost dimension. */
static int64_t slabs_across(const copes_act_problem *problem)
{
    return (problem->shape[problem->rank - 1] + COLUMNS - 1) / COLUMNS;
}

static int64_t slabs_of(const copes_act_problem *problem)
{
    const int last = problem->rank - 1;
    return product(problem->shape, problem->axis) *
           product(problem->shape + problem->axis + 1, last - problem->axis - 1) * slabs_across(problem);
}

/* Columns of no rows yet. A gradient sums products alone, as beside a maximum that is given. */
static columns open_columns(const slab *s, real *memory)
{
    const copes_act_problem *problem = s->problem;
    columns c = columns_open(s->stride, problem->passes == COPES_FIRST_PASS ? FOR_LSE : FOR_STORAGE, memory);
    c.given = problem->backward;
    return c;
}

/* What the caller gave of the columns, or gets. */
static void take_sums(slab *s)
{
    for (int64_t i = 0; i < s->width; i++) {
        const real sum = take_real(s->at.sums + i * s->problem->sums.stride[s->problem->rank - 1]);
        if (s->problem->backward)
            s->total.dot[split_place(i)] = sum;
        else
            columns_fix(&s->total, split_place(i), sum);
    }
}

static void give_sums(const slab *s)
{
    const columns *c = &s->total;
    for (int64_t i = 0; i < s->width; i++)
        give_real(s->at.sums + i * s->problem->sums.stride[s->problem->rank - 1],
                  s->problem->backward ? c->dot[split_place(i)] : columns_lse(c, split_place(i)));
}

static void slab_open(slab *s, const act_job *job, int64_t index, slab_memory *memory)
{
    const copes_act_problem *problem = job->problem;
    const int last = problem->rank - 1;
    const unsigned others = ((1u << last) - 1) & ~(1u << problem->axis);
    const int64_t across = slabs_across(problem), begin = index % across * COLUMNS;
    *s = (slab){.problem = problem, .at = find_place(problem, index / across, others), .memory = memory};
    s->width = begin + COLUMNS < problem->shape[last] ? COLUMNS : problem->shape[last] - begin;
    s->stride = whole_pairs(s->width);
    s->direct = is_compact(problem, last) && s->width % PAIR == 0;
    s->stream = job->stream;
    s->at.src += begin * problem->src.stride[last];
    s->at.saved = s->at.saved == NULL ? NULL : s->at.saved + begin * problem->saved.stride[last];
    s->at.dst = s->at.dst == NULL ? NULL : s->at.dst + begin * problem->dst.stride[last];
    s->at.sums = s->at.sums == NULL ? NULL : s->at.sums + begin * problem->sums.stride[last];
    s->total = open_columns(s, memory->total);
    if (problem->passes == COPES_SECOND_PASS)
        take_sums(s);
}

static column_rows read_block(const slab *s, const storage *base, const copes_view *view, int64_t first, int64_t count,
                              real fill, real *x)
{
    const copes_act_problem *problem = s->problem;
    const int64_t step = view->stride[problem->axis];
    if (s->direct)
        return (column_rows){base + first * step, step, COLUMN_BLOCK * step};
    for (int64_t i = 0; i < count; i++)
        read_part(base + (first + i) * step, view->stride[problem->rank - 1], 0, s->width, x + i * s->stride, fill,
                  COLUMN_BLOCK * step, s->memory->line);
    return (column_rows){x, s->stride, 0};
}

/* Rows of a block: the softmax's argument, or the gradient and, as y, the softmax. */
typedef struct slab_block {
    int64_t first, count;
    column_rows x, y;
} slab_block;

static slab_block take_block(const slab *s, int64_t first, int64_t end)
{
    const copes_act_problem *problem = s->problem;
    slab_memory *memory = s->memory;
    const bool backward = problem->backward;
    slab_block block = {first, first + COLUMN_BLOCK < end ? COLUMN_BLOCK : end - first, {0}, {0}};
    block.x = read_block(s, s->at.src, &problem->src, first, block.count, backward ? 0 : -(real)INFINITY,
                         backward ? memory->g : memory->x);
    if (backward)
        block.y = read_block(s, s->at.saved, &problem->saved, first, block.count, 0, memory->x);
    return block;
}

/* The first pass over rows begin .. end - 1. */
static void read_rows(const slab *s, const columns *c, copes_share rows)
{
    for (int64_t first = rows.begin; first < rows.end; first += COLUMN_BLOCK) {
        const slab_block block = take_block(s, first, rows.end);
        if (s->problem->backward)
            columns_add_product(c, !s->direct, block.y, block.x, block.count);
        else
            columns_add(c, !s->direct, block.x, block.count);
    }
}

/* What the first pass ends with. */
static void finish_columns(const slab *s)
{
    if (s->problem->passes == COPES_FIRST_PASS)
        give_sums(s);
    else if (!s->problem->backward)
        columns_finish(&s->total);
}

/* The second pass: row i of a block. */
static void write_row(const slab *s, const slab_block *block, int64_t i)
{
    const copes_act_problem *problem = s->problem;
    const copes_view *view = &problem->dst;
    const column_rows x = block->x, y = block->y;
    const int64_t step = view->stride[problem->axis];
    storage *out = s->at.dst + (block->first + i) * step;
    if (s->direct && problem->backward) {
        columns_gradient_storage(&s->total, (const storage *)y.data + i * y.stride,
                                 (const storage *)x.data + i * x.stride, x.ahead, out, COLUMN_BLOCK * step, s->stream);
    } else if (s->direct) {
        columns_apply_storage(&s->total, (const storage *)x.data + i * x.stride, x.ahead, out, COLUMN_BLOCK * step,
                              s->stream);
    } else {
        real *row = (problem->backward ? s->memory->g : s->memory->x) + i * s->stride;
        if (problem->backward)
            columns_gradient(&s->total, s->memory->x + i * s->stride, row);
        else
            columns_apply(&s->total, true, row, row, 0);
        write_part(out, view->stride[problem->rank - 1], 0, s->width, row, s->stream, s->memory->line);
    }
}

static void write_rows(const slab *s, copes_share rows)
{
    for (int64_t first = rows.begin; first < rows.end; first += COLUMN_BLOCK) {
        const slab_block block = take_block(s, first, rows.end);
        for (int64_t i = 0; i < block.count; i++)
            write_row(s, &block, i);
    }
}

/* The first pass over a slab, part by part. */
static void read_slab(slab *s, const column_parts *parts)
{
    for (int64_t i = 0; i < parts->count; i++) {
        if (i > 0)
            s->part = open_columns(s, s->memory->part);
        read_rows(s, i == 0 ? &s->total : &s->part, column_part(parts, i));
        if (i > 0)
            columns_merge(&s->total, &s->part);
    }
    finish_columns(s);
}

static void run_slabs(const copes_worker *worker, const void *argument)
{
    const act_job *job = argument;
    const copes_act_problem *problem = job->problem;
    const column_parts parts = column_parts_of(problem->shape[problem->axis]);
    const int64_t slabs = slabs_of(problem);
    for (int64_t index = copes_next_task(worker, slabs); index < slabs; index = copes_next_task(worker, slabs)) {
        slab s;
        slab_open(&s, job, index, worker->scratch);
        if (problem->passes != COPES_SECOND_PASS)
            read_slab(&s, &parts);
        if (problem->passes != COPES_FIRST_PASS)
            write_rows(&s, (copes_share){0, parts.rows});
    }
    finish_streaming();
}

/* The columns of a part of a slab, in the memory of a thread. */
static real *shared_columns(const act_job *job, int64_t index, int64_t part)
{
    const int64_t threads = job->run->threads;
    slab_memory *memory = (slab_memory *)(void *)(job->run->scratch + index % threads * SCRATCH_BYTES);
    return memory->shared[index / threads][part];
}

static void read_parts(const copes_worker *worker, const void *argument)
{
    const act_job *job = argument;
    const column_parts parts = column_parts_of(job->problem->shape[job->problem->axis]);
    const int64_t tasks = slabs_of(job->problem) * parts.count;
    for (int64_t task = copes_next_task(worker, tasks); task < tasks; task = copes_next_task(worker, tasks)) {
        slab s;
        slab_open(&s, job, task / parts.count, worker->scratch);
        s.part = open_columns(&s, shared_columns(job, task / parts.count, task % parts.count));
        read_rows(&s, &s.part, column_part(&parts, task % parts.count));
    }
}

/* Each thread merges all parts for itself: that is little beside a part's rows. One gives the sums, where they are asked for. */
static void write_parts(const copes_worker *worker, const void *argument)
{
    const act_job *job = argument;
    const copes_passes passes = job->problem->passes;
    const column_parts parts = column_parts_of(job->problem->shape[job->problem->axis]);
    const int64_t each = passes == COPES_FIRST_PASS ? 1 : parts.count, tasks = slabs_of(job->problem) * each;
    for (int64_t task = copes_next_task(worker, tasks); task < tasks; task = copes_next_task(worker, tasks)) {
        slab s;
        slab_open(&s, job, task / each, worker->scratch);
        if (passes != COPES_SECOND_PASS) {
            columns_merge_parts(&s.total, (const char *)shared_columns(job, task / each, 0), parts.count,
                                sizeof s.memory->shared[0][0]);
            finish_columns(&s);
        }
        if (passes != COPES_FIRST_PASS)
            write_rows(&s, column_part(&parts, task % each));
    }
    finish_streaming();
}

void TEMPLATE(act_columns)(const act_job *job)
{
    const copes_act_problem *problem = job->problem;
    const bool divides = column_parts_of(problem->shape[problem->axis]).count > 1;
    if (!divides || slabs_of(problem) >= SHARED_SLABS * job->run->threads) {
        copes_team_run(job->run, run_slabs, job);
        return;
    }
    if (problem->passes != COPES_SECOND_PASS)
        copes_team_run(job->run, read_parts, job);
    copes_team_run(job->run, write_parts, job);
}
