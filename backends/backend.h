/* The seam between common/ and a device: the functions that a backend fills in. A problem has passed every check that
 * needs no device; its pointers are the device's and may be unreadable here. */
#ifndef COPES_BACKENDS_BACKEND_H
#define COPES_BACKENDS_BACKEND_H

#include "common/problem.h"

#include <stdalign.h>
#include <stdbool.h>

enum {
    COPES_PLAN_REFUSALS = 8,  /* variants that a plan can tell of, which were asked before the one it has */
    COPES_PLAN_TILING = 1280, /* bytes of the backend's own part */
    COPES_WORKSPACE_ALIGNMENT = 256
};

/* A kernel that was asked before and does not take the problem, and why; both of static storage. */
typedef struct copes_refusal {
    const char *variant, *reason;
} copes_refusal;

/* How a problem is to be run: which kernel, how it is cut, and the memory that it needs. It is a value, made on the host from
 * the problem and what is known of the device, without touching either; run, workspace_size and explain read it. */
typedef struct copes_plan {
    const char *variant; /* the kernel's name, of static storage: its function, and in <> what that is compiled for */
    int64_t workspace;   /* bytes, aligned to COPES_WORKSPACE_ALIGNMENT; -1: they do not fit 63 bits */
    int64_t grid[3];     /* GPU: blocks; CPU: threads, 1, 1 */
    int64_t block[3];    /* GPU: threads of a block */
    int64_t shared;      /* GPU: bytes of dynamic shared memory of a block */
    int cluster;         /* GPU: blocks of a cluster; 0 or 1: none */
    bool cooperative;    /* GPU: all blocks run at once */
    int refused;         /* refusals */
    copes_refusal refusal[COPES_PLAN_REFUSALS];
    const char *first;                                   /* the kernel that runs before it, likewise; NULL: none */
    void (*run_first)(void);                             /* the backend's own, of whatever type it has there */
    void (*run)(void);                                   /* likewise */
    void (*kernel)(void);                                /* likewise, what `run` launches; NULL where it knows itself */
    alignas(16) unsigned char tiling[COPES_PLAN_TILING]; /* likewise */
} copes_plan;

typedef struct copes_backend {
    copes_backend_info info;
    uint32_t dtypes; /* bit 1 << copes_dtype: what its kernels run */

    int32_t (*device_count)(void);

    /* One line about a device that exists, or, for device 0 of none, why there is none. */
    void (*summary)(int32_t device, char *text, size_t size);

    /* Makes the state of a context: everything that may fail or take time happens here, not in run. */
    copes_status (*open)(int32_t device, const copes_context_options *options, void **state);
    void (*close)(void *state);
    copes_status (*set_stream)(void *state, void *stream); /* may ask the device what of it the stream has */

    /* The workspace of the plan hangs on no address, its variant may. Errors: SIZE, a problem that no launch takes. */
    copes_status (*plan)(const void *state, const copes_problem *problem, copes_plan *plan);

    /* Computes or enqueues. Allocates nothing, waits for nothing, leaves no kernel half launched on a refusal. This and all of
     * the above leave the caller's thread the device or context that it has current, and no error of theirs for its next
     * look at the runtime's last one. (CUDA's cudaFuncSetAttribute forgets an error that the caller left there.) */
    copes_status (*run)(void *state, const copes_problem *problem, const copes_plan *plan, void *workspace);

    /* The names that a plan's variant can have: copies up to `capacity` of them and returns how many there are. */
    size_t (*variants)(const char **names, size_t capacity);
} copes_backend;

extern const copes_backend copes_backend_cpu, copes_backend_cuda, copes_backend_hip;

#endif
