/* The gradient of a norm's weights: sums over tokens, of doubles. They are made in chunks of the tokens that hang on the problem
 * alone, and are added in one order, so that their bits do not depend on the threads. */
#ifndef COPES_BACKENDS_OPENMP_WEIGHT_GRADIENT_H
#define COPES_BACKENDS_OPENMP_WEIGHT_GRADIENT_H

#include "backends/openmp/encode.h"

/* Sums (chunks, rows, stride), a row in the order of a row_layout. */
typedef struct weight_sums {
    double *at;
    int64_t chunks, rows, stride; /* no rows: nobody asks for them */
} weight_sums;

/* Without memory yet. */
static inline weight_sums weight_sums_of(const copes_qk_side *side, int64_t chunks)
{
    const row_layout layout = layout_of(&side->rotate);
    return (weight_sums){NULL, chunks, side->grad_weight.data != NULL ? side->weight_rows : 0, layout_stride(&layout)};
}

static inline int64_t weight_sums_bytes(const weight_sums *sums)
{
    return copes_multiply(copes_multiply(copes_multiply(sums->chunks, sums->rows), sums->stride), sizeof(double));
}

/* The sums of a chunk and of the row that a head has; NULL where nobody asks for them. */
static inline double *weight_sums_at(const weight_sums *sums, int64_t chunk, int64_t head)
{
    return sums->rows == 0 ? NULL : sums->at + (chunk * sums->rows + (sums->rows == 1 ? 0 : head)) * sums->stride;
}

static inline void weight_sums_clear(const weight_sums *sums, int64_t chunk)
{
    if (sums->rows > 0)
        memset(weight_sums_at(sums, chunk, 0), 0, (size_t)(sums->rows * sums->stride) * sizeof(double));
}

/* Adds everything up. */
static void weight_sums_finish(const weight_sums *sums, const copes_qk_side *side)
{
    const row_layout layout = layout_of(&side->rotate);
    const copes_view *view = &side->grad_weight;
    for (int64_t row = 0; row < sums->rows; row++)
        for (int64_t feature = 0; feature < side->rotate.d; feature++) {
            double sum = 0;
            for (int64_t chunk = 0; chunk < sums->chunks; chunk++)
                sum += weight_sums_at(sums, chunk, row)[layout_place(&layout, feature)];
            const real rounded = (real)sum;
            memcpy((void *)((real *)view->data + row * view->stride[0] + feature * view->stride[1]), &rounded,
                   sizeof rounded); /* of any alignment */
        }
}

#endif
