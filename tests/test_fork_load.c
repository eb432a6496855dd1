/* A child loads the library only after a fork, and its parent has used the same OpenMP: test_fork_load LIBRARY. Exits with
 * 0 where a call on 4 threads in the child ends, and is right. */
#include <copes/copes.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <omp.h>

enum {
    THREADS = 4,
    COUNT = 1 << 16,
    SECONDS = 120 /* until the child is taken to wait for threads that are not there */
};

/* What the child takes from the library. POSIX has dlsym give functions as pointers to data. */
typedef struct library {
    copes_status (*context_create)(DLDevice, const copes_context_options *, copes_context **);
    copes_status (*run)(copes_context *, const copes_op *, const copes_args *, void *, size_t);
    void (*context_destroy)(copes_context *);
} library;

static int load(const char *path, library *to)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 0;
    }
    void *const found[] = {dlsym(handle, "copes_context_create"), dlsym(handle, "copes_run"),
                           dlsym(handle, "copes_context_destroy")};
    memcpy(to, found, sizeof found);
    return found[0] != NULL && found[1] != NULL && found[2] != NULL;
}

/* Is relu, of numbers of which every second one is negative, right? */
static int call(const library *copes)
{
    static float x[COUNT], o[COUNT];
    const DLDevice cpu = {kDLCPU, 0};
    const copes_context_options options = {.threads = THREADS};
    int64_t shape[] = {COUNT};
    DLTensor in = {.data = x, .device = cpu, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape}, out = in;
    const copes_op op = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_RELU}};
    const copes_args args = {.act_forward = {.x = &in, .o = &out}};
    copes_context *context;
    out.data = o;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i % 2 == 0 ? i : -i);
    if (copes->context_create(cpu, &options, &context) != COPES_OK)
        return 0;
    int right = copes->run(context, &op, &args, NULL, 0) == COPES_OK;
    copes->context_destroy(context);
    for (int i = 0; i < COUNT; i++)
        right = right && o[i] == (float)(i % 2 == 0 ? i : 0);
    return right;
}

int main(int argc, char **argv)
{
    int threads = 0, status = -1;
    if (argc != 2)
        return fprintf(stderr, "usage: %s LIBRARY\n", argv[0]);
#pragma omp parallel num_threads(THREADS) reduction(+ : threads)
    threads++;
    if (threads != THREADS)
        return fprintf(stderr, "%d threads, not %d\n", threads, THREADS);
    const pid_t child = fork();
    if (child == 0) {
        library copes;
        alarm(SECONDS);
        _exit(!(load(argv[1], &copes) && call(&copes)));
    }
    return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}
