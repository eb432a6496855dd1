/* What act's walks share: where the tensors' elements lie, and parts of a softmax's rows on their way. */
#ifndef COPES_BACKENDS_OPENMP_ACT_PLACE_H
#define COPES_BACKENDS_OPENMP_ACT_PLACE_H

#include "backends/openmp/rows.h"
#include "backends/openmp/template.h"

/* A call, as its threads see it. */
typedef struct act_job {
    const copes_act_problem *problem;
    const copes_cpu_run *run;
    bool stream; /* store past the caches */
} act_job;

/* Addresses of the tensors at one position of all dimensions but the innermost ones. */
typedef struct act_place {
    const storage *src, *saved;
    storage *dst;
    real *sums; /* of one pass alone */
    uint8_t *mask;
} act_place;

static inline int64_t product(const int64_t *lengths, int count)
{
    int64_t all = 1;
    for (int i = 0; i < count; i++)
        all *= lengths[i];
    return all;
}

/* The place that index `at` names, counted over the dimensions in `mask`, the last one fastest. */
static inline act_place find_place(const copes_act_problem *problem, int64_t at, unsigned mask)
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
    return (act_place){(const storage *)problem->src.data + src,
                       problem->saved.data == NULL ? NULL : (const storage *)problem->saved.data + saved,
                       problem->dst.data == NULL ? NULL : (storage *)problem->dst.data + dst,
                       problem->sums.data == NULL ? NULL : (real *)problem->sums.data + sums,
                       problem->mask.data == NULL ? NULL : (uint8_t *)problem->mask.data + bytes};
}

/* Are neighbours along `axis` neighbours in memory? */
static inline bool is_compact(const copes_act_problem *problem, int axis)
{
    return problem->src.stride[axis] == 1 && (problem->dst.data == NULL || problem->dst.stride[axis] == 1) &&
           (problem->saved.data == NULL || problem->saved.stride[axis] == 1) &&
           (problem->mask.data == NULL || problem->mask.stride[axis] == 1 || problem->shape[axis] <= 8);
}

/* Part of a row along the softmax's axis, as reals padded to whole pairs, and back. */
static inline void read_part(const storage *row, int64_t stride, int64_t begin, int64_t count, real *y, real fill,
                             int64_t ahead, storage *line)
{
    if (stride != 1)
        gather(row + begin * stride, stride, line, count);
    TEMPLATE(forward_reals)(COPES_ACT_NONE, stride == 1 ? row + begin : line, y, count, ahead);
    pad_row(y, count, fill);
}

static inline void write_part(storage *row, int64_t stride, int64_t begin, int64_t count, const real *y, bool stream,
                              storage *line)
{
    TEMPLATE(backward_reals)(COPES_ACT_NONE, y, NULL, stride == 1 ? row + begin : line, count, stream, 0);
    if (stride != 1)
        scatter(line, row + begin * stride, stride, count);
}

/* act_rows_tmpl.c and act_columns_tmpl.c: softmax over the innermost axis, and over another. */
void TEMPLATE(act_rows)(const act_job *job);
void TEMPLATE(act_columns)(const act_job *job);

#endif
