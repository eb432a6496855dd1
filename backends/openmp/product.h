/* Small products of matrices whose columns are the lanes of vectors: C = A B, with B and C in rows of `stride` reals,
 * whole vectors, and A read a scalar at a time. A block of C stays in registers over many steps, so that a step costs
 * fewer loads than multiply-adds. */
#ifndef COPES_BACKENDS_OPENMP_PRODUCT_H
#define COPES_BACKENDS_OPENMP_PRODUCT_H

#include "backends/openmp/simd.h"

/* Rows of C in registers, two vectors each: as many as leave some for B and A. */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { PRODUCT_ROWS = 12 };
#else
enum { PRODUCT_ROWS = 6 };
#endif

/* Steps summed in registers before they join C: errors grow with their number. */
enum { PRODUCT_ROW_STEPS = 32, PRODUCT_COLUMN_STEPS = 48 };

/* Memory that the step after a product reads: it is called for meanwhile, evenly. */
typedef struct ahead {
    const char *data;
    int64_t bytes;
} ahead;

typedef struct product {
    real *c;
    const real *a; /* the scalar of row i and step k is a[i a_row + k a_step] */
    int64_t a_row, a_step;
    const real *b;
    int64_t rows, steps, stride, group;
    const real *shrink; /* one a column: C = C shrink + A B; or NULL */
    ahead next;
} product;

/* A block's share of `steps` steps, added to C times shrink where `add` says so. */
static ALWAYS_INLINE void product_block(const product *p, int rows, int vectors, const real *a, const real *b, real *c,
                                        int64_t steps, bool add, const real *shrink)
{
    const int64_t a_row = p->a_row, a_step = p->a_step, stride = p->stride;
    vreal sum[PRODUCT_ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            sum[i][j] = vset(0);
    for (int64_t k = 0; k < steps; k++, a += a_step, b += stride) {
        const vreal first = load_real(b), second = vectors == 2 ? load_real(b + LANES) : first;
        for (int i = 0; i < rows; i++) {
            const vreal x = vset(a[i * a_row]);
            sum[i][0] = vfma(x, first, sum[i][0]);
            if (vectors == 2)
                sum[i][1] = vfma(x, second, sum[i][1]);
        }
    }
    for (int j = 0; j < vectors; j++) {
        const vreal factor = shrink != NULL ? load_real(shrink + j * LANES) : vset(1);
        for (int i = 0; i < rows; i++) {
            real *to = c + i * stride + j * LANES;
            store_real(to, add ? vfma(load_real(to), factor, sum[i][j]) : sum[i][j]);
        }
    }
}

/* A block over all steps, a few at a time, so that rounding errors do not grow with their number. */
static ALWAYS_INLINE void product_steps(const product *p, int rows, int vectors, int64_t row, int64_t column)
{
    const real *a = p->a + row * p->a_row, *b = p->b + column;
    real *c = p->c + row * p->stride + column;
    for (int64_t k = 0; k < p->steps; k += p->group) {
        const int64_t steps = p->steps - k < p->group ? p->steps - k : p->group;
        const bool first = k == 0;
        product_block(p, rows, vectors, a + k * p->a_step, b + k * p->stride, c, steps, !first || p->shrink != NULL,
                      first && p->shrink != NULL ? p->shrink + column : NULL);
    }
}

static ALWAYS_INLINE void product_band(const product *p, int rows, int64_t row)
{
    int64_t column = 0;
    for (; column + 2 * LANES <= p->stride; column += 2 * LANES)
        product_steps(p, rows, 2, row, column);
    if (column < p->stride)
        product_steps(p, rows, 1, row, column);
}

static ALWAYS_INLINE void call_ahead(const product *p, int64_t row)
{
    enum { LINE = 64 };
    const int64_t begin = p->next.bytes * row / p->rows, end = p->next.bytes * (row + PRODUCT_ROWS) / p->rows;
    for (int64_t i = begin / LINE * LINE; i < end && i < p->next.bytes; i += LINE)
        __builtin_prefetch(p->next.data + i);
}

static ALWAYS_INLINE void product_all(product p)
{
    int64_t row = 0;
    for (; row + PRODUCT_ROWS <= p.rows; row += PRODUCT_ROWS) {
        call_ahead(&p, row);
        product_band(&p, PRODUCT_ROWS, row);
    }
    for (; row + 4 <= p.rows; row += 4)
        product_band(&p, 4, row);
    for (; row + 2 <= p.rows; row += 2)
        product_band(&p, 2, row);
    if (row < p.rows)
        product_band(&p, 1, row);
}

/* C = A B, the rows of A `a_row` apart. */
static NOINLINE void product_rows(real *c, const real *a, int64_t a_row, const real *b, int64_t rows, int64_t steps,
                                  int64_t stride, ahead next)
{
    product_all((product){c, a, a_row, 1, b, rows, steps, stride, PRODUCT_ROW_STEPS, NULL, next});
}

/* C = C shrink + A^T B, the rows of A `a_step` apart. */
static NOINLINE void product_columns(real *c, const real *a, int64_t a_step, const real *b, int64_t rows, int64_t steps,
                                     int64_t stride, const real *shrink, ahead next)
{
    product_all((product){c, a, 1, a_step, b, rows, steps, stride, PRODUCT_COLUMN_STEPS, shrink, next});
}

#endif
