/* act: elementwise activations as one walk over memory in chunks, and softmax along an axis, either over rows (its
 * elements are neighbours) or over columns (its neighbours belong to other rows of it). Elementwise is bound by memory,
 * or by the exponential and the division; softmax over columns reads a slab twice, and finds it in the cache the second
 * time. */
#include "backends/openmp/columns.h"
#include "backends/openmp/short_rows.h"
#include "backends/openmp/template.h"

enum { CHUNK = 8192, PART = 1024, ROW = 4096, TOGETHER = 1024, COLUMNS = 128, TOKENS = 16 };

/* What a thread works in: each walk has the memory to itself. `line` is a compact copy of strided elements. */
typedef union act_memory {
    struct {
        storage x[PART], y[PART], o[PART];
        uint8_t mask[PART / 8];
    } strided;
    struct {
        real y[ROW], g[ROW];
        storage line[ROW];
    } rows;
    struct {
        real x[TOKENS * COLUMNS], g[TOKENS * COLUMNS], columns[5 * COLUMNS];
        storage line[COLUMNS];
    } columns;
} act_memory;

_Static_assert(sizeof(act_memory) <= SCRATCH_BYTES, "a thread's scratch memory takes every walk");

/* A call, as its threads see it. */
typedef struct act_job {
    const copes_act_problem *problem;
    bool stream;
} act_job;

/* Addresses of the tensors at one position of all dimensions but the innermost ones. */
typedef struct place {
    const storage *src, *saved;
    storage *dst;
    real *sums; /* of one pass alone */
    uint8_t *mask;
} place;

static int64_t product(const int64_t *lengths, int count)
{
    int64_t all = 1;
    for (int i = 0; i < count; i++)
        all *= lengths[i];
    return all;
}

/* The place that index `at` names, counted over the dimensions in `mask`, the last one fastest. */
static place find_place(const copes_act_problem *problem, int64_t at, unsigned mask)
{
    int64_t src = 0, saved = 0, dst = 0, sums = 0, bytes = 0;
    for (int i = problem->rank - 1; i >= 0; i--) {
        if ((mask >> i & 1) == 0)
            continue;
        const int64_t index = at % problem->shape[i];
        at /= problem->shape[i];
        src += index * problem->src.stride[i];
        saved += index * problem->saved.stride[i];
        dst += index * problem->dst.stride[i];
        sums += index * problem->sums.stride[i];
        bytes += index * problem->mask.stride[i];
    }
    return (place){(const storage *)problem->src.data + src,
                   problem->saved.data == NULL ? NULL : (const storage *)problem->saved.data + saved,
                   problem->dst.data == NULL ? NULL : (storage *)problem->dst.data + dst,
                   problem->sums.data == NULL ? NULL : (real *)problem->sums.data + sums,
                   problem->mask.data == NULL ? NULL : (uint8_t *)problem->mask.data + bytes};
}

static void run_line(const copes_act_problem *problem, const place *at, int64_t count, bool stream)
{
    if (at->mask != NULL && problem->backward)
        TEMPLATE(backward_of_mask)(at->src, at->mask, at->dst, count, stream);
    else if (at->mask != NULL)
        TEMPLATE(relu_with_mask)(at->src, at->dst, at->mask, count, stream);
    else if (problem->of_output)
        TEMPLATE(backward_of_output)(problem->act, at->src, at->saved, at->dst, count, stream);
    else if (problem->backward)
        TEMPLATE(backward_storage)(problem->act, at->src, at->saved, at->dst, count, stream);
    else
        TEMPLATE(forward_storage)(problem->act, at->src, at->dst, count, stream);
}

/* The bytes of a mask that are not neighbours, to where they are and back. */
static void move_mask(bool writes, uint8_t *mask, int64_t stride, uint8_t *line, int64_t elements)
{
    for (int64_t i = 0; 8 * i < elements; i++)
        if (writes)
            mask[i * stride] = line[i];
        else
            line[i] = mask[i * stride];
}

/* A line along `axis` whose elements are not neighbours, in parts that fit the cache. */
static void run_strided(const copes_act_problem *problem, int axis, place at, int64_t count, act_memory *memory)
{
    const int64_t src = problem->src.stride[axis], saved = problem->saved.stride[axis], dst = problem->dst.stride[axis];
    const int64_t bytes = problem->mask.stride[axis];
    storage *x = memory->strided.x, *y = memory->strided.y, *o = memory->strided.o;
    uint8_t *mask = at.mask == NULL ? NULL : memory->strided.mask;
    for (int64_t begin = 0; begin < count; begin += PART) {
        const int64_t part = begin + PART < count ? PART : count - begin;
        gather(at.src + begin * src, src, x, part);
        if (at.saved != NULL)
            gather(at.saved + begin * saved, saved, y, part);
        if (mask != NULL && problem->backward)
            move_mask(false, at.mask + begin / 8 * bytes, bytes, mask, part);
        run_line(problem, &(place){x, at.saved != NULL ? y : NULL, o, NULL, mask}, part, false);
        scatter(o, at.dst + begin * dst, dst, part);
        if (mask != NULL && !problem->backward)
            move_mask(true, at.mask + begin / 8 * bytes, bytes, mask, part);
    }
}

/* Are neighbours along `axis` neighbours in memory? */
static bool is_compact(const copes_act_problem *problem, int axis)
{
    return problem->src.stride[axis] == 1 && (problem->dst.data == NULL || problem->dst.stride[axis] == 1) &&
           (problem->saved.data == NULL || problem->saved.stride[axis] == 1) &&
           (problem->mask.data == NULL || problem->mask.stride[axis] == 1 || problem->shape[axis] <= 8);
}

/* Chunks are whole bytes of a mask, so that no two threads have one. */
static void run_elementwise(const copes_worker *worker, const void *argument)
{
    const act_job *job = argument;
    const copes_act_problem *problem = job->problem;
    const int axis = problem->mask.data != NULL ? problem->mask_axis : problem->rank - 1;
    const unsigned others = ((1u << problem->rank) - 1) & ~(1u << axis);
    const int64_t length = problem->shape[axis], chunks = (length + CHUNK - 1) / CHUNK;
    const copes_share share = copes_share_of(worker, product(problem->shape, problem->rank) / length * chunks);
    const bool compact = is_compact(problem, axis);
    for (int64_t task = share.begin; task < share.end; task++) {
        const int64_t begin = task % chunks * CHUNK, count = begin + CHUNK < length ? CHUNK : length - begin;
        place at = find_place(problem, task / chunks, others);
        at.src += begin * problem->src.stride[axis];
        at.saved = at.saved == NULL ? NULL : at.saved + begin * problem->saved.stride[axis];
        at.dst += begin * problem->dst.stride[axis];
        at.mask = at.mask == NULL ? NULL : at.mask + begin / 8 * problem->mask.stride[axis];
        if (compact)
            run_line(problem, &at, count, job->stream);
        else
            run_strided(problem, axis, at, count, worker->scratch);
    }
    finish_streaming();
}

/* Part of a row along the softmax's axis, as reals padded to whole pairs, and back. */
static void read_part(const storage *row, int64_t stride, int64_t begin, int64_t count, real *y, real fill,
                      int64_t ahead, storage *line)
{
    if (stride != 1)
        gather(row + begin * stride, stride, line, count);
    TEMPLATE(forward_reals)(COPES_ACT_NONE, stride == 1 ? row + begin : line, y, count, ahead);
    pad_row(y, count, fill);
}

static void write_part(storage *row, int64_t stride, int64_t begin, int64_t count, const real *y, bool stream,
                       storage *line)
{
    TEMPLATE(backward_reals)(COPES_ACT_NONE, y, NULL, stride == 1 ? row + begin : line, count, stream, 0);
    if (stride != 1)
        scatter(line, row + begin * stride, stride, count);
}

/* The largest element of a row of any length, and the sum of the terms relative to it. */
typedef struct row_sums {
    real most, sum;
} row_sums;

static row_sums sums_of_row(const copes_act_problem *problem, const place *at, act_memory *memory)
{
    real *y = memory->rows.y;
    const int64_t length = problem->shape[problem->axis], src = problem->src.stride[problem->axis];
    real most = -(real)INFINITY, sum = 0;
    for (int64_t begin = 0; begin < length; begin += ROW) {
        const int64_t count = begin + ROW < length ? ROW : length - begin;
        read_part(at->src, src, begin, count, y, -(real)INFINITY, NEXT, memory->rows.line);
        const real part = row_max(y, whole_pairs(count)), next = part > most || part != part ? part : most;
        const real shrink = sum == 0 ? 0 : vexp_term(vset(most - next))[0];
        sum = sum * shrink + row_exp(FOR_LSE, y, whole_pairs(count), next);
        most = next;
    }
    return (row_sums){most, sum};
}

/* The row's softmax. `lse`: sums.most is a log sum exp that the caller gave, and may be anything; the sum is 1. */
static void write_softmax_row(const copes_act_problem *problem, const place *at, act_memory *memory, row_sums sums,
                              bool lse, bool stream)
{
    real *y = memory->rows.y;
    const int64_t length = problem->shape[problem->axis];
    const int64_t src = problem->src.stride[problem->axis], dst = problem->dst.stride[problem->axis];
    for (int64_t begin = 0; begin < length; begin += ROW) {
        const int64_t count = begin + ROW < length ? ROW : length - begin;
        read_part(at->src, src, begin, count, y, -(real)INFINITY, NEXT, memory->rows.line);
        if (lse) {
            row_exp_of_lse(y, whole_pairs(count), sums.most);
        } else {
            row_exp(FOR_STORAGE, y, whole_pairs(count), sums.most);
            row_scale(y, whole_pairs(count), 1 / sums.sum);
        }
        write_part(at->dst, dst, begin, count, y, stream, memory->rows.line);
    }
}

/* A row that is longer than the buffer: its parts are read again once the sum is known. */
static void softmax_row(const copes_act_problem *problem, const place *at, act_memory *memory, bool stream)
{
    write_softmax_row(problem, at, memory, sums_of_row(problem, at, memory), false, stream);
}

/* Of a row of any length its sum of y g, or from that its gradient. */
static real gradient_pass(const copes_act_problem *problem, const place *at, act_memory *memory, bool writes, real dot,
                          bool stream)
{
    real *y = memory->rows.y, *g = memory->rows.g;
    const int64_t length = problem->shape[problem->axis];
    const int64_t src = problem->src.stride[problem->axis], saved = problem->saved.stride[problem->axis];
    for (int64_t begin = 0; begin < length; begin += ROW) {
        const int64_t count = begin + ROW < length ? ROW : length - begin;
        read_part(at->src, src, begin, count, g, 0, NEXT, memory->rows.line);
        read_part(at->saved, saved, begin, count, y, 0, NEXT, memory->rows.line);
        if (writes) {
            row_gradient(y, g, whole_pairs(count), dot);
            write_part(at->dst, problem->dst.stride[problem->axis], begin, count, g, stream, memory->rows.line);
        } else {
            dot += row_dot(y, g, whole_pairs(count));
        }
    }
    return dot;
}

static void softmax_row_gradient(const copes_act_problem *problem, const place *at, act_memory *memory, bool stream)
{
    gradient_pass(problem, at, memory, true, gradient_pass(problem, at, memory, false, 0, false), stream);
}

/* One pass alone over a row. */
static void pass_of_row(const copes_act_problem *problem, const place *at, act_memory *memory, bool stream)
{
    const bool first = problem->passes == COPES_FIRST_PASS;
    if (problem->backward && first) {
        give_real(at->sums, gradient_pass(problem, at, memory, false, 0, false));
    } else if (problem->backward) {
        gradient_pass(problem, at, memory, true, take_real(at->sums), stream);
    } else if (first) {
        const row_sums sums = sums_of_row(problem, at, memory);
        give_real(at->sums, sums.most + (real)log((double)sums.sum));
    } else {
        write_softmax_row(problem, at, memory, (row_sums){take_real(at->sums), 1}, true, stream);
    }
}

static void run_row_passes(const copes_worker *worker, const void *argument)
{
    const act_job *job = argument;
    const copes_act_problem *problem = job->problem;
    const unsigned others = ((1u << problem->rank) - 1) & ~(1u << problem->axis);
    const copes_share share = copes_share_of(worker, product(problem->shape, problem->rank - 1));
    for (int64_t row = share.begin; row < share.end; row++) {
        const place at = find_place(problem, row, others);
        pass_of_row(problem, &at, worker->scratch, job->stream);
    }
    finish_streaming();
}

/* Does the softmax read and write its rows by registers alone? */
static bool is_short(const copes_act_problem *problem)
{
    return is_short_row(problem->shape[problem->axis]) && is_compact(problem, problem->axis);
}

/* Of `count` rows from `first` on, how many are neighbours along one dimension. */
static int64_t neighbouring_rows(const copes_act_problem *problem, int64_t first, int64_t count)
{
    const int64_t along = problem->axis > 0 ? problem->shape[problem->axis - 1] : 1, left = along - first % along;
    return left < count ? left : count;
}

/* That dimension of a tensor, from a row on. */
static row_block rows_from(const copes_act_problem *problem, const copes_view *view, const storage *row)
{
    return (row_block){(storage *)(uintptr_t)row, problem->axis > 0 ? view->stride[problem->axis - 1] : 0, NEXT};
}

/* Rows first .. first + count - 1, likewise. */
static void softmax_short_rows(const copes_act_problem *problem, int64_t first, int64_t count, bool stream)
{
    const int64_t length = problem->shape[problem->axis];
    const unsigned others = ((1u << problem->rank) - 1) & ~(1u << problem->axis);
    for (int64_t i = 0, rows; i < count; i += rows) {
        const place at = find_place(problem, first + i, others);
        const row_block src = rows_from(problem, &problem->src, at.src),
                        dst = rows_from(problem, &problem->dst, at.dst);
        rows = neighbouring_rows(problem, first + i, count - i);
        if (problem->backward)
            short_gradient_storage(length, rows, rows_from(problem, &problem->saved, at.saved), src, dst, stream);
        else
            short_storage(length, rows, src, dst, stream);
    }
}

/* Rows first .. first + count - 1, which the buffers hold: each is read once. */
static void softmax_rows(const copes_act_problem *problem, int64_t first, int64_t count, act_memory *memory,
                         bool stream)
{
    real *y = memory->rows.y, *g = memory->rows.g;
    storage *line = memory->rows.line;
    const int64_t length = problem->shape[problem->axis], stride = whole_pairs(length);
    const unsigned others = ((1u << problem->rank) - 1) & ~(1u << problem->axis);
    for (int64_t i = 0; i < count; i++) {
        const place at = find_place(problem, first + i, others);
        if (problem->backward) {
            read_part(at.src, problem->src.stride[problem->axis], 0, length, g + i * stride, 0, NEXT, line);
            read_part(at.saved, problem->saved.stride[problem->axis], 0, length, y + i * stride, 0, NEXT, line);
        } else {
            read_part(at.src, problem->src.stride[problem->axis], 0, length, y + i * stride, -(real)INFINITY, NEXT,
                      line);
        }
    }
    if (problem->backward)
        rows_gradient(y, g, count, stride);
    else
        rows_softmax(FOR_STORAGE, y, count, stride);
    for (int64_t i = 0; i < count; i++)
        write_part(find_place(problem, first + i, others).dst, problem->dst.stride[problem->axis], 0, length,
                   (problem->backward ? g : y) + i * stride, stream, line);
}

static void run_rows(const copes_worker *worker, const void *argument)
{
    const act_job *job = argument;
    const copes_act_problem *problem = job->problem;
    const unsigned others = ((1u << problem->rank) - 1) & ~(1u << problem->axis);
    const int64_t length = problem->shape[problem->axis], rows = product(problem->shape, problem->rank) / length;
    const int64_t together = whole_pairs(length) < TOGETHER ? TOGETHER / whole_pairs(length) : 1;
    const copes_share share = copes_share_of(worker, (rows + together - 1) / together);
    for (int64_t task = share.begin; task < share.end; task++) {
        const int64_t first = task * together, count = first + together < rows ? together : rows - first;
        const place at = find_place(problem, first, others);
        if (is_short(problem))
            softmax_short_rows(problem, first, count, job->stream);
        else if (length <= ROW)
            softmax_rows(problem, first, count, worker->scratch, job->stream);
        else if (problem->backward)
            softmax_row_gradient(problem, &at, worker->scratch, job->stream);
        else
            softmax_row(problem, &at, worker->scratch, job->stream);
    }
    finish_streaming();
}

/* Columns: a slab of up to COLUMNS neighbours along the innermost dimension, and all of the axis. */
typedef struct slab {
    const copes_act_problem *problem;
    place at;
    int64_t width, stride; /* columns, and the same in whole pairs */
    columns columns;
    real *x, *g;
    storage *line;
    bool direct, stream; /* direct: rows are whole pairs as they lie in memory */
} slab;

static column_rows read_block(const slab *s, const storage *base, const copes_view *view, int64_t first, int64_t count,
                              real fill, real *x)
{
    const copes_act_problem *problem = s->problem;
    const int64_t step = view->stride[problem->axis];
    if (s->direct)
        return (column_rows){base + first * step, step, TOKENS * step};
    for (int64_t i = 0; i < count; i++)
        read_part(base + (first + i) * step, view->stride[problem->rank - 1], 0, s->width, x + i * s->stride, fill,
                  TOKENS * step, s->line);
    return (column_rows){x, s->stride, 0};
}

/* The second pass: row i of a block. */
static void write_slab_row(const slab *s, column_rows x, column_rows y, int64_t first, int64_t i)
{
    const copes_act_problem *problem = s->problem;
    const copes_view *view = &problem->dst;
    const int64_t step = view->stride[problem->axis];
    storage *out = s->at.dst + (first + i) * step;
    if (s->direct && problem->backward) {
        columns_gradient_storage(&s->columns, (const storage *)y.data + i * y.stride,
                                 (const storage *)x.data + i * x.stride, x.ahead, out, TOKENS * step, s->stream);
    } else if (s->direct) {
        columns_apply_storage(&s->columns, (const storage *)x.data + i * x.stride, x.ahead, out, TOKENS * step,
                              s->stream);
    } else {
        real *row = (problem->backward ? s->g : s->x) + i * s->stride;
        if (problem->backward)
            columns_gradient(&s->columns, s->x + i * s->stride, row);
        else
            columns_apply(&s->columns, true, row, row, 0);
        write_part(out, view->stride[problem->rank - 1], 0, s->width, row, s->stream, s->line);
    }
}

/* What the caller gave of the columns, or gets. */
static void take_sums(slab *s)
{
    for (int64_t i = 0; i < s->width; i++) {
        const real sum = take_real(s->at.sums + i * s->problem->sums.stride[s->problem->rank - 1]);
        if (s->problem->backward)
            s->columns.dot[split_place(i)] = sum;
        else
            columns_fix(&s->columns, split_place(i), sum);
    }
}

static void give_sums(const slab *s)
{
    const columns *c = &s->columns;
    for (int64_t i = 0; i < s->width; i++)
        give_real(s->at.sums + i * s->problem->sums.stride[s->problem->rank - 1],
                  s->problem->backward ? c->dot[split_place(i)] : columns_lse(c, split_place(i)));
}

static void run_slab(slab *s)
{
    const copes_act_problem *problem = s->problem;
    const int64_t length = problem->shape[problem->axis];
    const int begin = problem->passes == COPES_SECOND_PASS, end = problem->passes == COPES_FIRST_PASS ? 1 : 2;
    if (begin == 1)
        take_sums(s);
    for (int pass = begin; pass < end; pass++) {
        for (int64_t first = 0; first < length; first += TOKENS) {
            const int64_t count = first + TOKENS < length ? TOKENS : length - first;
            column_rows x, y = {0};
            if (problem->backward) {
                x = read_block(s, s->at.src, &problem->src, first, count, 0, s->g);
                y = read_block(s, s->at.saved, &problem->saved, first, count, 0, s->x);
            } else {
                x = read_block(s, s->at.src, &problem->src, first, count, -(real)INFINITY, s->x);
            }
            if (pass == 0 && problem->backward)
                columns_add_product(&s->columns, !s->direct, y, x, count);
            else if (pass == 0)
                columns_add(&s->columns, !s->direct, x, count);
            for (int64_t i = 0; i < count && pass == 1; i++)
                write_slab_row(s, x, y, first, i);
        }
        if (pass == 0 && end == 1)
            give_sums(s);
        else if (pass == 0 && !problem->backward)
            columns_finish(&s->columns);
    }
}

static void run_columns(const copes_worker *worker, const void *argument)
{
    const act_job *job = argument;
    const copes_act_problem *problem = job->problem;
    act_memory *memory = worker->scratch;
    const int last = problem->rank - 1;
    const unsigned others = ((1u << last) - 1) & ~(1u << problem->axis);
    const int64_t length = problem->shape[last], slabs = (length + COLUMNS - 1) / COLUMNS;
    const int64_t tasks = product(problem->shape, problem->axis) *
                          product(problem->shape + problem->axis + 1, last - problem->axis - 1) * slabs;
    const bool compact = is_compact(problem, last);
    slab s = {.problem = problem,
              .x = memory->columns.x,
              .g = memory->columns.g,
              .line = memory->columns.line,
              .stream = job->stream};
    for (int64_t task = copes_next_task(worker); task < tasks; task = copes_next_task(worker)) {
        const int64_t begin = task % slabs * COLUMNS;
        s.width = begin + COLUMNS < length ? COLUMNS : length - begin;
        s.stride = whole_pairs(s.width);
        s.direct = compact && s.width % PAIR == 0;
        s.at = find_place(problem, task / slabs, others);
        s.at.src += begin * problem->src.stride[last];
        s.at.saved = s.at.saved == NULL ? NULL : s.at.saved + begin * problem->saved.stride[last];
        s.at.dst = s.at.dst == NULL ? NULL : s.at.dst + begin * problem->dst.stride[last];
        s.at.sums = s.at.sums == NULL ? NULL : s.at.sums + begin * problem->sums.stride[last];
        s.columns = columns_open(s.stride,
                                 problem->backward                     ? FOR_GRADIENT
                                 : problem->passes == COPES_FIRST_PASS ? FOR_LSE
                                                                       : FOR_STORAGE,
                                 memory->columns.columns);
        run_slab(&s);
    }
    finish_streaming();
}

void TEMPLATE(act)(const copes_act_problem *problem, const copes_cpu_run *run)
{
    const int tensors = problem->saved.data == NULL ? 2 : 3;
    const double bytes = (double)product(problem->shape, problem->rank) * tensors * (double)sizeof(storage);
    const act_job job = {problem, bytes > (double)run->cache};
    if (problem->axis < 0)
        copes_team_run(run, run_elementwise, &job);
    else if (problem->axis == problem->rank - 1 && problem->passes != COPES_BOTH_PASSES)
        copes_team_run(run, run_row_passes, &job);
    else if (problem->axis == problem->rank - 1)
        copes_team_run(run, run_rows, &job);
    else
        copes_team_run(run, run_columns, &job);
}
