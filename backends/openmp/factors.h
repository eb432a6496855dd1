/* The factors of a tensor product on their way from memory to tiles of reals in cache: features in rows, and the
 * coefficients of heads in the lanes of vectors. */
#ifndef COPES_BACKENDS_OPENMP_FACTORS_H
#define COPES_BACKENDS_OPENMP_FACTORS_H

#include "backends/openmp/product.h"
#include "common/problem.h"

/* Where feature i of `count` stands in a row of reals: whole pairs of vectors are in the order of load_split. */
static inline int64_t feature_place(int64_t i, int64_t count)
{
    return i < count - count % (2 * LANES) ? split_place(i) : i;
}

static NOINLINE void read_features(const storage *x, int64_t stride, int64_t count, real *row)
{
    int64_t i = 0;
    for (; stride == 1 && i + 2 * LANES <= count; i += 2 * LANES)
        store_real_pair(row + i, load_split(x + i));
    for (; i < count; i++)
        row[feature_place(i, count)] = load_scalar(x + i * stride);
}

/* Rows of reals, `stride` apart. */
typedef struct feature_rows {
    const real *data;
    int64_t stride;
} feature_rows;

/* Features of `tokens` tokens from token `at` of batch entry b: (tokens rank) rows of `width`, in `copy` unless memory
 * has them as rows of aligned reals already. */
static inline feature_rows read_rows(const copes_view *view, int64_t b, int64_t at, int64_t tokens, int64_t rank,
                                     int64_t width, real *copy)
{
    const storage *first = (const storage *)view->data + b * view->stride[0] + at * view->stride[1];
#if defined(COPES_TYPE_F32) || defined(COPES_TYPE_F64)
    const bool regular = rank == 1 || tokens == 1 || view->stride[1] == rank * view->stride[2];
    if (regular && (view->stride[3] == 1 || width == 1) && (uintptr_t)first % sizeof(real) == 0)
        return (feature_rows){first, rank == 1 ? view->stride[1] : view->stride[2]};
#endif
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t r = 0; r < rank; r++)
            read_features(first + i * view->stride[1] + r * view->stride[2], view->stride[3], width,
                          copy + (i * rank + r) * width);
    return (feature_rows){copy, width};
}

/* The memory that read_rows will read, where it is one piece. */
static inline ahead rows_ahead(const copes_view *view, int64_t b, int64_t at, int64_t tokens, int64_t rank,
                               int64_t width)
{
    const storage *first = (const storage *)view->data + b * view->stride[0] + at * view->stride[1];
    const bool whole = tokens > 0 && view->stride[1] == rank * width && view->stride[3] == 1;
    return (ahead){(const char *)first, whole ? tokens * rank * width * (int64_t)sizeof(storage) : 0};
}

/* Coefficients of `heads` heads from `first` on, a row of `stride` reals for each rank, zeros where a row goes on. */
static inline void read_coefficients(const copes_view *view, int64_t rank, int64_t heads, const storage *first,
                                     int64_t stride, real *rows)
{
    const int64_t head_step = view->stride[2], rank_step = view->stride[3];
    int64_t h = 0;
    if (rank == 1 && head_step == 1) {
        for (; h + LANES <= heads; h += LANES)
            store_real(rows + h, load_vector(first + h));
    } else if (rank == 2 && head_step == 2 && rank_step == 1) {
        for (; h + LANES <= heads; h += LANES) {
            const vpair both = evens_and_odds(load_split(first + 2 * h));
            store_real(rows + h, both.low);
            store_real(rows + stride + h, both.high);
        }
    }
    for (; h < stride; h++)
        for (int64_t r = 0; r < rank; r++)
            rows[r * stride + h] = h < heads ? load_scalar(first + h * head_step + r * rank_step) : 0;
}

#endif
