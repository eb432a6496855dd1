/* Rows of features on their way between memory and cache: elements of storage, or the reals that one step of a kernel
 * leaves to the next. A row is walked in pairs of vectors, in the order that load_split gives; a row of reals keeps
 * that order (split_place) and is padded to whole pairs. What is left at a row's end takes the same arithmetic through
 * a buffer, so that an element's result does not depend on where in a row it stands. */
#ifndef COPES_BACKENDS_OPENMP_ROWS_H
#define COPES_BACKENDS_OPENMP_ROWS_H

#include "backends/openmp/activation.h"

enum { PAIR = 2 * LANES };

/* Row lengths in cache are rounded up to whole pairs. */
static inline int64_t whole_pairs(int64_t count)
{
    return (count + PAIR - 1) / PAIR * PAIR;
}

/* Elements i .. i + n - 1 of a row; n is PAIR, as a constant, or what is left of the row: zeros follow it then. */
static ALWAYS_INLINE vpair load_from(bool reals, const void *row, int64_t i, int64_t n)
{
    if (reals)
        return load_real_pair((const real *)row + i);
    if (n == PAIR)
        return load_split((const storage *)row + i);
    storage part[PAIR] = {0};
    memcpy(part, (const char *)row + i * (int64_t)sizeof *part, (size_t)n * sizeof *part);
    return load_split(part);
}

static ALWAYS_INLINE void store_to(bool reals, void *row, int64_t i, int64_t n, vpair v, bool stream)
{
    if (reals) {
        store_real_pair((real *)row + i, v);
    } else if (n == PAIR) {
        store_split((storage *)row + i, v, stream);
    } else {
        storage part[PAIR];
        store_split(part, v, false);
        memcpy((char *)row + i * (int64_t)sizeof *part, part, (size_t)n * sizeof *part);
    }
}

/* Elements from `count` to the end of the last pair. */
static inline void pad_row(real *row, int64_t count, real fill)
{
    for (int64_t i = count; i % PAIR != 0; i++)
        row[split_place(i)] = fill;
}

/* Asks for what a walk will read `ahead` elements from here: arithmetic fills the window in which the processor would
 * find out by itself. The address may lie past the tensor; nothing is read there. */
static ALWAYS_INLINE void prefetch(const void *row, int64_t i, int64_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)row + (uintptr_t)((i + ahead) * (int64_t)sizeof(storage))));
}

enum { NEXT = 1024 / (int)sizeof(storage) }; /* elements ahead in a walk straight through memory */

static ALWAYS_INLINE void forward_part(copes_act act, const storage *x, bool to_reals, void *o, int64_t i, int64_t n,
                                       bool stream)
{
    const vpair v = load_from(false, x, i, n);
    store_to(to_reals, o, i, n, (vpair){act_forward(act, v.low), act_forward(act, v.high)}, stream);
}

static ALWAYS_INLINE void forward_row(copes_act act, const storage *x, bool to_reals, void *o, int64_t count,
                                      bool stream, int64_t ahead)
{
    int64_t i = 0;
    for (; i + PAIR <= count; i += PAIR) {
        prefetch(x, i, ahead);
        forward_part(act, x, to_reals, o, i, PAIR, stream);
    }
    if (i < count)
        forward_part(act, x, to_reals, o, i, count - i, stream);
}

/* o = act(x), for one activation a loop; softmax passes x on. */
static ALWAYS_INLINE void forward_any(copes_act act, const storage *x, bool to_reals, void *o, int64_t count,
                                      bool stream, int64_t ahead)
{
    switch (act) {
    case COPES_ACT_RELU: forward_row(COPES_ACT_RELU, x, to_reals, o, count, stream, ahead); break;
    case COPES_ACT_SIGMOID: forward_row(COPES_ACT_SIGMOID, x, to_reals, o, count, stream, ahead); break;
    case COPES_ACT_SILU: forward_row(COPES_ACT_SILU, x, to_reals, o, count, stream, ahead); break;
    default: forward_row(COPES_ACT_NONE, x, to_reals, o, count, stream, ahead);
    }
}

static NOINLINE void forward_storage(copes_act act, const storage *x, storage *o, int64_t count, bool stream)
{
    forward_any(act, x, false, o, count, stream, NEXT);
}

/* Asks for x + ahead meanwhile. */
static NOINLINE void forward_reals(copes_act act, const storage *x, real *y, int64_t count, int64_t ahead)
{
    forward_any(act, x, true, y, count, false, ahead);
}

static ALWAYS_INLINE void backward_part(copes_act act, bool from_reals, const void *g, const storage *x, storage *o,
                                        int64_t i, int64_t n, bool stream)
{
    const vpair d = load_from(from_reals, g, i, n);
    const vpair v = act == COPES_ACT_NONE ? d : load_from(false, x, i, n);
    store_to(false, o, i, n,
             (vpair){act_backward(act, from_reals, d.low, v.low), act_backward(act, from_reals, d.high, v.high)},
             stream);
}

static ALWAYS_INLINE void backward_row(copes_act act, bool from_reals, const void *g, const storage *x, storage *o,
                                       int64_t count, bool stream, int64_t ahead)
{
    int64_t i = 0;
    for (; i + PAIR <= count; i += PAIR) {
        if (!from_reals)
            prefetch(g, i, ahead);
        if (act != COPES_ACT_NONE)
            prefetch(x, i, ahead);
        backward_part(act, from_reals, g, x, o, i, PAIR, stream);
    }
    if (i < count)
        backward_part(act, from_reals, g, x, o, i, count - i, stream);
}

/* o = the gradient of act at x, times g; none and softmax pass g on. */
static ALWAYS_INLINE void backward_any(copes_act act, bool from_reals, const void *g, const storage *x, storage *o,
                                       int64_t count, bool stream, int64_t ahead)
{
    switch (act) {
    case COPES_ACT_RELU: backward_row(COPES_ACT_RELU, from_reals, g, x, o, count, stream, ahead); break;
    case COPES_ACT_SIGMOID: backward_row(COPES_ACT_SIGMOID, from_reals, g, x, o, count, stream, ahead); break;
    case COPES_ACT_SILU: backward_row(COPES_ACT_SILU, from_reals, g, x, o, count, stream, ahead); break;
    default: backward_row(COPES_ACT_NONE, from_reals, g, x, o, count, stream, ahead);
    }
}

static NOINLINE void backward_storage(copes_act act, const storage *g, const storage *x, storage *o, int64_t count,
                                      bool stream)
{
    backward_any(act, false, g, x, o, count, stream, NEXT);
}

/* Asks for x + ahead meanwhile. */
static NOINLINE void backward_reals(copes_act act, const real *g, const storage *x, storage *o, int64_t count,
                                    bool stream, int64_t ahead)
{
    backward_any(act, true, g, x, o, count, stream, ahead);
}

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
