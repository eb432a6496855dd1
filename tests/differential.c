/* The differential fuzzer: random calls of every operator on tensors between guard pages, at every instruction-set
 * level and by several numbers of threads, each compared with the oracle. A case is made from its seed alone; a failure
 * prints the seed that repeats it. Trials run in processes of their own, so that whatever ends one is told by the
 * parent. */
#include "tests/differential/report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "usage: differential [--seed S] [--count N] [--cases N] [--seconds T] [--jobs J] [--keep-going]\n"
    "\n"
    "Makes case i from seed S + i (default 1) and runs each some times, until N executions, N cases or T seconds\n"
    "(default 60 where no end is given) have passed, in J processes (default 1). It stops at the first failure, or\n"
    "with --keep-going after 20 in a process, and then exits 1. SIGTERM and SIGINT end it like its time.\n";

enum { MOST_JOBS = 1024, MOST_FAILURES = 20, SECONDS_A_CASE = 100, STACK = 1 << 16 };

typedef struct request {
    int64_t seed, count, cases, seconds, jobs;
    bool keep_going;
} request;

/* What parent and children share. */
typedef struct job {
    pid_t process;
    volatile sig_atomic_t faulted; /* an access at `address` ended the process */
    void *volatile address;
    int64_t failures;
    trial trial;
} job;

typedef struct board {
    volatile sig_atomic_t stop; /* for all jobs: one has failed, or a signal came */
    job jobs[];
} board;

static board *shared; /* for the handler of signals that end the run, in whichever process they arrive */

static void stop_all(int signal)
{
    (void)signal;
    shared->stop = 1;
}

/* Jobs end with their case, and what was run is told. wait() goes on. */
static void watch_stops(board *b)
{
    struct sigaction action = {.sa_handler = stop_all, .sa_flags = SA_RESTART};
    shared = b;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool read_number(const char *text, int64_t *value)
{
    char *end = NULL;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && *text >= '0' && *text <= '9' && *end == '\0';
}

static bool read_request(request *r, int argc, char **argv)
{
    *r = (request){.seed = 1, .count = -1, .cases = -1, .seconds = -1, .jobs = 1};
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i];
        if (strcmp(flag, "--keep-going") == 0) {
            r->keep_going = true;
            continue;
        }
        int64_t *const to = strcmp(flag, "--count") == 0     ? &r->count
                            : strcmp(flag, "--cases") == 0   ? &r->cases
                            : strcmp(flag, "--seconds") == 0 ? &r->seconds
                            : strcmp(flag, "--jobs") == 0    ? &r->jobs
                            : strcmp(flag, "--seed") == 0    ? &r->seed
                                                             : NULL;
        i++;
        if (to == NULL || i == argc || !read_number(argv[i], to))
            return false;
    }
    if (r->count < 0 && r->cases < 0 && r->seconds < 0)
        r->seconds = 60;
    return r->jobs >= 1 && r->jobs <= MOST_JOBS;
}

/* ---- A child ----------------------------------------------------------------------------------------------------- */

static job *own; /* for the handler */
static struct sigaction before;

/* Notes the address, and lets the access fault again: who handled the signal before now ends the process, be it the
 * system or a sanitizer. */
static void note_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    own->address = info->si_addr;
    own->faulted = 1;
    sigaction(signal, &before, NULL);
}

/* On a stack of its own, as the fault may be that of a full one. */
static void watch_faults(void)
{
    static unsigned char stack[STACK];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = note_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&other, NULL);
    sigaction(SIGSEGV, &action, &before);
}

static bool has_ended(const request *r, const job *j, int64_t done, double begin)
{
    const int64_t count = (r->count + r->jobs - 1) / r->jobs;
    return (r->count >= 0 && j->trial.counts.all >= count) || (r->cases >= 0 && done >= r->cases) ||
           (r->seconds >= 0 && now() - begin >= (double)r->seconds);
}

/* Job `index` has every case whose number is that modulo the number of jobs. */
static void run_job(const request *r, board *b, int64_t index, double begin)
{
    trial_contexts contexts;
    own = &b->jobs[index];
    watch_faults();
    if (!trial_open(&contexts)) {
        own->failures++;
        return;
    }
    for (int64_t i = index; !b->stop && !has_ended(r, own, i, begin) && own->failures < MOST_FAILURES; i += r->jobs) {
        alarm(SECONDS_A_CASE); /* ends a process that hangs */
        if (trial_run(&own->trial, &contexts, (uint64_t)(r->seed + i)))
            continue;
        report_failure(stdout, &own->trial, own->trial.message);
        own->failures++;
        b->stop = b->stop || !r->keep_going;
    }
    trial_close(&contexts);
}

/* ---- The parent -------------------------------------------------------------------------------------------------- */

static void tell_death(job *j, int status)
{
    char what[256], where[ARENA_TEXT];
    if (WIFSIGNALED(status))
        snprintf(what, sizeof what, "the process died: %s", strsignal(WTERMSIG(status)));
    else
        snprintf(what, sizeof what, "the process exited with status %d", WEXITSTATUS(status));
    if (j->faulted)
        snprintf(what + strlen(what), sizeof what - strlen(what), ", at %p, %s", j->address,
                 arena_describe(j->address, where));
    report_failure(stdout, &j->trial, what);
    j->failures++;
}

static void wait_for_all(const request *r, board *b)
{
    int status;
    for (pid_t process = wait(&status); process > 0; process = wait(&status))
        for (int64_t i = 0; i < r->jobs; i++)
            if (b->jobs[i].process == process && status != 0) {
                tell_death(&b->jobs[i], status);
                b->stop = b->stop || !r->keep_going;
            }
}

static int summarize(const request *r, const board *b, double seconds)
{
    static trial_counts sum;
    int64_t failures = 0;
    for (int64_t i = 0; i < r->jobs; i++) {
        report_add(&sum, &b->jobs[i].trial.counts);
        failures += b->jobs[i].failures;
    }
    report_counts(stdout, &sum, seconds);
    printf("seed %lld, %lld jobs: %lld failures\n", (long long)r->seed, (long long)r->jobs, (long long)failures);
    return failures > 0 || sum.all == 0;
}

static int run_all(const request *r, board *b)
{
    const double begin = now();
    for (int64_t i = 0; i < r->jobs; i++) {
        fflush(stdout);
        const pid_t process = fork();
        if (process == 0) {
            run_job(r, b, i, begin);
            fflush(stdout);
            _exit(0);
        }
        b->jobs[i].process = process; /* the parent alone writes here, as the child's fork gives 0 */
        if (process < 0) {
            perror("fork");
            b->jobs[i].failures++;
        }
    }
    wait_for_all(r, b);
    return summarize(r, b, now() - begin);
}

/* Threads that wait must not spin where there are more than processors; OpenMP reads that before main begins. */
static void wait_passively(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") == NULL && setenv("OMP_WAIT_POLICY", "passive", 1) == 0)
        execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    request r;
    wait_passively(argv);
    if (!read_request(&r, argc, argv)) {
        fputs(help, stderr);
        return 2;
    }
    const size_t bytes = sizeof(board) + (size_t)r.jobs * sizeof(job);
    board *b = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED || !arena_open()) {
        perror("no memory for the tensors");
        return 1;
    }
    watch_stops(b);
    return run_all(&r, b);
}
