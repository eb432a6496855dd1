/* RMSNorm of rows of reals in cache, and its gradient, in the order of a row_layout, whose padding is 0. Sums are compensated, and
 * what is made of them once a norm is of doubles, so that r is off by no more than its rounding. */
#ifndef COPES_BACKENDS_OPENMP_NORM_H
#define COPES_BACKENDS_OPENMP_NORM_H

#include "backends/openmp/encode.h"
#include "backends/openmp/softmax.h"

/* How rows of one tensor are normed. */
typedef struct norm {
    bool over_rows;     /* one mean over all rows of a block, which are a token's heads; else each row has its own */
    bool round_between; /* to storage and back */
    int64_t d, stride;
    double eps;
    const real *weight; /* the first row's, offset and all */
    int64_t weight_stride;
} norm;

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

/* (mean(x^2) + eps)^-1/2 of `rows` rows. */
static inline real inverse_root(const norm *n, const real *x, int64_t rows)
{
    double sum = 0;
    for (int64_t row = 0; row < rows; row++)
        sum += (double)row_dot(x + row * n->stride, x + row * n->stride, n->stride);
    return (real)(1 / sqrt(sum / ((double)rows * (double)n->d) + n->eps));
}

static ALWAYS_INLINE vpair round_pair(vpair v)
{
    storage part[PAIR];
    store_split(part, v, false);
    return load_split(part);
}

static ALWAYS_INLINE void norm_row(bool round_between, const real *weight, real r, real *x, int64_t count)
{
    for (int64_t i = 0; i < count; i += PAIR) {
        const vpair w = load_real_pair(weight + i), v = load_real_pair(x + i);
        const vpair y = {v.low * r * w.low, v.high * r * w.high};
        store_real_pair(x + i, round_between ? round_pair(y) : y);
    }
}

/* Norms a block of rows in place. */
static NOINLINE void norm_rows(const norm *n, real *x, int64_t count)
{
    const real all = n->over_rows ? inverse_root(n, x, count) : 0;
    const real *weight = n->weight;
    for (int64_t row = 0; row < count; row++, x += n->stride, weight += n->weight_stride) {
        const real r = n->over_rows ? all : inverse_root(n, x, 1);
        if (n->round_between)
            norm_row(true, weight, r, x, n->stride);
        else
            norm_row(false, weight, r, x, n->stride);
    }
}

/* With x' = x r and g' = g w: x becomes x', g becomes g', and the sums of weights, where there are any, take g x'. Returns the
 * sum of g' x'. */
static inline real scale_row(const real *weight, real r, real *x, real *g, int64_t count, double *sums)
{
    for (int64_t i = 0; i < count; i += LANES)
        store_real(x + i, load_real(x + i) * r);
    for (int64_t i = 0; i < count && sums != NULL; i++)
        sums[i] += (double)g[i] * (double)x[i];
    for (int64_t i = 0; i < count; i += LANES)
        store_real(g + i, load_real(g + i) * load_real(weight + i));
    return row_dot(g, x, count);
}

/* Turns the gradient g of the norm of a block of rows x into x's, and x into x r. `sums`: of the first row's weights, or NULL. */
static NOINLINE void norm_gradient(const norm *n, real *x, real *g, int64_t count, double *sums)
{
    const int64_t group = n->over_rows ? count : 1;
    for (int64_t begin = 0; begin < count; begin += group) {
        const real r = inverse_root(n, x + begin * n->stride, group);
        double dot = 0;
        for (int64_t row = begin; row < begin + group; row++)
            dot += (double)scale_row(n->weight + row * n->weight_stride, r, x + row * n->stride, g + row * n->stride,
                                     n->stride, sums == NULL ? NULL : sums + row * n->weight_stride);
        const vreal mean = vset((real)(dot / ((double)group * (double)n->d)));
        for (int64_t i = begin * n->stride; i < (begin + group) * n->stride; i += LANES)
            store_real(g + i, r * (load_real(g + i) - load_real(x + i) * mean));
    }
}

#endif
