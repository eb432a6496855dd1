/* Rows of features on their way between memory and cache: elements of storage, or the reals that one step of a kernel
 * leaves to the next. A row is walked in pairs of vectors, in the order that load_split gives; a row of reals keeps
 * that order (split_place) and is padded to whole pairs. What is left at a row's end takes the same arithmetic through
 * a buffer, so that an element's result does not depend on where in a row it stands. */
#ifndef COPES_BACKENDS_OPENMP_ROWS_H
#define COPES_BACKENDS_OPENMP_ROWS_H

#include "backends/openmp/activation.h"
#include "backends/openmp/simd_rest.h"
#include "backends/openmp/template.h"

/* Row lengths in cache are rounded up to whole pairs. */
static inline int64_t whole_pairs(int64_t count)
{
    return (count + PAIR - 1) / PAIR * PAIR;
}

/* Rows of features: elements of storage, or reals that an activation left or awaits. */
typedef struct row_block {
    void *data;
    int64_t stride;
    int64_t ahead; /* storage: elements from here to the block that is read or written next */
} row_block;

/* The n elements at a row's end, and `fill` behind them; levels without masks have zeros there. */
static ALWAYS_INLINE vpair load_rest(const storage *row, int64_t n, storage fill)
{
    storage part[PAIR];
    read_rest(part, row, n, fill);
    return load_split(part);
}

static ALWAYS_INLINE void store_rest(storage *row, int64_t n, vpair v)
{
    storage part[PAIR];
    store_split(part, v, false);
    write_rest(row, part, n);
}

/* Elements i .. i + n - 1 of a row; n is PAIR, or what is left of the row: zeros follow it then. */
static ALWAYS_INLINE vpair load_from(bool reals, const void *row, int64_t i, int64_t n)
{
    if (reals)
        return load_real_pair((const real *)row + i);
    return n == PAIR ? load_split((const storage *)row + i) : load_rest((const storage *)row + i, n, 0);
}

static ALWAYS_INLINE void store_to(bool reals, void *row, int64_t i, int64_t n, vpair v, bool stream)
{
    if (reals) {
        store_real_pair((real *)row + i, v);
    } else if (n == PAIR) {
        store_split((storage *)row + i, v, stream);
    } else {
        store_rest((storage *)row + i, n, v);
    }
}

/* Elements from `count` to the end of the last pair. */
static inline void pad_row(real *row, int64_t count, real fill)
{
    for (int64_t i = count; i % PAIR != 0; i++)
        row[split_place(i)] = fill;
}

/* Asks for what a walk will read `ahead` elements from here: arithmetic fills the window in which the processor would
 * find out by itself. The address may lie past the tensor; nothing is read there. It goes to the second cache: the first has places for
 * some twenty lines that are on their way, and several streams ask for more. */
static ALWAYS_INLINE void prefetch(const void *row, int64_t i, int64_t ahead)
{
    enum { SECOND = 2 };
    __builtin_prefetch((const void *)((uintptr_t)row + (uintptr_t)((i + ahead) * (int64_t)sizeof(storage))), 0, SECOND);
}

/* The same to the first cache, for a walk whose arithmetic takes longer than memory: it has few lines under way, and would wait for
 * what the second has. */
static ALWAYS_INLINE void prefetch_close(const void *row, int64_t i, int64_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)row + (uintptr_t)((i + ahead) * (int64_t)sizeof(storage))));
}

/* The same for what it will write. A store to a line that no cache has waits in the store buffer, which stops the walk once it is
 * full; processors see where one straight walk goes on, but not where a row's next block lies. Rows of full width lose by it: they
 * take longer to make than to store, and the loads would wait for twice the lines. */
static ALWAYS_INLINE void prefetch_for_store(const void *row, int64_t i, int64_t ahead, bool stream)
{
    if (!stream && !FULL_WIDTH)
        __builtin_prefetch((const void *)((uintptr_t)row + (uintptr_t)((i + ahead) * (int64_t)sizeof(storage))), 1);
}

enum { NEXT = 1024 / (int)sizeof(storage) }; /* elements ahead in a walk straight through memory */

/* rows_tmpl.c: o = act(x) and o = the gradient of act at x, times g, for one activation a loop; none and softmax pass x or g on.
 * Rows of reals ask for x + ahead meanwhile. y is act(x), of relu or sigmoid. */
void TEMPLATE(forward_storage)(copes_act act, const storage *x, storage *o, int64_t count, bool stream);
void TEMPLATE(forward_reals)(copes_act act, const storage *x, real *y, int64_t count, int64_t ahead);
void TEMPLATE(backward_storage)(copes_act act, const storage *g, const storage *x, storage *o, int64_t count,
                                bool stream);
void TEMPLATE(backward_of_output)(copes_act act, const storage *g, const storage *y, storage *o, int64_t count,
                                  bool stream);
void TEMPLATE(backward_reals)(copes_act act, const real *g, const storage *x, storage *o, int64_t count, bool stream,
                              int64_t ahead);

/* relu and its mask, bit i % 8 of byte i / 8 for element i, and its gradient from the mask. */
void TEMPLATE(relu_with_mask)(const storage *x, storage *o, uint8_t *mask, int64_t count, bool stream);
void TEMPLATE(backward_of_mask)(const storage *g, const uint8_t *mask, storage *o, int64_t count, bool stream);

/* A strided line of elements to a compact one, and back. */
static inline void gather(const storage *x, int64_t stride, storage *line, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(line + i, (const void *)(x + i * stride), sizeof *x);
}

static inline void scatter(const storage *line, storage *x, int64_t stride, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        memcpy((void *)(x + i * stride), line + i, sizeof *x);
}

#endif
