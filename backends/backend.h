/* The seam between common/ and a device: the functions that a backend fills in. A problem has passed every check that
 * needs no device; its pointers are the device's and may be unreadable here. */
#ifndef COPES_BACKENDS_BACKEND_H
#define COPES_BACKENDS_BACKEND_H

#include "common/problem.h"

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

    /* Bytes of scratch memory that run needs, or -1 where they do not fit 63 bits. It is handed over with
     * COPES_WORKSPACE_ALIGNMENT. */
    int64_t (*workspace_size)(const void *state, const copes_problem *problem);

    /* Computes or enqueues. Allocates nothing, waits for nothing, leaves no kernel half launched on a refusal. This and all of
     * the above leave the caller's thread the device or context that it has current, and no error of theirs for its next
     * look at the runtime's last one. (CUDA's cudaFuncSetAttribute forgets an error that the caller left there.) */
    copes_status (*run)(void *state, const copes_problem *problem, void *workspace);
} copes_backend;

enum { COPES_WORKSPACE_ALIGNMENT = 256 };

extern const copes_backend copes_backend_cpu, copes_backend_cuda, copes_backend_hip;

#endif
