/* The threads that work on a call: the one place where the backend opens a region of them, and what each has there. */
#ifndef COPES_BACKENDS_OPENMP_TEAM_H
#define COPES_BACKENDS_OPENMP_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A thread's scratch memory, which the context owns. A thread's stack may be far smaller than that, so kernels keep no
 * array of any size on it. */
enum { SCRATCH_BYTES = 256 * 1024, SCRATCH_ALIGNMENT = 64 };

/* How a kernel is to run. Its results do not depend on any of it. */
typedef struct copes_cpu_run {
    int threads;
    int64_t cache;   /* bytes of the last-level cache: calls that move more write past it */
    void *workspace; /* what the family's workspace function asks for, for this many threads */
    char *scratch;   /* SCRATCH_BYTES for each of them */
} copes_cpu_run;

/* One thread of a region. */
typedef struct copes_worker {
    int index, count;   /* it is number `index` of `count` */
    void *scratch;      /* SCRATCH_BYTES for it alone */
    atomic_llong *next; /* how many tasks have been asked for */
} copes_worker;

typedef void copes_work(const copes_worker *worker, const void *job);

/* Calls work(worker, job) on up to run->threads threads, the caller's among them, and waits for all. Each is in the
 * mode of common/float_mode.h meanwhile, as the caller's thread must be already. */
void copes_team_run(const copes_cpu_run *run, copes_work *work, const void *job);

/* The threads that a context may use which asks for so many, or with 0 for what OpenMP says. It is 1 in a process that
 * fork made and that has not called exec since: OpenMP's threads stay behind in the parent, and GNU's OpenMP would wait
 * for them forever. */
int copes_team_most(int asked);

/* Tasks begin .. end - 1. */
typedef struct copes_share {
    int64_t begin, end;
} copes_share;

/* Share `index` of `count` shares of so many tasks: neighbours, and as many as the others have. */
static inline copes_share copes_share_at(int64_t index, int64_t count, int64_t tasks)
{
    const int64_t each = tasks / count, more = tasks % count;
    const int64_t begin = index * each + (index < more ? index : more);
    return (copes_share){begin, begin + each + (index < more)};
}

/* A worker's share of tasks that take about the same time. */
static inline copes_share copes_share_of(const copes_worker *worker, int64_t tasks)
{
    return copes_share_at(worker->index, worker->count, tasks);
}

/* A task of `tasks` that no worker has taken, for tasks of uneven time; `tasks` where there is none left. Tasks taken one after the other
 * come from different shares: neighbouring tasks are neighbours in memory, and two processors that work on those at the same time prefetch
 * each other's lines. */
static inline int64_t copes_next_task(const copes_worker *worker, int64_t tasks)
{
    for (;;) {
        const int64_t ticket = atomic_fetch_add_explicit(worker->next, 1, memory_order_relaxed);
        const int64_t place = ticket / worker->count;
        const copes_share share = copes_share_at(ticket % worker->count, worker->count, tasks);
        if (place > tasks / worker->count)
            return tasks;
        if (share.begin + place < share.end)
            return share.begin + place;
    }
}

#endif
