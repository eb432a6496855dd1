/* qk_norm_rope. Bound by memory. A task is a token: its angles are computed once, stay in L1, and serve all heads of q and of k.
 * Rows pass straight from memory through registers to memory, in one pass, or with a norm in two, the second from L1. Rows on their
 * way to float8 and those of a norm's gradient rest as reals in L1. */
#include "backends/openmp/norm.h"
#include "backends/openmp/paged_cache.h"
#include "backends/openmp/streaming.h"
#include "backends/openmp/template.h"
#include "backends/openmp/weight_gradient.h"

/* Heads of a block: a whole token's where one mean is over them. */
static int64_t heads_of_block(const copes_qk_problem *problem, int which)
{
    const copes_lrpe_problem *rotate = &problem->side[which].rotate;
    const bool whole = problem->over_heads && problem->side[which].weight.data != NULL;
    return whole ? rotate->h : most_rows(rotate, rotate->h);
}

static int64_t most_heads(const copes_qk_problem *problem)
{
    const int64_t q = heads_of_block(problem, 0), k = problem->sides == 2 ? heads_of_block(problem, 1) : 0;
    return q > k ? q : k;
}

/* Rows of a token's angles: those of all heads are of q's rotation, as k has the same. */
static int64_t rows_of_angles(const copes_qk_problem *problem)
{
    const copes_lrpe_problem *rotate = &problem->side[0].rotate;
    return rotate->theta.stride[0] == 0 ? 1 : rotate->h;
}

typedef struct token_memory {
    angles angles;
    row_layout layout;
    int64_t stride;
    real *weight[2];
    real *inverse;              /* row_norm's, of a block */
    real *x, *g;                /* rows of a block, and of its gradient */
    storage *src, *saved, *dst; /* compact copies of strided rows */
} token_memory;

/* Room for whole vectors, so that what follows is aligned. */
static int64_t inverse_bytes(const copes_qk_problem *problem)
{
    return copes_multiply(copes_add(most_heads(problem), PAIR - 1), sizeof(real));
}

/* -1 as common/size.h has it. */
static int64_t memory_bytes(const copes_qk_problem *problem)
{
    const copes_lrpe_problem *rotate = &problem->side[0].rotate;
    const row_layout layout = layout_of(rotate);
    const int64_t rows = rows_of_angles(problem), stride = layout_stride(&layout);
    const int64_t weights = copes_add(problem->side[0].weight_rows, problem->side[1].weight_rows);
    const int64_t block = copes_multiply(most_heads(problem), 2 * sizeof(real) + 3 * sizeof(storage));
    const int64_t whole = copes_multiply(stride, copes_add(copes_multiply(weights, sizeof(real)), block));
    return copes_add(angles_bytes(rotate, rows, rows, false), copes_add(whole, inverse_bytes(problem)));
}

static void memory_open(token_memory *memory, const copes_qk_problem *problem, void *bytes)
{
    const copes_lrpe_problem *rotate = &problem->side[0].rotate;
    const int64_t rows = rows_of_angles(problem);
    memory->layout = layout_of(rotate);
    memory->stride = layout_stride(&memory->layout);
    const int64_t block = most_heads(problem) * memory->stride;
    TEMPLATE(angles_open)(&memory->angles, rotate, 0, rows, rows, false, bytes);
    memory->weight[0] = (real *)((char *)bytes + angles_bytes(rotate, rows, rows, false));
    memory->weight[1] = memory->weight[0] + problem->side[0].weight_rows * memory->stride;
    memory->inverse = memory->weight[1] + problem->side[1].weight_rows * memory->stride;
    memory->x = memory->inverse + whole_pairs(most_heads(problem));
    memory->g = memory->x + block;
    memory->src = (storage *)(memory->g + block);
    memory->saved = memory->src + block;
    memory->dst = memory->saved + block;
    for (int which = 0; which < problem->sides; which++)
        make_weights(&problem->side[which], problem->weight_offset, &memory->layout, memory->weight[which]);
}

/* Without heads tensors of no element may have any number of tokens. */
static int64_t tokens_of(const copes_qk_problem *problem)
{
    const copes_lrpe_problem *rotate = &problem->side[0].rotate;
    const bool empty = rotate->h == 0 && problem->side[1].rotate.h == 0 && problem->v_heads == 0;
    return empty ? 0 : rotate->b * rotate->n;
}

/* A call, as its threads see it. */
typedef struct qk_job {
    const copes_qk_problem *problem;
    const copes_cpu_run *run;
    int64_t tokens, chunks; /* of them */
    bool stream;            /* store past the caches */
    weight_sums sums[2];
} qk_job;

/* A block of heads of a token. */
typedef struct head_block {
    int which; /* of problem->side */
    block_place at, step;
    angles angles; /* of its heads */
    encoding e;
    row_norm norm; /* of its rows, where its side has one */
    double *sums;  /* of its first head's weights, or NULL */
} head_block;

static row_norm norm_of(const copes_qk_problem *problem, const token_memory *memory, int which, int64_t head)
{
    const bool each = problem->side[which].weight_rows > 1;
    return (row_norm){.inverse = memory->inverse,
                      .inverse_stride = problem->over_heads ? 0 : 1,
                      .weight = memory->weight[which] + (each ? head * memory->stride : 0),
                      .weight_stride = each ? memory->stride : 0,
                      .round_between = problem->round_between};
}

static row_block take_block(const copes_view *view, const head_block *block, storage *copy)
{
    return take_rows(view, 2, view_at(view, block->at), block->e.count, block->e.d, copy, true,
                     view_at(view, block->step));
}

static void read_block(const token_memory *memory, const head_block *block, row_block from)
{
    for (int64_t i = 0; i < block->e.count; i++)
        read_row(&memory->layout, COPES_ACT_NONE, (const storage *)from.data + i * from.stride,
                 memory->x + i * memory->stride, 0, from.ahead);
}

/* Writes turned rows to the heads of a tensor, from element `at` on. */
static void write_block(const token_memory *memory, const head_block *block, row_block turned, const copes_view *view,
                        int64_t at)
{
    const row_block to = take_rows(view, 2, at, block->e.count, block->e.d, memory->dst, false, 0);
    for (int64_t i = 0; i < block->e.count; i++)
        write_gradient(&memory->layout, COPES_ACT_NONE, (const real *)turned.data + i * turned.stride, NULL,
                       (storage *)to.data + i * to.stride, block->e.stream, 0);
    give_rows(view, 2, at, block->e.count, block->e.d, memory->dst);
}

/* Likewise, of rows that are yet to be turned; `ahead` is the way to the block that is written next. */
static void turn_block(const token_memory *memory, const head_block *block, row_block from, const copes_view *view,
                       int64_t at, int64_t ahead)
{
    const row_block to = take_rows(view, 2, at, block->e.count, block->e.d, memory->dst, false, ahead);
    TEMPLATE(turn)(&block->e, false, from, to);
    give_rows(view, 2, at, block->e.count, block->e.d, memory->dst);
}

static void write_block_float8(const copes_qk_cache *cache, const token_memory *memory, const head_block *block,
                               const copes_view *place)
{
    for (int64_t i = 0; i < block->e.count; i++)
        write_float8(&memory->layout, memory->x + i * memory->stride, cache_scale(cache, block->at.h + i),
                     (uint8_t *)place->data + (block->at.h + i) * place->stride[2], place->stride[3]);
}

/* To the cache first: k_out may be k. */
static void forward_block(const copes_qk_problem *problem, const token_memory *memory, const head_block *block)
{
    const copes_qk_side *side = &problem->side[block->which];
    const copes_view *dst = &side->rotate.dst;
    const copes_view place = block->which == 1 ? cache_place(problem, &problem->k_cache, block->at) : (copes_view){0};
    const bool cached = place.data != NULL, narrows = cached && problem->cache_dtype == COPES_F8_E4M3;
    if (!cached && dst->data == NULL)
        return;
    const row_block rows = take_block(&side->rotate.src, block, memory->src), turned = {memory->x, memory->stride, 0};
    if (side->weight.data != NULL)
        find_inverse_roots(rows, block->e.count, block->e.d, problem->over_heads, problem->eps, memory->inverse);
    if (narrows) {
        TEMPLATE(turn)(&block->e, true, rows, turned);
        write_block_float8(&problem->k_cache, memory, block, &place);
    } else if (cached) {
        turn_block(memory, block, rows, &place, block->at.h * place.stride[2], 0); /* the next slot may be anywhere */
    }
    if (dst->data != NULL && narrows)
        write_block(memory, block, turned, dst, view_at(dst, block->at));
    else if (dst->data != NULL)
        turn_block(memory, block, rows, dst, view_at(dst, block->at), view_at(dst, block->step));
}

static void backward_block(const copes_qk_problem *problem, const token_memory *memory, const head_block *block)
{
    const copes_qk_side *side = &problem->side[block->which];
    const copes_view *dst = &side->rotate.dst;
    const row_block grad_o = take_block(&side->rotate.src, block, memory->src);
    if (side->weight.data == NULL) {
        const int64_t at = view_at(dst, block->at);
        const row_block to =
            take_rows(dst, 2, at, block->e.count, block->e.d, memory->dst, false, view_at(dst, block->step));
        TEMPLATE(decode)(COPES_ACT_NONE, &block->e, grad_o, (row_block){0}, to);
        give_rows(dst, 2, at, block->e.count, block->e.d, memory->dst);
        return;
    }
    const row_block g = {memory->g, memory->stride, 0}, x = take_block(&side->rotate.x, block, memory->saved);
    TEMPLATE(decode_reals)(&block->e, grad_o, g);
    find_inverse_roots(x, block->e.count, block->e.d, problem->over_heads, problem->eps, memory->inverse);
    read_block(memory, block, x);
    norm_gradient(&block->norm, memory->x, memory->g, block->e.count, block->e.d, memory->stride, block->sums);
    write_block(memory, block, g, dst, view_at(dst, block->at));
}

/* All heads of q or of k of a token; the thread comes to the token `step` away next. */
static void run_heads(const qk_job *job, const token_memory *memory, int which, int64_t chunk, block_place at,
                      block_place step)
{
    const copes_qk_problem *problem = job->problem;
    const copes_lrpe_problem *rotate = &problem->side[which].rotate;
    const int64_t heads = heads_of_block(problem, which);
    for (; at.h < rotate->h; at.h += heads) {
        const bool last = at.h + heads >= rotate->h;
        const int64_t turn = memory->angles.rows == 1 ? 0 : at.h * memory->angles.stride;
        head_block block = {.which = which,
                            .at = at,
                            .step = last ? (block_place){step.b, step.n, -at.h} : (block_place){0, 0, heads},
                            .angles = memory->angles,
                            .norm = norm_of(problem, memory, which, at.h),
                            .sums = weight_sums_at(&job->sums[which], chunk, at.h)};
        block.angles.cosine += turn;
        block.angles.sine += turn;
        block.e = (encoding){.variant = rotate->variant,
                             .pairing = rotate->pairing,
                             .count = last ? rotate->h - at.h : heads,
                             .d = rotate->d,
                             .angles = &block.angles,
                             .layout = &memory->layout,
                             .stream = job->stream,
                             .norm = problem->side[which].weight.data != NULL ? &block.norm : NULL};
        if (problem->backward)
            backward_block(problem, memory, &block);
        else
            forward_block(problem, memory, &block);
    }
}

/* Does a thread go from a token to the same token of the next batch entry, which has its angles? */
static bool goes_by_token(const copes_lrpe_problem *rotate)
{
    return !entry_by_entry(rotate) && !entries_have_positions(rotate);
}

static block_place token_at(const copes_lrpe_problem *rotate, int64_t token)
{
    if (!goes_by_token(rotate))
        return (block_place){token / rotate->n, token % rotate->n, 0};
    return (block_place){token % rotate->b, token / rotate->b, 0};
}

static void run_token(const qk_job *job, const token_memory *memory, int64_t token, int64_t chunk, bool first)
{
    const copes_qk_problem *problem = job->problem;
    const copes_lrpe_problem *rotate = &problem->side[0].rotate;
    const block_place at = token_at(rotate, token), next = token_at(rotate, token + 1);
    if (first || at.b == 0 || !goes_by_token(rotate))
        TEMPLATE(angles_make)(&memory->angles, rotate, at.b, at.n, 0, memory->angles.heads, 0);
    for (int which = 0; which < problem->sides; which++)
        run_heads(job, memory, which, chunk, at, (block_place){next.b - at.b, next.n - at.n, 0});
    store_values(problem, at);
}

static void run_tokens(const copes_worker *worker, const void *argument)
{
    const qk_job *job = argument;
    const copes_share mine = copes_share_of(worker, job->chunks);
    token_memory memory;
    memory_open(&memory, job->problem, thread_memory(job->run, worker, memory_bytes(job->problem)));
    for (int64_t chunk = mine.begin; chunk < mine.end; chunk++) {
        const copes_share tokens = copes_share_at(chunk, job->chunks, job->tokens);
        weight_sums_clear(&job->sums[0], chunk);
        weight_sums_clear(&job->sums[1], chunk);
        for (int64_t token = tokens.begin; token < tokens.end; token++)
            run_token(job, &memory, token, chunk, token == tokens.begin);
    }
    finish_streaming();
}

/* Chunks of tokens for the gradients of weights, which go to threads by whole chunks. */
static int64_t chunks_of(const copes_qk_problem *problem)
{
    enum { MOST_CHUNKS = 64 };
    const int64_t tokens = tokens_of(problem);
    return tokens > MOST_CHUNKS ? MOST_CHUNKS : tokens;
}

int64_t TEMPLATE(qk_workspace)(const copes_qk_problem *problem, int threads)
{
    int64_t bytes = thread_workspace(memory_bytes(problem), threads);
    for (int which = 0; which < 2; which++) {
        const weight_sums sums = weight_sums_of(&problem->side[which], chunks_of(problem));
        bytes = copes_add(bytes, weight_sums_bytes(&sums));
    }
    return bytes;
}

void TEMPLATE(qk)(const copes_qk_problem *problem, const copes_cpu_run *run)
{
    const int64_t chunks = chunks_of(problem);
    qk_job job = {.problem = problem, .run = run, .tokens = tokens_of(problem), .chunks = run->threads};
    char *memory = run->workspace;
    double bytes = 0;
    if (memory != NULL)
        memory += thread_workspace(memory_bytes(problem), run->threads);
    for (int which = 0; which < 2; which++) {
        job.sums[which] = weight_sums_of(&problem->side[which], chunks);
        if (job.sums[which].rows == 0)
            continue;
        job.chunks = chunks;
        job.sums[which].at = (double *)memory;
        if (memory != NULL) /* else there is no token */
            memory += weight_sums_bytes(&job.sums[which]);
    }
    bool lines = true;
    for (int which = 0; which < problem->sides; which++) {
        bytes += copes_lrpe_bytes(&problem->side[which].rotate);
        lines = lines && lrpe_stores_lines(&problem->side[which].rotate);
    }
    job.stream = bytes > (double)run->cache && lines;
    if (job.tokens > 0)
        copes_team_run(run, run_tokens, &job);
    for (int which = 0; which < 2; which++)
        weight_sums_finish(&job.sums[which], &problem->side[which]);
}
