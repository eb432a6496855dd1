/* act: elementwise activations as one walk over memory in chunks. Bound by memory, or by the exponential and the division. */
#include "backends/openmp/act_place.h"
#include "backends/openmp/streaming.h"

enum { CHUNK = 8192, PART = 1024 };

/* What a thread works in: compact copies of strided elements. */
typedef struct strided_memory {
    storage x[PART], y[PART], o[PART];
    uint8_t mask[PART / 8];
} strided_memory;

_Static_assert(sizeof(strided_memory) <= SCRATCH_BYTES, "a thread's scratch memory takes it");

static void run_line(const copes_act_problem *problem, const act_place *at, int64_t count, bool stream)
{
    if (at->mask != NULL && problem->backward)
        TEMPLATE(backward_of_mask)(at->src, at->mask, at->dst, count, stream);
    else if (at->mask != NULL)
        TEMPLATE(relu_with_mask)(at->src, at->dst, at->mask, count, stream);
    else if (problem->of_output)
        TEMPLATE(backward_of_output)(problem->act, at->src, at->saved, at->dst, count, stream);
    else if (problem->backward)
        TEMPLATE(backward_storage)(problem->act, at->src, at->saved, at->dst, count, stream);
    else
        TEMPLATE(forward_storage)(problem->act, at->src, at->dst, count, stream);
}

/* The bytes of a mask that are not neighbours, to where they are and back. */
static void move_mask(bool writes, uint8_t *mask, int64_t stride, uint8_t *line, int64_t elements)
{
    for (int64_t i = 0; 8 * i < elements; i++)
        if (writes)
            mask[i * stride] = line[i];
        else
            line[i] = mask[i * stride];
}

/* A line along `axis` whose elements are not neighbours, in parts that fit the cache. */
static void run_strided(const copes_act_problem *problem, int axis, act_place at, int64_t count, strided_memory *memory)
{
    const int64_t src = problem->src.stride[axis], saved = problem->saved.stride[axis], dst = problem->dst.stride[axis];
    const int64_t bytes = problem->mask.stride[axis];
    storage *x = memory->x, *y = memory->y, *o = memory->o;
    uint8_t *mask = at.mask == NULL ? NULL : memory->mask;
    for (int64_t begin = 0; begin < count; begin += PART) {
        const int64_t part = begin + PART < count ? PART : count - begin;
        gather(at.src + begin * src, src, x, part);
        if (at.saved != NULL)
            gather(at.saved + begin * saved, saved, y, part);
        if (mask != NULL && problem->backward)
            move_mask(false, at.mask + begin / 8 * bytes, bytes, mask, part);
        run_line(problem, &(act_place){x, at.saved != NULL ? y : NULL, o, NULL, mask}, part, false);
        scatter(o, at.dst + begin * dst, dst, part);
        if (mask != NULL && !problem->backward)
            move_mask(true, at.mask + begin / 8 * bytes, bytes, mask, part);
    }
}

/* Chunks are whole bytes of a mask, so that no two threads have one. */
static void run_elementwise(const copes_worker *worker, const void *argument)
{
    const act_job *job = argument;
    const copes_act_problem *problem = job->problem;
    const int axis = problem->mask.data != NULL ? problem->mask_axis : problem->rank - 1;
    const unsigned others = ((1u << problem->rank) - 1) & ~(1u << axis);
    const int64_t length = problem->shape[axis], chunks = (length + CHUNK - 1) / CHUNK;
    const copes_share share = copes_share_of(worker, product(problem->shape, problem->rank) / length * chunks);
    const bool compact = is_compact(problem, axis);
    for (int64_t task = share.begin; task < share.end; task++) {
        const int64_t begin = task % chunks * CHUNK, count = begin + CHUNK < length ? CHUNK : length - begin;
        act_place at = find_place(problem, task / chunks, others);
        at.src += begin * problem->src.stride[axis];
        at.saved = at.saved == NULL ? NULL : at.saved + begin * problem->saved.stride[axis];
        at.dst += begin * problem->dst.stride[axis];
        at.mask = at.mask == NULL ? NULL : at.mask + begin / 8 * problem->mask.stride[axis];
        if (compact)
            run_line(problem, &at, count, job->stream);
        else
            run_strided(problem, axis, at, count, worker->scratch);
    }
    finish_streaming();
}

void TEMPLATE(act)(const copes_act_problem *problem, const copes_cpu_run *run)
{
    const int tensors = problem->saved.data == NULL ? 2 : 3;
    const double bytes = (double)product(problem->shape, problem->rank) * tensors * (double)sizeof(storage);
    const act_job job = {problem, run, act_streams(problem, run, bytes)};
    if (problem->axis < 0)
        copes_team_run(run, run_elementwise, &job);
    else if (problem->axis == problem->rank - 1)
        TEMPLATE(act_rows)(&job);
    else
        TEMPLATE(act_columns)(&job);
}
