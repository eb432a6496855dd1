/* How tpa_decode is cut into tasks and tiles, the memory that they take, and the query that a task serves. */
#ifndef COPES_BACKENDS_OPENMP_TPA_TASK_H
#define COPES_BACKENDS_OPENMP_TPA_TASK_H

#include "backends/openmp/simd.h"
#include "backends/openmp/template.h"

enum {
    TILE_ROWS = 48, /* key or value features in cache at once: a multiple of the rows of a product's block */
    HEAD_BLOCK_BYTES = 1 << 15, /* of a block of heads' queries, or outputs: what is read again for each few rows */
    GROUP_TILES = 8,            /* summed plainly: more would add to what the sum over a tile's rows rounds off */
    PART_KEYS = 1024,           /* at least, in a part of the cache, so that partial outputs are small beside it */
    ENOUGH_TASKS = 64
};

typedef struct layout {
    int64_t heads, stride, blocks; /* of a block of heads: their number, the same in whole vectors, and the blocks */
    int64_t tile, part, parts;     /* keys of a tile and of a part, and the parts */
    int64_t rows, ranks, width;    /* the largest of a tile's feature rows, of ranks, and of D and E */
    int64_t partial;               /* reals of a partial output; -1 as common/size.h has it */
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
    const int64_t fit = HEAD_BLOCK_BYTES / (int64_t)sizeof(real) / l.width / (2 * LANES) * (2 * LANES);
    l.blocks = parts_of(problem->h, most(fit, 2 * LANES));
    l.heads = parts_of(parts_of(problem->h, l.blocks), LANES) * LANES;
    l.blocks = parts_of(problem->h, l.heads);
    l.stride = l.heads;
    l.tile = most(TILE_ROWS / rank, 1);
    l.rows = most(l.tile * rank, problem->rq);
    const int64_t wanted = parts_of(ENOUGH_TASKS, problem->b * problem->n * l.blocks);
    l.part = parts_of(most(parts_of(problem->m, wanted), PART_KEYS), l.tile) * l.tile;
    l.parts = most(parts_of(problem->m, l.part), 1);
    const int64_t bytes = thread_part(copes_multiply(copes_add(problem->e, 3), l.stride * (int64_t)sizeof(real)));
    l.partial = bytes < 0 ? -1 : bytes / (int64_t)sizeof(real);
    return l;
}

/* What a thread works in. The output so far, and its largest score and sum, are a partial's or the thread's own. */
typedef struct memory {
    real *query;        /* (D, heads) */
    real *scores;       /* (tile rank, heads): scores, then their exponentials times av */
    real *features;     /* (tile rank, D or E) */
    real *coefficients; /* (rank, heads) */
    real *shrink;       /* (heads) */
    real *own;
    real *group, *carry; /* partials: a group of tiles' output, and what sums and outputs have rounded off */
} memory;

/* Likewise. */
static int64_t memory_bytes(const copes_tpa_problem *problem, const layout *l)
{
    const int64_t of_heads = copes_add(copes_add(problem->d, l->rows), copes_add(l->ranks, 1));
    const int64_t tiles = copes_add(copes_multiply(of_heads, l->stride), copes_multiply(l->rows, l->width));
    return copes_multiply(copes_add(tiles, copes_multiply(l->partial, 3)), sizeof(real));
}

static memory memory_open(const copes_tpa_problem *problem, const layout *l, void *bytes)
{
    memory m = {.query = bytes};
    m.scores = m.query + problem->d * l->stride;
    m.coefficients = m.scores + l->rows * l->stride;
    m.shrink = m.coefficients + l->ranks * l->stride;
    m.own = m.shrink + l->stride;
    m.group = m.own + l->partial;
    m.carry = m.group + l->partial;
    m.features = m.carry + l->partial;
    return m;
}

/* An output in the making: (heads) largest scores, (heads) sums, (heads) units, powers of 2 in which the outputs are, and
 * (E, heads) outputs. */
typedef struct partial {
    real *most, *sum, *unit, *o;
} partial;

static inline partial partial_at(real *data, const layout *l)
{
    return (partial){data, data + l->stride, data + 2 * l->stride, data + 3 * l->stride};
}

/* Query token n of batch entry b and heads from `first` on. */
typedef struct query {
    int64_t b, n, block, first, heads, visible;
} query;

/* Of the share's keys, those before place `end` among all keys. */
static int64_t keys_before(const copes_tpa_problem *problem, int64_t end)
{
    const int64_t left = end - problem->kv_first;
    return left <= 0 ? 0 : least((left - 1) / problem->kv_stride + 1, problem->m);
}

static query query_of(const copes_tpa_problem *problem, const layout *l, int64_t index)
{
    query q = {.block = index % l->blocks, .n = index / l->blocks % problem->n, .b = index / l->blocks / problem->n};
    q.first = q.block * l->heads;
    q.heads = least(l->heads, problem->h - q.first);
    int64_t end = problem->kv_total;
    if (problem->kv_len.data != NULL) {
        int32_t length;
        memcpy(&length, (const char *)problem->kv_len.data + q.b * problem->kv_len.stride[0] * (int64_t)sizeof length,
               sizeof length);
        end = most(least(length, end), 0);
    }
    if (problem->causal)
        end = end - problem->n + q.n + 1;
    q.visible = keys_before(problem, end);
    return q;
}

#endif
