/* The call, each way to copy and the probe take turns, so that all of them see the same moods of the machine. */
#include "bench/measure.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { JOBS = 8, LEAST = 5, MOST = 101, WARM_UP = 1 };

/* One copy after another, of memory that follows on. Probes go by it, too. */
typedef struct copy_work {
    const bench_device *device;
    void *state;
    int way;
    char *to;
    const char *from;
    size_t bytes;
    int count;
} copy_work;

static copes_status run_call(const bench_call *call, const copes_args *args)
{
    return copes_run(call->context, &call->op, args, call->workspace, call->workspace_size);
}

static int run_calls(void *what)
{
    const bench_calls *calls = what;
    for (int i = 0; i < calls->count; i++) {
        const bench_call *call = &calls->calls[i];
        if (call->first_too && run_call(call, &call->first) != COPES_OK)
            return -1;
        if (run_call(call, &call->args) != COPES_OK)
            return -1;
    }
    return 0;
}

static int run_copies(void *what)
{
    const copy_work *work = what;
    for (int i = 0; i < work->count; i++) {
        const size_t at = (size_t)i * work->bytes;
        if (work->device->copy(work->state, work->way, work->to + at, work->from + at, work->bytes) != 0)
            return -1;
    }
    return 0;
}

static int run_probe(void *what)
{
    const copy_work *work = what;
    return work->device->multiply_add(work->state);
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

/* Times the jobs in turn and leaves the median of each. Returns the repeats, or -1. */
static int time_jobs(const bench_device *device, void *state, const bench_job *jobs, int count, double budget_ms,
                     double medians[JOBS])
{
    double times[JOBS][MOST];
    const double end = now() + budget_ms;
    int repeats = -WARM_UP;
    for (; repeats < LEAST || (repeats < MOST && now() < end); repeats++) {
        for (int i = 0; i < count; i++) {
            const double time = device->time(state, &jobs[i]);
            if (time < 0)
                return -1;
            if (repeats >= 0)
                times[i][repeats] = time;
        }
    }
    for (int i = 0; i < count; i++)
        medians[i] = median(times[i], repeats);
    return repeats;
}

/* Each way to copy is a job, with replayed calls two: of small copies replayed ones are faster, of large ones the others. */
static int measure_beside(const bench_device *device, void *state, const bench_calls *calls, double budget_ms, void *to,
                          const void *from, bench_result *result)
{
    const bench_call *call = &calls->calls[0];
    bench_job jobs[JOBS] = {{run_calls, (void *)calls, calls->replay}};
    copy_work works[JOBS];
    double medians[JOBS];
    const bool probe = call->multiply_adds > 0 && device->multiply_adds(state) > 0;
    const int copies = device->copies * (calls->replay ? 2 : 1);
    for (int i = 0; i < copies + probe; i++) {
        works[i] = (copy_work){device, state, i % device->copies, to, from, (size_t)call->moved / 2, calls->count};
        jobs[1 + i] = (bench_job){i < copies ? run_copies : run_probe, &works[i], i >= device->copies && i < copies};
    }
    result->repeats = time_jobs(device, state, jobs, 1 + copies + probe, budget_ms, medians);
    if (result->repeats < 0)
        return -1;
    result->ms = medians[0] / calls->count;
    result->copy_ms = medians[1] / calls->count;
    for (int i = 2; i <= copies; i++)
        result->copy_ms = fmin(result->copy_ms, medians[i] / calls->count);
    result->share = result->copy_ms / result->ms;
    result->rate = (double)call->moved / result->ms * 1e-6;
    if (probe)
        result->peak_share = call->multiply_adds / result->ms / (device->multiply_adds(state) / medians[1 + copies]);
    return 0;
}

int64_t bench_measure_memory(const bench_call *call)
{
    return bench_call_memory(call) + call->moved;
}

int bench_replays(const bench_call *call)
{
    const int64_t bytes = (int64_t)256 << 20, least = 4, most = 256; /* several times what a cache holds */
    const int64_t wanted = call->moved > 0 ? bytes / call->moved + 1 : most;
    return (int)(wanted < least ? least : wanted > most ? most : wanted);
}

int bench_measure(const bench_device *device, void *state, const bench_calls *calls, double budget_ms,
                  bench_result *result)
{
    const bench_call *call = &calls->calls[0];
    const device_memory *memory = device_memory_of(call->device.device_type);
    const int id = call->device.device_id;
    const size_t bytes = (size_t)call->moved / 2 * (size_t)calls->count;
    void *from = memory->allocate(id, bytes), *to = memory->allocate(id, bytes);
    int status = from != NULL && to != NULL ? bench_fill_random(memory, id, from, bytes, CHECK_F32) : -1;
    for (int i = 0; i < calls->count && status == 0; i++)
        status = bench_call_allocate(&calls->calls[i], memory);
    if (status == 0)
        status = measure_beside(device, state, calls, budget_ms, to, from, result);
    for (int i = 0; i < calls->count; i++)
        bench_call_release(&calls->calls[i], memory);
    if (from != NULL)
        memory->release(id, from);
    if (to != NULL)
        memory->release(id, to);
    return status;
}
