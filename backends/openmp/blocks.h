/* Blocks of rows that a thread goes through with one set of angles: the heads of a token or the tokens of a head. */
#ifndef COPES_BACKENDS_OPENMP_BLOCKS_H
#define COPES_BACKENDS_OPENMP_BLOCKS_H

#include "backends/openmp/encode.h"

/* Rows of a block, if there are so many: as many as keep in L1; at least one. */
static inline int64_t most_rows(const copes_lrpe_problem *problem, int64_t rows)
{
    enum { FEATURES = 2048 };
    const int64_t most = FEATURES / (problem->d > 0 ? problem->d : 1);
    const int64_t fitting = most < rows ? most : rows;
    return fitting < 1 ? 1 : fitting;
}

/* A batch entry, token and head: the first of a block, or the way to the block that a thread comes to next. */
typedef struct block_place {
    int64_t b, n, h;
} block_place;

static inline int64_t view_at(const copes_view *view, block_place at)
{
    return at.b * view->stride[0] + at.n * view->stride[1] + at.h * view->stride[2];
}

/* A block's rows along an axis of a tensor, or a compact copy of them where features are strided. `ahead` is the way to
 * the block that comes next. */
static inline row_block take_rows(const copes_view *view, int axis, int64_t at, int64_t count, int64_t width,
                                  storage *copy, bool fill, int64_t ahead)
{
    const storage *first = (const storage *)view->data + at;
    if (view->stride[3] == 1)
        return (row_block){(storage *)view->data + at, view->stride[axis], ahead};
    for (int64_t i = 0; i < count && fill; i++)
        gather(first + i * view->stride[axis], view->stride[3], copy + i * width, width);
    return (row_block){copy, width, 0};
}

static inline void give_rows(const copes_view *view, int axis, int64_t at, int64_t count, int64_t width,
                             const storage *copy)
{
    for (int64_t i = 0; i < count && view->stride[3] != 1; i++)
        scatter(copy + i * width, (storage *)view->data + at + i * view->stride[axis], view->stride[3], width);
}

#endif
