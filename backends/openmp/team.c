/* Regions of threads, and whether there may be any. */
#include "backends/openmp/team.h"

#ifdef _OPENMP

#include "common/float_mode.h"

#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static atomic_bool forked;

static void start_child(void)
{
    atomic_store_explicit(&forked, true, memory_order_relaxed);
}

/* A fork from before the library was loaded: Linux keeps one in a process's flags, the seventh number after its name,
 * until it calls exec. Elsewhere, and where there is no /proc, such a fork goes unseen. */
static bool was_forked(void)
{
    enum { PF_FORKNOEXEC = 0x40 };
    char text[512];
    unsigned flags = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    if (file == NULL)
        return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *name_end = strrchr(text, ')'); /* a name may have parentheses of its own */
    return name_end != NULL && sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
           (flags & PF_FORKNOEXEC) != 0;
}

/* When the library is loaded, so that no later fork goes unseen. One thread is right in any process. */
__attribute__((constructor)) static void watch_forks(void)
{
    if (was_forked() || pthread_atfork(NULL, NULL, start_child) != 0)
        start_child();
}

int copes_team_most(int asked)
{
    if (atomic_load_explicit(&forked, memory_order_relaxed))
        return 1;
    return asked > 0 ? asked : omp_get_max_threads();
}

static void run_threads(const copes_cpu_run *run, copes_work *work, const void *job, atomic_llong *next)
{
#pragma omp parallel num_threads(run->threads)
    {
        const copes_float_mode mode = copes_float_mode_enter();
        const int index = omp_get_thread_num();
        work(&(copes_worker){index, omp_get_num_threads(), run->scratch + (int64_t)index * SCRATCH_BYTES, next}, job);
        copes_float_mode_leave(mode);
    }
}

#else

int copes_team_most(int asked)
{
    (void)asked;
    return 1;
}

#endif

void copes_team_run(const copes_cpu_run *run, copes_work *work, const void *job)
{
    atomic_llong next = 0;
#ifdef _OPENMP
    if (run->threads > 1) {
        run_threads(run, work, job, &next);
        return;
    }
#endif
    work(&(copes_worker){0, 1, run->scratch, &next}, job);
}
