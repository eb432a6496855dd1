/* What RMSNorm multiplies rows by, and its gradient, of rows of reals in the order of a row_layout, whose padding is 0. Sums are
 * compensated, and what is made of them once a norm is of doubles, so that r is off by no more than its rounding. */
#ifndef COPES_BACKENDS_OPENMP_NORM_H
#define COPES_BACKENDS_OPENMP_NORM_H

#include "backends/openmp/encode.h"
#include "backends/openmp/softmax.h"
#include "common/half.h"

static inline real weight_at(const copes_qk_side *side, int64_t row, int64_t feature)
{
    const copes_view *view = &side->weight;
    const int64_t at = row * view->stride[0] + feature * view->stride[1];
    const char *address = (const char *)view->data + at * copes_dtype_size(side->weight_dtype);
    if (side->weight_dtype != COPES_F64)
        return (real)copes_load_narrow(side->weight_dtype, address);
    double weight;
    memcpy(&weight, address, sizeof weight);
    return (real)weight;
}

static inline void read_weights(const copes_qk_side *side, const row_layout *layout, int64_t row, real *to)
{
    if (side->weight_dtype == side->rotate.dtype && side->weight.stride[1] == 1) {
        read_row(layout, COPES_ACT_NONE, (const storage *)side->weight.data + row * side->weight.stride[0], to, 0, 0);
        return;
    }
    for (int part = 0; part < layout->parts; part++) {
        const int64_t begin = layout->begin[part], count = layout->begin[part + 1] - begin;
        for (int64_t i = 0; i < count; i++)
            to[layout->at[part] + split_place(i)] = weight_at(side, row, begin + i);
        pad_row(to + layout->at[part], count, 0);
    }
}

/* All rows of a side's weights plus their offset. */
static inline void make_weights(const copes_qk_side *side, double offset, const row_layout *layout, real *to)
{
    const int64_t stride = layout_stride(layout);
    for (int64_t row = 0; row < side->weight_rows; row++, to += stride) {
        read_weights(side, layout, row, to);
        for (int64_t i = 0; i < stride; i += LANES)
            store_real(to + i, load_real(to + i) + (real)offset);
    }
}

/* The sum of a row's squares. */
static inline double row_squares(const storage *x, int64_t count, int64_t ahead)
{
    vreal sum = vset(0), carry = vset(0);
    for (int64_t begin = 0; begin < count; begin += ROW_SUM_BLOCK) {
        const int64_t end = begin + ROW_SUM_BLOCK < count ? begin + ROW_SUM_BLOCK : count;
        vreal low = vset(0), high = vset(0);
        for (int64_t i = begin; i < end; i += PAIR) {
            prefetch(x, i, ahead);
            const vpair v = i + PAIR <= end ? load_split(x + i) : load_from(false, x, i, end - i);
            low = vfma(v.low, v.low, low);
            high = vfma(v.high, v.high, high);
        }
        vsum_add(&sum, &carry, low + high);
    }
    return (double)sum_lanes(sum);
}

/* (mean(x^2) + eps)^-1/2 of each of `count` rows, or of all as one. */
static NOINLINE void find_inverse_roots(row_block x, int64_t count, int64_t d, bool as_one, double eps, real *inverse)
{
    const int64_t group = as_one ? count : 1;
    for (int64_t begin = 0; begin < count; begin += group) {
        double sum = 0;
        for (int64_t row = begin; row < begin + group; row++)
            sum += row_squares((const storage *)x.data + row * x.stride, d, x.ahead);
        inverse[begin / group] = (real)(1 / sqrt(sum / ((double)group * (double)d) + eps));
    }
}

/* With x' = x r and g' = g w: x becomes x', g becomes g', and the sums of weights, where there are any, take g x'. Returns the
 * sum of g' x'. */
static inline real scale_row(const real *weight, real r, real *x, real *g, int64_t count, double *sums)
{
    row_scale(x, count, r);
    for (int64_t i = 0; i < count && sums != NULL; i++)
        sums[i] += (double)g[i] * (double)x[i];
    for (int64_t i = 0; i < count; i += LANES)
        store_real(g + i, load_real(g + i) * load_real(weight + i));
    return row_dot(g, x, count);
}

/* Turns the gradient g of the norm of `count` rows x, d features each in `stride` places, into x's, and x into x r. `sums`: of the
 * first row's weights, or NULL. */
static NOINLINE void norm_gradient(const row_norm *norm, real *x, real *g, int64_t count, int64_t d, int64_t stride,
                                   double *sums)
{
    const int64_t group = norm->inverse_stride == 0 ? count : 1;
    for (int64_t begin = 0; begin < count; begin += group) {
        const real r = norm->inverse[begin * norm->inverse_stride];
        double dot = 0;
        for (int64_t row = begin; row < begin + group; row++)
            dot += (double)scale_row(norm->weight + row * norm->weight_stride, r, x + row * stride, g + row * stride,
                                     stride, sums == NULL ? NULL : sums + row * norm->weight_stride);
        const vreal mean = vset((real)(dot / ((double)group * (double)d)));
        for (int64_t i = begin * stride; i < (begin + group) * stride; i += LANES)
            store_real(g + i, r * (load_real(g + i) - load_real(x + i) * mean));
    }
}

#endif
