/* Whether a call stores past the caches. It does where it moves more than they hold, and only whole lines: one of which a part is stored
 * past the caches and a part is not takes as long as ten lines. So what is stored by itself must begin and end with lines. */
#ifndef COPES_BACKENDS_OPENMP_STREAMING_H
#define COPES_BACKENDS_OPENMP_STREAMING_H

#include "backends/openmp/simd.h"
#include "backends/openmp/team.h"
#include "common/problem.h"

enum { LINE_BYTES = 64 };

/* Are so many elements whole lines? */
static inline bool are_lines(int64_t elements)
{
    return elements * (int64_t)sizeof(storage) % LINE_BYTES == 0;
}

/* Are all rows of a tensor, along its last dimension, at the same place of a line? `lengths` are of its `rank` dimensions. */
static inline bool rows_are_by_lines(const copes_view *view, const int64_t *lengths, int rank)
{
    bool by_lines = lengths[rank - 1] == 1 || view->stride[rank - 1] == 1;
    for (int i = 0; i < rank - 1; i++)
        by_lines = by_lines && (lengths[i] == 1 || are_lines(view->stride[i]));
    return by_lines;
}

/* Of act, whose rows are along the last dimension. One row alone has no neighbour. */
static inline bool act_streams(const copes_act_problem *problem, const copes_cpu_run *run, double bytes)
{
    const int last = problem->rank - 1;
    const bool whole = last <= 0 || (are_lines(problem->shape[last]) &&
                                     rows_are_by_lines(&problem->dst, problem->shape, problem->rank));
    return bytes > (double)run->cache && whole;
}

/* Do a rotation's pieces begin and end with lines: the features before it, its halves or its pairs, and those behind? A cosine has all
 * features twice. */
static inline bool lrpe_stores_lines(const copes_lrpe_problem *problem)
{
    const int64_t lengths[] = {problem->b, problem->n, problem->h, problem->d};
    const bool turns = problem->variant == COPES_LRPE_ROTATE && problem->k > 0;
    const int64_t piece = problem->pairing == COPES_LRPE_HALF ? problem->k : 2 * problem->k;
    return are_lines(problem->d) && (!turns || (are_lines(problem->begin) && are_lines(piece))) &&
           rows_are_by_lines(&problem->dst, lengths, 4);
}

static inline bool lrpe_streams(const copes_lrpe_problem *problem, const copes_cpu_run *run)
{
    return copes_lrpe_bytes(problem) > (double)run->cache && lrpe_stores_lines(problem);
}

#endif
