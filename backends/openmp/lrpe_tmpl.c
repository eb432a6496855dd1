/* lrpe where a token can be finished by itself: no activation, an elementwise one, or softmax over the features.
 * Bound by memory. A task is a block of rows, the heads of a token or the tokens of a head: their angles are computed
 * once and stay in L1. Where each head has a theta of its own they serve all batch entries with the same positions.
 * Rows pass straight from memory through registers to memory, with an elementwise activation on the way; only beside
 * a softmax, or for theta's gradient, they rest as reals in L1. */
#include "backends/openmp/blocks.h"
#include "backends/openmp/short_rows.h"
#include "backends/openmp/streaming.h"
#include "backends/openmp/template.h"
#include "backends/openmp/theta_gradient.h"

#include <stdlib.h>

/* How the rows of a block lie: along the heads of a token, or along the tokens of a head where those are closer in
 * memory. Rows far apart, by a power of two often, meet in the caches' sets, and each brings its own page. */
typedef struct block_shape {
    int axis;             /* 1: tokens, 2: heads */
    int64_t heads;        /* that a thread goes through with a token's angles: all of them where they share a theta */
    int64_t turns;        /* of these, heads with a theta of their own */
    int64_t rows, tokens; /* of a block */
    int64_t ahead;        /* blocks from one to that which is asked for meanwhile */
} block_shape;

/* Rows along heads: all of a token's, unless what they are made of crowds out of L1 what is asked for ahead, and no more than two batch
 * entries share them. Making fewer at a time also spreads the walks, which read memory. */
static int64_t rows_of_heads(const copes_lrpe_problem *problem, int64_t heads)
{
    enum { ENTRIES = 2, MOST_ANGLES = 1024, ANGLES = 512 };
    const int64_t row = whole_pairs(problem->k), rows = ANGLES / (row > 0 ? row : 1);
    if (!by_anchors(problem) || problem->b > ENTRIES || heads * row <= MOST_ANGLES)
        return heads;
    return rows < 1 ? 1 : rows;
}

static block_shape shape_of(const copes_lrpe_problem *problem)
{
    const int64_t *src = problem->src.stride, *dst = problem->dst.stride;
    const bool closer = llabs(src[1]) + llabs(dst[1]) < llabs(src[2]) + llabs(dst[2]);
    const bool along_tokens = problem->h == 1 || (problem->n > 1 && closer);
    const bool shared = problem->theta.stride[0] == 0;
    const int64_t heads = most_rows(problem, problem->h);
    block_shape shape = {.axis = along_tokens ? 1 : 2,
                         .heads = shared ? problem->h : heads,
                         .turns = shared ? 1 : heads};
    shape.rows = along_tokens ? most_rows(problem, problem->n) : shared ? heads : rows_of_heads(problem, heads);
    shape.tokens = along_tokens ? shape.rows : 1;
    shape.ahead = along_tokens ? 1 : (heads + shape.rows - 1) / shape.rows;
    return shape;
}

typedef struct block_memory {
    angles angles;
    row_layout layout;
    int axis;
    real *y, *g;            /* the activation's value and its gradient, in rows of `stride` */
    storage *src, *x, *dst; /* compact copies of strided rows */
    int64_t stride;
} block_memory;

/* -1 as common/size.h has it. */
static int64_t memory_bytes(const copes_lrpe_problem *problem, const block_shape *shape)
{
    const row_layout layout = layout_of(problem);
    const int64_t row = copes_multiply(layout_stride(&layout), 2 * sizeof(real) + 5 * sizeof(storage));
    return copes_add(angles_bytes(problem, shape->turns, shape->rows, by_products(problem)),
                     copes_multiply(shape->rows, row));
}

/* For blocks of `count` heads from `first` on. */
static void memory_open(block_memory *memory, const copes_lrpe_problem *problem, const block_shape *shape,
                        int64_t first, int64_t count, void *bytes)
{
    const int64_t heads = problem->theta.stride[0] == 0 ? 1 : count;
    memory->layout = layout_of(problem);
    memory->axis = shape->axis;
    memory->stride = layout_stride(&memory->layout);
    TEMPLATE(angles_open)(&memory->angles, problem, first, heads,
                          shape->axis == 1 || shape->rows < heads ? shape->rows : heads, by_products(problem), bytes);
    memory->y = (real *)((char *)bytes + angles_bytes(problem, shape->turns, shape->rows, by_products(problem)));
    memory->g = memory->y + shape->rows * memory->stride;
    memory->src = (storage *)(memory->g + shape->rows * memory->stride);
    memory->x = memory->src + 2 * shape->rows * memory->stride;
    memory->dst = memory->x + shape->rows * memory->stride;
}

/* Where the sums for theta lie: behind the threads' parts of the workspace. */
static theta_sums find_sums(const copes_lrpe_problem *problem, const copes_cpu_run *run, int64_t chunks)
{
    const block_shape shape = shape_of(problem);
    theta_sums sums = theta_sums_of(problem, chunks);
    if (problem->grad_theta.data != NULL && run->workspace != NULL) /* else there is no angle */
        sums.at = (double *)((char *)run->workspace + thread_workspace(memory_bytes(problem, &shape), run->threads));
    return sums;
}

/* Chunks of tokens for the gradient of theta: blocks, each of one batch entry, which go to threads by whole chunks. */
static int64_t chunks_of(const copes_lrpe_problem *problem, const block_shape *shape)
{
    enum { MOST_CHUNKS = 64 };
    const int64_t blocks = copes_multiply((problem->n + shape->tokens - 1) / shape->tokens, problem->b);
    return blocks < 0 || blocks > MOST_CHUNKS ? MOST_CHUNKS : blocks;
}

int64_t TEMPLATE(lrpe_workspace)(const copes_lrpe_problem *problem, int threads)
{
    const block_shape shape = shape_of(problem);
    const bool sequence = problem->softmax == COPES_OVER_SEQUENCE;
    const int64_t bytes = sequence ? TEMPLATE(lrpe_sequence_memory)(problem) : memory_bytes(problem, &shape);
    const theta_sums sums = theta_sums_of(problem, sequence ? problem->b : chunks_of(problem, &shape));
    return copes_add(thread_workspace(bytes, threads), problem->grad_theta.data != NULL ? theta_sums_bytes(&sums) : 0);
}

/* Is a row of reals whole pairs without padding, that the registers hold? */
static bool has_short_rows(const row_layout *layout)
{
    return layout_plain(layout) && is_whole_short_row(layout_stride(layout));
}

/* The softmax of compact rows, as reals. */
static void softmax_of_rows(term_use use, const encoding *e, const block_memory *memory, row_block x)
{
    if (has_short_rows(&memory->layout) && use == FOR_STORAGE) {
        short_reals(memory->stride, e->count, x, (row_block){memory->y, memory->stride, 0});
        return;
    }
    for (int64_t i = 0; i < e->count; i++)
        read_row(&memory->layout, COPES_ACT_NONE, (const storage *)x.data + i * x.stride,
                 memory->y + i * memory->stride, -(real)INFINITY, x.ahead);
    rows_softmax(use, memory->y, e->count, memory->stride);
}

/* Activation, then encoding, of `count` compact rows. */
static void forward_rows(const copes_lrpe_problem *problem, const encoding *e, const block_memory *memory,
                         row_block src, row_block dst)
{
    if (problem->softmax != COPES_OVER_FEATURES) {
        TEMPLATE(encode)(problem->act, e, src, dst);
        return;
    }
    softmax_of_rows(FOR_STORAGE, e, memory, src);
    TEMPLATE(encode_reals)(e, (row_block){memory->y, memory->stride, 0}, dst);
}

/* What a block adds to for the gradient of theta, and where it is. */
typedef struct learning {
    theta_sums sums;
    int64_t chunk;
    block_place at;
} learning;

/* Adds a block's rows, whose values and gradients are there as reals, to the gradient of theta. */
static void learn_rows(const copes_lrpe_problem *problem, const encoding *e, const block_memory *memory, row_block src,
                       const learning *learn)
{
    for (int64_t i = 0; i < e->count; i++) {
        const int64_t at = e->angles->rows == 1 ? 0 : i * e->angles->stride;
        const learned_row row = {memory->y + i * memory->stride, memory->g + i * memory->stride,
                                 (const storage *)src.data + i * src.stride, e->angles->cosine + at,
                                 e->angles->sine + at};
        theta_sums_add(&learn->sums, problem, &memory->layout, &row, learn->chunk, learn->at.b,
                       learn->at.n + (memory->axis == 1 ? i : 0), learn->at.h + (memory->axis == 1 ? 0 : i));
    }
}

/* The transposed encoding, then the activation's gradient. */
static void backward_rows(const copes_lrpe_problem *problem, const encoding *e, const block_memory *memory,
                          row_block src, row_block x, row_block dst, const learning *learn)
{
    const bool softmax = problem->softmax == COPES_OVER_FEATURES, learns = learn->sums.at != NULL;
    if (!softmax && !learns) {
        TEMPLATE(decode)(problem->act, e, src, x, dst);
        return;
    }
    TEMPLATE(decode_reals)(e, src, (row_block){memory->g, memory->stride, 0});
    if (!learns && has_short_rows(&memory->layout)) {
        short_gradient_reals(memory->stride, e->count, x, (row_block){memory->g, memory->stride, 0}, dst, e->stream);
        return;
    }
    if (softmax)
        softmax_of_rows(gradient_use(!learns), e, memory, x);
    for (int64_t i = 0; i < e->count && !softmax; i++)
        read_row(&memory->layout, problem->act, (const storage *)x.data + i * x.stride, memory->y + i * memory->stride,
                 0, x.ahead);
    if (learns)
        learn_rows(problem, e, memory, src, learn);
    if (softmax)
        rows_gradient(memory->y, memory->g, e->count, memory->stride);
    for (int64_t i = 0; i < e->count; i++)
        write_gradient(&memory->layout, problem->act, memory->g + i * memory->stride,
                       (const storage *)x.data + i * x.stride, (storage *)dst.data + i * dst.stride, e->stream,
                       x.ahead);
}

static void run_block(const copes_lrpe_problem *problem, const encoding *e, const block_memory *memory, learning learn,
                      block_place at, block_place step)
{
    const int64_t wide = problem->variant == COPES_LRPE_COSINE ? 2 * problem->d : problem->d;
    const int64_t src_width = problem->backward ? wide : problem->d, dst_width = problem->backward ? problem->d : wide;
    const int64_t dst_at = view_at(&problem->dst, at);
    const row_block src = take_rows(&problem->src, memory->axis, view_at(&problem->src, at), e->count, src_width,
                                    memory->src, true, view_at(&problem->src, step));
    const row_block dst = take_rows(&problem->dst, memory->axis, dst_at, e->count, dst_width, memory->dst, false,
                                    view_at(&problem->dst, step));
    if (!problem->backward) {
        forward_rows(problem, e, memory, src, dst);
    } else {
        const bool needed = problem->x.data != NULL;
        const row_block x = needed ? take_rows(&problem->x, memory->axis, view_at(&problem->x, at), e->count,
                                               problem->d, memory->x, true, view_at(&problem->x, step))
                                   : (row_block){0};
        learn.at = at;
        backward_rows(problem, e, memory, src, x, dst, &learn);
    }
    give_rows(&problem->dst, memory->axis, dst_at, e->count, dst_width, memory->dst);
}

/* Batch entries to a part: all where they share angles, unless that would leave too few tasks to keep the threads busy. */
static int64_t batch_share(const copes_lrpe_problem *problem, int64_t blocks, int threads)
{
    if (entry_by_entry(problem) || problem->grad_theta.data != NULL)
        return 1;
    const int64_t tasks = 4 * (int64_t)threads;
    const int64_t parts = blocks >= tasks ? 1 : (tasks + blocks - 1) / blocks;
    return parts >= problem->b ? 1 : (problem->b + parts - 1) / parts;
}

/* Tokens of a task: a block's, or fewer where that would leave threads without a task. */
static int64_t tokens_of_task(const copes_lrpe_problem *problem, const block_shape *shape, int threads)
{
    int64_t tokens = shape->tokens;
    while (tokens > 1 && (problem->n + tokens - 1) / tokens * problem->b < 4 * (int64_t)threads)
        tokens /= 2;
    return tokens;
}

/* The blocks of some tokens: of `count` heads from the memory's first on, `rows` at a time, and of batch entries begin .. end - 1. */
typedef struct block_walk {
    int64_t begin, end, count, rows, tokens;
} block_walk;

/* On to the next batch entry, then heads, then tokens. */
static void next_block(const block_walk *walk, block_place *at)
{
    if (++at->b < walk->end)
        return;
    at->b = walk->begin;
    at->h += walk->rows;
    if (at->h < walk->count)
        return;
    at->h = 0;
    at->n += walk->tokens;
}

static int64_t heads_of_block(const block_walk *walk, int64_t h)
{
    return walk->rows < walk->count - h ? walk->rows : walk->count - h;
}

/* Makes the angles of a block, where they differ from those of the block before. */
static void make_angles(const angles *a, const copes_lrpe_problem *problem, int axis, const block_walk *walk,
                        block_place at)
{
    if (axis == 2 && (at.h == 0 || a->heads > 1))
        TEMPLATE(angles_make)(a, problem, at.b, at.n, at.h, a->heads > 1 ? heads_of_block(walk, at.h) : 1, 0);
    for (int64_t i = 0; i < walk->tokens && axis == 1 && (at.h == 0 || a->heads > 1); i++)
        TEMPLATE(angles_make)(a, problem, at.b, at.n + i, at.h, 1, i);
}

/* Are a block's rows, those of a token's heads, the only ones with their angles? Angles are then made as rows are encoded: memory, which
 * has been asked for the next rows, would be idle if they were made before. Not beside exponentials, which take longer than memory. */
static bool makes_meanwhile(const copes_lrpe_problem *problem, const block_memory *memory, const block_walk *walk)
{
    return memory->axis == 2 && memory->angles.heads > 1 && walk->end - walk->begin == 1 &&
           !has_exponential(problem->act);
}

static void run_tokens(const copes_lrpe_problem *problem, const block_memory *memory, const block_shape *shape,
                       learning learn, bool stream, block_walk walk, int64_t n)
{
    const int64_t first = memory->angles.first;
    const bool meanwhile = makes_meanwhile(problem, memory, &walk);
    block_place at = {walk.begin, n, 0}, ahead = at;
    for (int64_t i = 0; i < shape->ahead; i++)
        next_block(&walk, &ahead);
    while (at.n == n) {
        encoding e = {.variant = problem->variant,
                      .pairing = problem->pairing,
                      .count = shape->axis == 1 ? walk.tokens : heads_of_block(&walk, at.h),
                      .d = problem->d,
                      .angles = &memory->angles,
                      .layout = &memory->layout,
                      .stream = stream};
        if (meanwhile)
            e.sums = TEMPLATE(angles_sums)(&memory->angles, problem, at.b, at.n, at.h, e.count);
        if (at.b == walk.begin && e.sums.anchor == NULL)
            make_angles(&memory->angles, problem, shape->axis, &walk, at);
        run_block(problem, &e, memory, learn, (block_place){at.b, n, first + at.h},
                  (block_place){ahead.b - at.b, ahead.n - n, ahead.h - at.h});
        next_block(&walk, &at);
        next_block(&walk, &ahead);
    }
}

/* A call on heads first .. first + count - 1, as its threads see it. */
typedef struct heads_job {
    const copes_lrpe_problem *problem;
    const copes_cpu_run *run;
    block_shape shape;
    int64_t first, count;
    int64_t tokens, blocks; /* of a task, and of all tokens */
    int64_t share, parts;   /* batch entries of a task, and of all of them */
    theta_sums sums;
} heads_job;

/* A block of tokens of batch entries begin .. end - 1, which have the same positions. */
static void run_task(const heads_job *job, const block_memory *memory, int64_t block, int64_t begin, int64_t end,
                     int64_t chunk)
{
    const copes_lrpe_problem *problem = job->problem;
    const bool stream = lrpe_streams(problem, job->run);
    const int64_t n = block * job->tokens, left = problem->n - n;
    const block_walk walk = {.begin = begin,
                             .end = end,
                             .count = job->count,
                             .rows = job->shape.axis == 1 ? 1 : job->shape.rows,
                             .tokens = job->tokens < left ? job->tokens : left};
    run_tokens(problem, memory, &job->shape, (learning){job->sums, chunk, {0, 0, 0}}, stream, walk, n);
}

/* Blocks of tokens of a part of the batch: block by block where its entries have the same positions, else entry by entry. */
static void run_part(const heads_job *job, const block_memory *memory, int64_t part, copes_share blocks, int64_t chunk)
{
    const copes_lrpe_problem *problem = job->problem;
    const int64_t begin = part * job->share, left = problem->b - begin;
    const int64_t entries = job->share < left ? job->share : left;
    const int64_t end = blocks.end < job->blocks ? blocks.end * job->tokens : problem->n;
    const int64_t step = positions_agree(problem, begin, entries, blocks.begin * job->tokens, end) ? entries : 1;
    for (int64_t b = begin; b < begin + entries; b += step)
        for (int64_t block = blocks.begin; block < blocks.end; block++)
            run_task(job, memory, block, b, b + step, chunk);
}

/* Tasks are the blocks of one part of the batch, then those of the next. */
static void run_tasks(const heads_job *job, const block_memory *memory, copes_share tasks, int64_t chunk)
{
    while (tasks.begin < tasks.end) {
        const int64_t part = tasks.begin / job->blocks, first = part * job->blocks, last = first + job->blocks;
        const int64_t end = last < tasks.end ? last : tasks.end;
        run_part(job, memory, part, (copes_share){tasks.begin - first, end - first}, chunk);
        tasks.begin = end;
    }
}

static void run_heads(const copes_worker *worker, const void *argument)
{
    const heads_job *job = argument;
    const copes_lrpe_problem *problem = job->problem;
    const int64_t tasks = job->blocks * job->parts, chunks = job->sums.at != NULL ? job->sums.chunks : worker->count;
    const copes_share mine = copes_share_of(worker, chunks);
    block_memory memory;
    memory_open(&memory, problem, &job->shape, job->first, job->count,
                thread_memory(job->run, worker, memory_bytes(problem, &job->shape)));
    for (int64_t chunk = mine.begin; chunk < mine.end; chunk++) {
        for (int64_t head = job->first; head < job->first + job->count && job->sums.at != NULL; head++)
            theta_sums_clear(&job->sums, chunk, head);
        run_tasks(job, &memory, copes_share_at(chunk, chunks, tasks), chunk);
    }
    finish_streaming();
}

void TEMPLATE(lrpe)(const copes_lrpe_problem *problem, const copes_cpu_run *run)
{
    const bool learns = problem->grad_theta.data != NULL;
    if (learns && (problem->b == 0 || problem->n == 0 || problem->h == 0 || problem->d == 0)) {
        const theta_sums nothing = theta_sums_of(problem, 0);
        theta_sums_finish(&nothing, problem);
        return;
    }
    if (problem->softmax == COPES_OVER_SEQUENCE) {
        TEMPLATE(lrpe_sequence)(problem, run);
        return;
    }
    heads_job job = {.problem = problem, .run = run, .shape = shape_of(problem)};
    job.tokens = learns ? job.shape.tokens : tokens_of_task(problem, &job.shape, run->threads);
    job.blocks = (problem->n + job.tokens - 1) / job.tokens;
    job.share = batch_share(problem, job.blocks, run->threads);
    job.parts = (problem->b + job.share - 1) / job.share;
    job.sums = find_sums(problem, run, chunks_of(problem, &job.shape));
    for (; job.first < problem->h; job.first += job.shape.heads) {
        job.count = job.first + job.shape.heads < problem->h ? job.shape.heads : problem->h - job.first;
        copes_team_run(run, run_heads, &job);
    }
    if (learns)
        theta_sums_finish(&job.sums, problem);
}
