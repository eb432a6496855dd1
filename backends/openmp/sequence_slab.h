/* A task of lrpe behind a softmax over the sequence: neighbouring heads of a few batch entries, so that a token's rows lie together in
 * memory and entries share its angles, and the two passes over their tokens. */
#ifndef COPES_BACKENDS_OPENMP_SEQUENCE_SLAB_H
#define COPES_BACKENDS_OPENMP_SEQUENCE_SLAB_H

#include "backends/openmp/blocks.h"
#include "backends/openmp/columns_apply.h"
#include "backends/openmp/template.h"
#include "backends/openmp/theta_gradient.h"

enum { SLAB_FEATURES = 1024, SLAB_ROWS = 8 }; /* of a token in a task, and their rows: their columns stay in L1 */
enum { TOKENS_AHEAD = 8 };                    /* how far a walk over rows looks ahead */

/* A task's memory. Rows of reals are `stride` long; x and g hold a block of tokens of each entry, a row for each head. */
typedef struct slab {
    const copes_lrpe_problem *problem;
    encoding encoding;
    angles angles;
    row_layout layout;
    int64_t head, heads, first, entries, stride;
    columns total[SLAB_ROWS], part[SLAB_ROWS]; /* of each entry the heads: of all tokens, and of a part of them */
    real *x, *g;
    storage *line, *out; /* compact copies of strided rows */
    bool stream;         /* store past the caches */
    bool direct;         /* rows of x are whole pairs as they lie in memory */
    theta_sums sums;     /* a chunk for each batch entry */
} slab;

/* What the softmax is of. */
static const copes_view *view_of_x(const copes_lrpe_problem *problem)
{
    return problem->backward ? &problem->x : &problem->src;
}

/* Tokens of a block: g takes as much memory again. */
static int64_t block_tokens(const copes_lrpe_problem *problem)
{
    return problem->backward ? COLUMN_BLOCK / 2 : COLUMN_BLOCK;
}

static int64_t slab_rows(const copes_lrpe_problem *problem)
{
    const row_layout layout = layout_of(problem);
    const int64_t stride = layout_stride(&layout), rows = stride > 0 ? SLAB_FEATURES / stride : SLAB_ROWS;
    return rows < 1 ? 1 : rows < SLAB_ROWS ? rows : SLAB_ROWS;
}

/* Sets of angles that the heads of a task have. */
static int64_t turns_of(const copes_lrpe_problem *problem, int64_t heads)
{
    return problem->theta.stride[0] == 0 ? 1 : heads;
}

/* Of a task of so many rows. */
static int64_t slab_bytes(const copes_lrpe_problem *problem, int64_t rows)
{
    const row_layout layout = layout_of(problem);
    const int64_t reals = COLUMN_BLOCK * (int64_t)sizeof(real), turns = turns_of(problem, rows);
    const int64_t feature = rows * (2 * columns_bytes(1) + reals + 4 * (int64_t)sizeof(storage));
    return copes_add(angles_bytes(problem, turns, turns, by_products(problem)),
                     copes_multiply(layout_stride(&layout), feature));
}

/* The number of a column in lse or delta; row `row` is that of a head of an entry. */
static real *column_at(const slab *s, const copes_view *view, int64_t row, int64_t feature)
{
    return (real *)view->data + (s->first + row / s->heads) * view->stride[0] +
           (s->head + row % s->heads) * view->stride[1] + feature * view->stride[2];
}

/* What the caller gave of a row's columns. */
static void take_given(const slab *s, int64_t row, columns *c)
{
    const copes_lrpe_problem *problem = s->problem;
    const bool has_lse = problem->lse.data != NULL && (problem->backward || problem->passes == COPES_SECOND_PASS);
    const bool has_delta = problem->delta.data != NULL && problem->passes == COPES_SECOND_PASS;
    for (int64_t i = 0; i < problem->d && has_lse; i++)
        columns_fix(c, layout_place(&s->layout, i), take_real(column_at(s, &problem->lse, row, i)));
    for (int64_t i = 0; i < problem->d && has_delta; i++)
        c->dot[layout_place(&s->layout, i)] = take_real(column_at(s, &problem->delta, row, i));
}

/* A row's columns, of no tokens yet. */
static columns open_columns(const slab *s, int64_t row, char *memory)
{
    const copes_lrpe_problem *problem = s->problem;
    const bool stored = problem->grad_theta.data == NULL && problem->passes != COPES_FIRST_PASS;
    const term_use use = problem->backward ? gradient_use(stored) : problem->lse.data != NULL ? FOR_LSE : FOR_STORAGE;
    columns c = columns_open(s->stride, use, memory);
    take_given(s, row, &c);
    return c;
}

/* Lays out the memory of a slab whose problem, heads and entries are known. */
static void slab_open(slab *s, char *memory)
{
    const copes_lrpe_problem *problem = s->problem;
    const int64_t rows = s->entries * s->heads, turns = turns_of(problem, s->heads);
    s->layout = layout_of(problem);
    s->stride = layout_stride(&s->layout);
    s->direct = layout_plain(&s->layout) && view_of_x(problem)->stride[3] == 1;
    s->encoding = (encoding){.variant = problem->variant,
                             .pairing = problem->pairing,
                             .count = s->heads,
                             .d = problem->d,
                             .angles = &s->angles,
                             .layout = &s->layout,
                             .stream = s->stream};
    TEMPLATE(angles_open)(&s->angles, problem, s->head, turns, turns, by_products(problem), memory);
    memory += angles_bytes(problem, turns, turns, by_products(problem));
    for (int64_t row = 0; row < 2 * rows; row++, memory += columns_bytes(s->stride))
        (row < rows ? s->total : s->part)[row % rows] = open_columns(s, row % rows, memory);
    s->x = (real *)memory;
    s->g = s->x + block_tokens(problem) * rows * s->stride;
    s->line = (storage *)(s->x + COLUMN_BLOCK * rows * s->stride);
    s->out = s->line + 2 * rows * s->stride;
}

static block_place place_of(const slab *s, int64_t entry, int64_t token)
{
    return (block_place){s->first + entry, token, s->head};
}

/* A row of x as it lies in memory. */
static const storage *row_of_x(const slab *s, int64_t entry, int64_t token, int64_t h)
{
    const copes_view *view = view_of_x(s->problem);
    return (const storage *)view->data + view_at(view, place_of(s, entry, token)) + h * view->stride[2];
}

/* A token's rows of `width` features, one for each head. */
static row_block token_rows(const slab *s, const copes_view *view, int64_t entry, int64_t token, int64_t width)
{
    return take_rows(view, 2, view_at(view, place_of(s, entry, token)), s->heads, width, s->line, true,
                     TOKENS_AHEAD * view->stride[1]);
}

static int64_t wide(const copes_lrpe_problem *problem)
{
    return problem->variant == COPES_LRPE_COSINE ? 2 * problem->d : problem->d;
}

static void read_x(const slab *s, int64_t entry, int64_t token, real *x)
{
    const row_block rows = token_rows(s, view_of_x(s->problem), entry, token, s->problem->d);
    for (int64_t h = 0; h < s->heads; h++)
        read_row(&s->layout, COPES_ACT_NONE, (const storage *)rows.data + h * rows.stride, x + h * s->stride,
                 -(real)INFINITY, rows.ahead);
}

static void read_g(const slab *s, int64_t entry, int64_t token, real *g)
{
    TEMPLATE(decode_reals)(&s->encoding, token_rows(s, &s->problem->src, entry, token, wide(s->problem)),
                           (row_block){g, s->stride, 0});
}

static void give_lse(const slab *s, int64_t row)
{
    const copes_lrpe_problem *problem = s->problem;
    if (problem->backward || problem->lse.data == NULL)
        return;
    for (int64_t i = 0; i < problem->d; i++)
        give_real(column_at(s, &problem->lse, row, i), columns_lse(&s->total[row], layout_place(&s->layout, i)));
}

/* Of the first pass alone. */
static void give_delta(const slab *s, int64_t row)
{
    const copes_lrpe_problem *problem = s->problem;
    if (problem->passes != COPES_FIRST_PASS || problem->delta.data == NULL)
        return;
    for (int64_t i = 0; i < problem->d; i++)
        give_real(column_at(s, &problem->delta, row, i), s->total[row].dot[layout_place(&s->layout, i)]);
}

/* Rows of a block of reals: of an entry and a token of the block, its heads. */
static real *reals_of(const slab *s, real *block, int64_t entry, int64_t i)
{
    return block + (entry * block_tokens(s->problem) + i) * s->heads * s->stride;
}

/* Adds a block of tokens, whose g, and x where it is not read directly, are there as reals. */
static void add_block(const slab *s, const columns *sets, int64_t token, int64_t count)
{
    const copes_lrpe_problem *problem = s->problem;
    const copes_view *view = view_of_x(problem);
    const int64_t ahead = block_tokens(problem) * view->stride[1];
    for (int64_t row = 0; row < s->entries * s->heads; row++) {
        const int64_t entry = row / s->heads, h = row % s->heads;
        const column_rows g = {reals_of(s, s->g, entry, 0) + h * s->stride, s->heads * s->stride, 0};
        const column_rows x = s->direct
                                  ? (column_rows){row_of_x(s, entry, token, h), view->stride[1], ahead}
                                  : (column_rows){reals_of(s, s->x, entry, 0) + h * s->stride, s->heads * s->stride, 0};
        if (problem->backward)
            columns_add_gradient(&sets[row], !s->direct, x, g, count);
        else
            columns_add(&sets[row], !s->direct, x, count);
    }
}

/* The first pass over tokens begin .. end - 1: statistics of every column. */
static void read_tokens(const slab *s, const columns *sets, int64_t begin, int64_t end)
{
    const copes_lrpe_problem *problem = s->problem;
    const int64_t tokens = block_tokens(problem);
    for (int64_t token = begin; token < end; token += tokens) {
        const int64_t count = token + tokens < end ? tokens : end - token;
        for (int64_t i = 0; i < count && (problem->backward || !s->direct); i++) {
            if (problem->backward)
                TEMPLATE(angles_make)(&s->angles, problem, s->first, token + i, 0, s->angles.heads, 0);
            for (int64_t entry = 0; entry < s->entries; entry++) {
                if (!s->direct)
                    read_x(s, entry, token + i, reals_of(s, s->x, entry, i));
                if (problem->backward)
                    read_g(s, entry, token + i, reals_of(s, s->g, entry, i));
            }
        }
        add_block(s, sets, token, count);
    }
}

/* What the first pass ends with; `gives`: to the caller, what the caller asks for. */
static void finish_columns(const slab *s, bool gives)
{
    for (int64_t row = 0; row < s->entries * s->heads; row++) {
        if (gives)
            give_lse(s, row);
        columns_finish(&s->total[row]);
        if (gives)
            give_delta(s, row);
    }
}

/* Adds a row, whose softmax and gradient are there as reals, to the gradient of theta. */
static void learn_rows(const slab *s, int64_t entry, int64_t token)
{
    const row_block grad_o = token_rows(s, &s->problem->src, entry, token, wide(s->problem));
    for (int64_t h = 0; h < s->heads; h++) {
        const int64_t turn = s->angles.rows == 1 ? 0 : h * s->angles.stride;
        const learned_row row = {s->x + h * s->stride, s->g + h * s->stride,
                                 (const storage *)grad_o.data + h * grad_o.stride, s->angles.cosine + turn,
                                 s->angles.sine + turn};
        theta_sums_add(&s->sums, s->problem, &s->layout, &row, s->first + entry, s->first + entry, token, s->head + h);
    }
}

/* The softmax of a token's rows, as reals. */
static void apply_rows(const slab *s, int64_t entry, int64_t token)
{
    const int64_t ahead = TOKENS_AHEAD * view_of_x(s->problem)->stride[1];
    if (!s->direct)
        read_x(s, entry, token, s->x);
    for (int64_t h = 0; h < s->heads; h++) {
        real *const x = s->x + h * s->stride;
        columns_apply(&s->total[entry * s->heads + h], !s->direct,
                      s->direct ? (const void *)row_of_x(s, entry, token, h) : x, x, ahead);
    }
}

/* A token's gradients, to rows of storage. */
static void write_gradients(const slab *s, int64_t entry, int64_t token, row_block to)
{
    const int64_t ahead = TOKENS_AHEAD * s->problem->x.stride[1];
    const bool at_once = s->direct && s->sums.at == NULL;
    read_g(s, entry, token, s->g);
    if (!at_once)
        apply_rows(s, entry, token);
    if (s->sums.at != NULL)
        learn_rows(s, entry, token);
    for (int64_t h = 0; h < s->heads; h++) {
        const columns *c = &s->total[entry * s->heads + h];
        storage *const o = (storage *)to.data + h * to.stride;
        real *const g = s->g + h * s->stride;
        if (at_once) {
            columns_slope(c, row_of_x(s, entry, token, h), ahead, g, o, to.ahead, s->stream);
            continue;
        }
        columns_gradient(c, s->x + h * s->stride, g);
        write_gradient(&s->layout, COPES_ACT_NONE, g, NULL, o, s->stream, 0);
    }
}

/* The second pass: a token's softmax and its encoding, or its gradients. */
static void write_rows(const slab *s, int64_t entry, int64_t token)
{
    const copes_lrpe_problem *problem = s->problem;
    const copes_view *view = &problem->dst;
    const int64_t width = problem->backward ? problem->d : wide(problem), at = view_at(view, place_of(s, entry, token));
    const row_block to = take_rows(view, 2, at, s->heads, width, s->out, false, TOKENS_AHEAD * view->stride[1]);
    if (problem->backward) {
        write_gradients(s, entry, token, to);
    } else {
        apply_rows(s, entry, token);
        TEMPLATE(encode_reals)(&s->encoding, (row_block){s->x, s->stride, 0}, to);
    }
    give_rows(view, 2, at, s->heads, width, s->out);
}

static void write_tokens(const slab *s, int64_t begin, int64_t end)
{
    for (int64_t token = begin; token < end; token++) {
        TEMPLATE(angles_make)(&s->angles, s->problem, s->first, token, 0, s->angles.heads, 0);
        for (int64_t entry = 0; entry < s->entries; entry++)
            write_rows(s, entry, token);
    }
}

#endif
