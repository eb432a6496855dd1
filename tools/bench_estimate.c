/* How long a benchmark will take. A case takes its budget of time or, where it is large, as long as the least number of runs;
 * before that its inputs are filled. */
#include "tools/bench_estimate.h"

#include <math.h>
#include <time.h>

enum {
    RUNS = 6,
    CALL_COPIES = 2
}; /* runs at least, the first to warm up; a call takes as long as so many copies, or less */

static const size_t probe_bytes = (size_t)16 << 20;

/* Milliseconds for a byte. */
typedef struct rates {
    double fill, copy;
} rates;

typedef struct copy_job {
    const bench_plan *plan;
    void *to, *from;
} copy_job;

static int run_copy(void *what)
{
    const copy_job *job = what;
    return job->plan->device->copy(job->plan->state, 0, job->to, job->from, probe_bytes);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static bool measure_rates(const bench_plan *plan, rates *found)
{
    const device_memory *memory = device_memory_of(plan->id.device_type);
    const int id = plan->id.device_id;
    copy_job copy = {plan, memory->allocate(id, probe_bytes), memory->allocate(id, probe_bytes)};
    const bench_job job = {.run = run_copy, .what = &copy};
    const double start = now();
    bool done =
        copy.to != NULL && copy.from != NULL && bench_fill_random(memory, id, copy.from, probe_bytes, CHECK_F32) == 0;
    found->fill = (now() - start) / (double)probe_bytes;
    for (int i = 0; i < 2 && done; i++) { /* the first also gets the pages of memory */
        const double time = plan->device->time(plan->state, &job);
        done = time >= 0;
        found->copy = time / (double)probe_bytes;
    }
    if (copy.from != NULL)
        memory->release(id, copy.from);
    if (copy.to != NULL)
        memory->release(id, copy.to);
    return done;
}

/* Milliseconds of a case; 0 for one that will be skipped. */
static double estimate_case(const bench_plan *plan, const rates *rate, const bench_case *c)
{
    bench_call call;
    if (bench_call_plan(&call, c, plan->context, plan->id) != COPES_OK)
        return 0;
    const double count = plan->replay ? bench_replays(&call) : 1, needed = count * (double)bench_measure_memory(&call);
    if (needed > bench_memory_limit(plan))
        return 0;
    const double copied = count * (double)call.moved / 2; /* a copy reads a byte for each it writes */
    const double runs = RUNS * (CALL_COPIES + plan->device->copies) * copied * rate->copy;
    return fmax(plan->budget_ms, runs) + needed * rate->fill;
}

double bench_estimate(const bench_plan *plan, const bench_list *list)
{
    double milliseconds = 0;
    rates rate;
    if (!measure_rates(plan, &rate))
        return -1;
    for (size_t i = 0; i < list->count; i++)
        milliseconds += estimate_case(plan, &rate, &list->cases[i]);
    return milliseconds * 1e-3;
}
