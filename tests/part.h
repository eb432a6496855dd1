/* A stream that has some of a device's multiprocessors: one of a green context, which only CUDA has. */
#ifndef COPES_TESTS_PART_H
#define COPES_TESTS_PART_H

#include "memory/runtime.h"

#include <stdbool.h>

#ifndef COPES_FAMILY_HIP
#include <cuda.h>
#endif

#if !defined COPES_FAMILY_HIP && CUDA_VERSION >= 12050
typedef struct part {
    CUgreenCtx context;
    CUstream stream;
} part;

/* Where the driver has it. `function`: a pointer to where the pointer to it goes. */
static inline bool find_in_driver(const char *name, void *function)
{
    enum cudaDriverEntryPointQueryResult result;
    return cudaGetDriverEntryPointByVersion(name, function, 12050, cudaEnableDefault, &result) == cudaSuccess &&
           result == cudaDriverEntryPointSuccess;
}

/* False where the driver does not know how. */
static inline bool open_part(part *p, unsigned multiprocessors)
{
    __typeof__(&cuDeviceGetDevResource) get;
    __typeof__(&cuDevSmResourceSplitByCount) split;
    __typeof__(&cuDevResourceGenerateDesc) describe;
    __typeof__(&cuGreenCtxCreate) create;
    __typeof__(&cuGreenCtxStreamCreate) create_stream;
    CUdevResource all, some;
    CUdevResourceDesc description;
    unsigned count = 1;
    return cudaFree(NULL) == cudaSuccess && find_in_driver("cuDeviceGetDevResource", &get) &&
           find_in_driver("cuDevSmResourceSplitByCount", &split) &&
           find_in_driver("cuDevResourceGenerateDesc", &describe) && find_in_driver("cuGreenCtxCreate", &create) &&
           find_in_driver("cuGreenCtxStreamCreate", &create_stream) &&
           get(0, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
           split(&some, &count, &all, NULL, 0, multiprocessors) == CUDA_SUCCESS &&
           describe(&description, &some, 1) == CUDA_SUCCESS &&
           create(&p->context, description, 0, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS &&
           create_stream(&p->stream, p->context, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS;
}

static inline void close_part(part *p)
{
    __typeof__(&cuGreenCtxDestroy) destroy;
    (void)cudaStreamDestroy(p->stream);
    if (find_in_driver("cuGreenCtxDestroy", &destroy))
        (void)destroy(p->context);
}
#else
typedef struct part {
    GPU(Stream_t) stream;
} part;

static inline bool open_part(part *p, unsigned multiprocessors)
{
    (void)p;
    (void)multiprocessors;
    return false;
}

static inline void close_part(part *p)
{
    (void)p;
}
#endif

#endif
