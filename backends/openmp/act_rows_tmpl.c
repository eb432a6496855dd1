/* Softmax over rows: its elements are neighbours. Bound by the exponential; a row that registers or a buffer hold is read once. */
#include "backends/openmp/act_place.h"
#include "backends/openmp/columns.h"
#include "backends/openmp/short_rows.h"

enum { ROW = 4096, TOGETHER = 1024 };

/* What a thread works in. `line` is a compact copy of strided elements. */
typedef struct rows_memory {
    real y[ROW], g[ROW];
    storage line[ROW];
} rows_memory;

_Static_assert(sizeof(rows_memory) <= SCRATCH_BYTES, "a thread's scratch memory takes it");

/* The largest element of a row of any length, and the sum of the terms relative to it. */
typedef struct row_sums {
    real most, sum;
} row_sums;

static row_sums sums_of_row(const copes_act_problem *problem, const act_place *at, rows_memory *memory)
{
    real *y = memory->y;
    const int64_t length = problem->shape[problem->axis], src = problem->src.stride[problem->axis];
    real most = -(real)INFINITY, sum = 0;
    for (int64_t begin = 0; begin < length; begin += ROW) {
        const int64_t count = begin + ROW < length ? ROW : length - begin;
        read_part(at->src, src, begin, count, y, -(real)INFINITY, NEXT, memory->line);
        const real part = row_max(y, whole_pairs(count)), next = part > most || part != part ? part : most;
        const real shrink = sum == 0 ? 0 : vexp_term(vset(most - next))[0];
        sum = sum * shrink + row_exp(FOR_LSE, y, whole_pairs(count), next);
        most = next;
    }
    return (row_sums){most, sum};
}

/* The row's softmax. `lse`: sums.most is a log sum exp that the caller gave, and may be anything; the sum is 1. */
static void write_softmax_row(const copes_act_problem *problem, const act_place *at, rows_memory *memory, row_sums sums,
                              bool lse, bool stream)
{
    real *y = memory->y;
    const int64_t length = problem->shape[problem->axis];
    const int64_t src = problem->src.stride[problem->axis], dst = problem->dst.stride[problem->axis];
    for (int64_t begin = 0; begin < length; begin += ROW) {
        const int64_t count = begin + ROW < length ? ROW : length - begin;
        read_part(at->src, src, begin, count, y, -(real)INFINITY, NEXT, memory->line);
        if (lse) {
            row_exp_of_lse(y, whole_pairs(count), sums.most);
        } else {
            row_exp(FOR_STORAGE, y, whole_pairs(count), sums.most);
            row_scale(y, whole_pairs(count), 1 / sums.sum);
        }
        write_part(at->dst, dst, begin, count, y, stream, memory->line);
    }
}

/* A row that is longer than the buffer: its parts are read again once the sum is known. */
static void softmax_row(const copes_act_problem *problem, const act_place *at, rows_memory *memory, bool stream)
{
    write_softmax_row(problem, at, memory, sums_of_row(problem, at, memory), false, stream);
}

/* Of a row of any length its sum of y g, or from that its gradient. */
static real gradient_pass(const copes_act_problem *problem, const act_place *at, rows_memory *memory, bool writes,
                          real dot, bool stream)
{
    real *y = memory->y, *g = memory->g;
    const int64_t length = problem->shape[problem->axis];
    const int64_t src = problem->src.stride[problem->axis], saved = problem->saved.stride[problem->axis];
    for (int64_t begin = 0; begin < length; begin += ROW) {
        const int64_t count = begin + ROW < length ? ROW : length - begin;
        read_part(at->src, src, begin, count, g, 0, NEXT, memory->line);
        read_part(at->saved, saved, begin, count, y, 0, NEXT, memory->line);
        if (writes) {
            row_gradient(y, g, whole_pairs(count), dot);
            write_part(at->dst, problem->dst.stride[problem->axis], begin, count, g, stream, memory->line);
        } else {
            dot += row_dot(y, g, whole_pairs(count));
        }
    }
    return dot;
}

static void softmax_row_gradient(const copes_act_problem *problem, const act_place *at, rows_memory *memory,
                                 bool stream)
{
    gradient_pass(problem, at, memory, true, gradient_pass(problem, at, memory, false, 0, false), stream);
}

/* One pass alone over a row. */
static void pass_of_row(const copes_act_problem *problem, const act_place *at, rows_memory *memory, bool stream)
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
        const act_place at = find_place(problem, row, others);
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
        const act_place at = find_place(problem, first + i, others);
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
static void softmax_rows(const copes_act_problem *problem, int64_t first, int64_t count, rows_memory *memory,
                         bool stream)
{
    real *y = memory->y, *g = memory->g;
    storage *line = memory->line;
    const int64_t length = problem->shape[problem->axis], stride = whole_pairs(length);
    const unsigned others = ((1u << problem->rank) - 1) & ~(1u << problem->axis);
    for (int64_t i = 0; i < count; i++) {
        const act_place at = find_place(problem, first + i, others);
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
        const act_place at = find_place(problem, first, others);
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

void TEMPLATE(act_rows)(const act_job *job)
{
    copes_team_run(job->run, job->problem->passes != COPES_BOTH_PASSES ? run_row_passes : run_rows, job);
}
