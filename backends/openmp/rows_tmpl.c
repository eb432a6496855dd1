/* Elementwise activations of rows, and their gradients, between memory and rows of reals. */
#include "backends/openmp/mask.h"

static ALWAYS_INLINE void forward_part(copes_act act, const storage *x, bool to_reals, void *o, int64_t i, int64_t n,
                                       bool stream)
{
    const vpair v = load_from(false, x, i, n);
    store_to(to_reals, o, i, n, (vpair){act_forward(act, to_reals, v.low), act_forward(act, to_reals, v.high)}, stream);
}

/* What is left at a row's end: of all activations in one place, as their code is most of the walks'. */
static NOINLINE void forward_rest(copes_act act, const storage *x, bool to_reals, void *o, int64_t i, int64_t n)
{
    forward_part(act, x, to_reals, o, i, n, false);
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
        forward_rest(act, x, to_reals, o, i, count - i);
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

void TEMPLATE(forward_storage)(copes_act act, const storage *x, storage *o, int64_t count, bool stream)
{
    forward_any(act, x, false, o, count, stream, NEXT);
}

void TEMPLATE(forward_reals)(copes_act act, const storage *x, real *y, int64_t count, int64_t ahead)
{
    forward_any(act, x, true, y, count, false, ahead);
}

/* What a walk backward takes, a constant wherever one is inlined: g as reals or storage, and x or, of sigmoid, its result. */
typedef struct backward_kind {
    copes_act act;
    bool from_reals, of_output;
} backward_kind;

static ALWAYS_INLINE vreal gradient_of(backward_kind kind, vreal g, vreal x)
{
    return kind.of_output ? sigmoid_backward_of_output(g, x) : act_backward(kind.act, kind.from_reals, g, x);
}

static ALWAYS_INLINE void backward_part(backward_kind kind, const void *g, const storage *x, storage *o, int64_t i,
                                        int64_t n, bool stream)
{
    const vpair d = load_from(kind.from_reals, g, i, n);
    const vpair v = kind.act == COPES_ACT_NONE ? d : load_from(false, x, i, n);
    store_to(false, o, i, n, (vpair){gradient_of(kind, d.low, v.low), gradient_of(kind, d.high, v.high)}, stream);
}

static NOINLINE void backward_rest(backward_kind kind, const void *g, const storage *x, storage *o, int64_t i,
                                   int64_t n)
{
    backward_part(kind, g, x, o, i, n, false);
}

static ALWAYS_INLINE void backward_row(backward_kind kind, const void *g, const storage *x, storage *o, int64_t count,
                                       bool stream, int64_t ahead)
{
    int64_t i = 0;
    for (; i + PAIR <= count; i += PAIR) {
        if (!kind.from_reals)
            prefetch(g, i, ahead);
        if (kind.act != COPES_ACT_NONE)
            prefetch(x, i, ahead);
        backward_part(kind, g, x, o, i, PAIR, stream);
    }
    if (i < count)
        backward_rest(kind, g, x, o, i, count - i);
}

/* o = the gradient of act at x, times g; none and softmax pass g on. */
static ALWAYS_INLINE void backward_any(copes_act act, bool from_reals, const void *g, const storage *x, storage *o,
                                       int64_t count, bool stream, int64_t ahead)
{
    const backward_kind none = {COPES_ACT_NONE, from_reals, false}, relu = {COPES_ACT_RELU, from_reals, false},
                        sigmoid = {COPES_ACT_SIGMOID, from_reals, false}, silu = {COPES_ACT_SILU, from_reals, false};
    switch (act) {
    case COPES_ACT_RELU: backward_row(relu, g, x, o, count, stream, ahead); break;
    case COPES_ACT_SIGMOID: backward_row(sigmoid, g, x, o, count, stream, ahead); break;
    case COPES_ACT_SILU: backward_row(silu, g, x, o, count, stream, ahead); break;
    default: backward_row(none, g, x, o, count, stream, ahead);
    }
}

void TEMPLATE(backward_storage)(copes_act act, const storage *g, const storage *x, storage *o, int64_t count,
                                bool stream)
{
    backward_any(act, false, g, x, o, count, stream, NEXT);
}

/* relu's result is above 0 where its argument is. */
void TEMPLATE(backward_of_output)(copes_act act, const storage *g, const storage *y, storage *o, int64_t count,
                                  bool stream)
{
    if (act == COPES_ACT_SIGMOID)
        backward_row((backward_kind){COPES_ACT_SIGMOID, false, true}, g, y, o, count, stream, NEXT);
    else
        TEMPLATE(backward_storage)(act, g, y, o, count, stream);
}

void TEMPLATE(backward_reals)(copes_act act, const real *g, const storage *x, storage *o, int64_t count, bool stream,
                              int64_t ahead)
{
    backward_any(act, true, g, x, o, count, stream, ahead);
}

/* What is left of a row has a step to itself, in which zeros follow it: their bits are 0. */
void TEMPLATE(relu_with_mask)(const storage *x, storage *o, uint8_t *mask, int64_t count, bool stream)
{
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        prefetch(x, i, NEXT);
        write_mask(mask + i / 8, bits_of_step(x + i), STEP); /* before o, which may be x */
        for (int j = 0; j < STEP; j += PAIR)
            forward_part(COPES_ACT_RELU, x, false, o, i + j, PAIR, stream);
    }
    if (i < count) {
        storage part[STEP] = {0};
        copy_elements(part, x + i, count - i);
        write_mask(mask + i / 8, bits_of_step(part), count - i);
        forward_row(COPES_ACT_RELU, x + i, false, o + i, count - i, stream, NEXT);
    }
}

void TEMPLATE(backward_of_mask)(const storage *g, const uint8_t *mask, storage *o, int64_t count, bool stream)
{
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        prefetch(g, i, NEXT);
        keep_step(read_mask(mask + i / 8, STEP), g + i, o + i, stream);
    }
    if (i < count) {
        storage part[STEP] = {0};
        copy_elements(part, g + i, count - i);
        keep_step(read_mask(mask + i / 8, count - i), part, part, false);
        copy_elements(o + i, part, count - i);
    }
}
