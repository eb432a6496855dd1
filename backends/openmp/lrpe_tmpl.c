/* lrpe where a token can be finished by itself: no activation, an elementwise one, or softmax over the features.
 * Bound by memory. A task is a token and a block of heads: its angles are computed once, stay in L1, and serve every
 * batch entry. Rows without an activation pass straight from memory through registers to memory; with one they rest as
 * reals in L1 between the activation and the encoding. */
#include "backends/openmp/encode.h"
#include "backends/openmp/softmax.h"
#include "backends/openmp/template.h"

/* Heads of a block: as many as keep their rows in L1. */
static int64_t block_heads(const copes_lrpe_problem *problem)
{
    enum { FEATURES = 2048 };
    const int64_t heads = FEATURES / (problem->d > 0 ? problem->d : 1);
    return heads < 1 ? 1 : heads < problem->h ? heads : problem->h;
}

typedef struct token_memory {
    angles angles;
    row_layout layout;
    real *y, *g;            /* the activation's value and its gradient, in rows of `stride` */
    storage *src, *x, *dst; /* compact copies of strided rows */
    int64_t stride;
} token_memory;

static int64_t memory_bytes(const copes_lrpe_problem *problem)
{
    const row_layout layout = layout_of(problem);
    const int64_t heads = block_heads(problem), stride = layout_stride(&layout);
    return angles_bytes(heads, problem->k) + heads * stride * (int64_t)(2 * sizeof(real) + 5 * sizeof(storage));
}

static void memory_open(token_memory *memory, const copes_lrpe_problem *problem, int64_t first, int64_t count,
                        void *bytes)
{
    memory->layout = layout_of(problem);
    const int64_t heads = block_heads(problem), stride = layout_stride(&memory->layout);
    const int64_t angle_rows = problem->theta.stride[0] == 0 ? 1 : count;
    angles_open(&memory->angles, problem, first, angle_rows, bytes);
    memory->stride = stride;
    memory->y = (real *)((char *)bytes + angles_bytes(heads, problem->k));
    memory->g = memory->y + heads * stride;
    memory->src = (storage *)(memory->g + heads * stride);
    memory->x = memory->src + 2 * heads * stride;
    memory->dst = memory->x + heads * stride;
}

size_t TEMPLATE(lrpe_workspace)(const copes_lrpe_problem *problem, int threads)
{
    const int64_t bytes =
        problem->softmax == COPES_OVER_SEQUENCE ? TEMPLATE(lrpe_sequence_memory)(problem) : memory_bytes(problem);
    return thread_workspace(bytes, threads);
}

/* Activation, then encoding, of `count` compact rows. */
static void forward_rows(const copes_lrpe_problem *problem, const encoding *e, const token_memory *memory,
                         row_block src, row_block dst)
{
    if (problem->act == COPES_NONE) {
        encode_storage(e, src, dst);
        return;
    }
    for (int64_t i = 0; i < e->count; i++)
        read_row(&memory->layout, problem->act, (const storage *)src.data + i * src.stride,
                 memory->y + i * memory->stride, -(real)INFINITY, src.ahead);
    if (problem->softmax == COPES_OVER_FEATURES)
        rows_softmax(memory->y, e->count, memory->stride);
    encode_reals(e, (row_block){memory->y, memory->stride, 0}, dst);
}

/* The transposed encoding, then the activation's gradient. */
static void backward_rows(const copes_lrpe_problem *problem, const encoding *e, const token_memory *memory,
                          row_block src, row_block x, row_block dst)
{
    if (problem->act == COPES_NONE) {
        decode_storage(e, src, dst);
        return;
    }
    decode_reals(e, src, (row_block){memory->g, memory->stride, 0});
    if (problem->softmax == COPES_OVER_FEATURES) {
        for (int64_t i = 0; i < e->count; i++)
            read_row(&memory->layout, COPES_NONE, (const storage *)x.data + i * x.stride,
                     memory->y + i * memory->stride, -(real)INFINITY, x.ahead);
        rows_softmax(memory->y, e->count, memory->stride);
        rows_gradient(memory->y, memory->g, e->count, memory->stride);
    }
    for (int64_t i = 0; i < e->count; i++)
        write_gradient(&memory->layout, problem->act, memory->g + i * memory->stride,
                       (const storage *)x.data + i * x.stride, (storage *)dst.data + i * dst.stride, e->stream,
                       x.ahead);
}

/* The rows of a token's block of heads in a tensor, or a compact copy of them where features are strided. `ahead` is
 * the way to the block that comes next. */
static row_block take_rows(const copes_view *view, int64_t at, int64_t count, int64_t width, storage *copy, bool fill,
                           int64_t ahead)
{
    const storage *first = (const storage *)view->data + at;
    if (view->stride[3] == 1)
        return (row_block){(storage *)view->data + at, view->stride[2], ahead};
    for (int64_t i = 0; i < count && fill; i++)
        gather(first + i * view->stride[2], view->stride[3], copy + i * width, width);
    return (row_block){copy, width, 0};
}

static void give_rows(const copes_view *view, int64_t at, int64_t count, int64_t width, const storage *copy)
{
    for (int64_t i = 0; i < count && view->stride[3] != 1; i++)
        scatter(copy + i * width, (storage *)view->data + at + i * view->stride[2], view->stride[3], width);
}

static inline int64_t view_at(const copes_view *view, int64_t b, int64_t n, int64_t h)
{
    return b * view->stride[0] + n * view->stride[1] + h * view->stride[2];
}

/* Batch entries and tokens to the block that a thread comes to next. */
typedef struct block_step {
    int64_t b, n;
} block_step;

static inline int64_t ahead_of(const copes_view *view, block_step step)
{
    return step.b * view->stride[0] + step.n * view->stride[1];
}

static void run_block(const copes_lrpe_problem *problem, const encoding *e, const token_memory *memory, int64_t b,
                      int64_t n, int64_t h, block_step step)
{
    const int64_t wide = problem->variant == COPES_COSINE ? 2 * problem->d : problem->d;
    const int64_t src_width = problem->backward ? wide : problem->d, dst_width = problem->backward ? problem->d : wide;
    const int64_t dst_at = view_at(&problem->dst, b, n, h);
    const row_block src = take_rows(&problem->src, view_at(&problem->src, b, n, h), e->count, src_width, memory->src,
                                    true, ahead_of(&problem->src, step));
    const row_block dst = take_rows(&problem->dst, dst_at, e->count, dst_width, memory->dst, false, 0);
    if (!problem->backward) {
        forward_rows(problem, e, memory, src, dst);
    } else {
        const bool needed = problem->x.data != NULL;
        const row_block x = needed ? take_rows(&problem->x, view_at(&problem->x, b, n, h), e->count, problem->d,
                                               memory->x, true, ahead_of(&problem->x, step))
                                   : (row_block){0};
        backward_rows(problem, e, memory, src, x, dst);
    }
    give_rows(&problem->dst, dst_at, e->count, dst_width, memory->dst);
}

/* Batch entries to a task: all, so that they share angles, unless too few tokens are left to keep the threads busy. */
static int64_t batch_share(const copes_lrpe_problem *problem, int threads)
{
    const int64_t tasks = 4 * (int64_t)threads;
    const int64_t parts = problem->n >= tasks ? 1 : (tasks + problem->n - 1) / problem->n;
    return parts >= problem->b ? 1 : (problem->b + parts - 1) / parts;
}

static void run_heads(const copes_lrpe_problem *problem, const copes_cpu_run *run, int64_t first, int64_t count)
{
    const int64_t share = batch_share(problem, run->threads), parts = (problem->b + share - 1) / share;
    const int64_t tasks = problem->n * parts, bytes = memory_bytes(problem);
    const bool stream = copes_lrpe_bytes(problem) > run->cache;
#ifdef _OPENMP
#pragma omp parallel num_threads(run->threads)
#endif
    {
        _Alignas(THREAD_ALIGNMENT) char stack[STACK_BYTES];
        token_memory memory;
        memory_open(&memory, problem, first, count, thread_memory(run, bytes, stack));
        const encoding e = {problem->variant, problem->pairing, count, problem->d,
                            &memory.angles,   &memory.layout,   stream};
#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (int64_t task = 0; task < tasks; task++) {
            const int64_t part = task / problem->n, n = task % problem->n;
            const int64_t end = (part + 1) * share < problem->b ? (part + 1) * share : problem->b;
            angles_at(&memory.angles, problem, first, n);
            for (int64_t b = part * share; b < end; b++)
                run_block(problem, &e, &memory, b, n, first,
                          b + 1 < end ? (block_step){1, 0} : (block_step){part * share - b, 1});
        }
        finish_streaming();
    }
}

void TEMPLATE(lrpe)(const copes_lrpe_problem *problem, const copes_cpu_run *run)
{
    if (problem->softmax == COPES_OVER_SEQUENCE) {
        TEMPLATE(lrpe_sequence)(problem, run);
        return;
    }
    const int64_t heads = block_heads(problem);
    for (int64_t first = 0; first < problem->h; first += heads)
        run_heads(problem, run, first, first + heads < problem->h ? heads : problem->h - first);
}
