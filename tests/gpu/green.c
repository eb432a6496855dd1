/* Parts of a device. */
#include "tests/gpu/green.h"

#include "tests/gpu/lane.h"

#include <check.h>

#if !defined COPES_FAMILY_HIP && CUDA_VERSION >= 12050
static bool find(const char *name, void *function)
{
    return gpu_find_in_driver(name, 12050, function) == 0;
}

bool open_part(part *p, unsigned multiprocessors)
{
    __typeof__(&cuDeviceGetDevResource) get;
    __typeof__(&cuDevSmResourceSplitByCount) split;
    __typeof__(&cuDevResourceGenerateDesc) describe;
    __typeof__(&cuGreenCtxCreate) create;
    __typeof__(&cuGreenCtxStreamCreate) create_stream;
    CUdevResource all, some;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned count = 1;
    succeed(cudaFree(NULL));
    if (!find("cuDeviceGetDevResource", &get) || !find("cuDevSmResourceSplitByCount", &split) ||
        !find("cuDevResourceGenerateDesc", &describe) || !find("cuGreenCtxCreate", &create) ||
        !find("cuGreenCtxStreamCreate", &create_stream))
        return false;
    ck_assert_int_eq(get(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
    if (multiprocessors >= all.sm.smCount)
        return false;
    ck_assert_int_eq(split(&some, &count, &all, NULL, 0, multiprocessors), CUDA_SUCCESS);
    ck_assert_int_eq(describe(&description, &some, 1), CUDA_SUCCESS);
    ck_assert_int_eq(create(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_SUCCESS);
    ck_assert_int_eq(create_stream(&p->stream, green, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    p->context = green;
    return true;
}

void close_part(part *p)
{
    __typeof__(&cuGreenCtxDestroy) destroy;
    (void)cudaStreamDestroy(p->stream);
    if (find("cuGreenCtxDestroy", &destroy))
        (void)destroy(p->context);
}

bool choose_part(const part *p)
{
    __typeof__(&cuCtxFromGreenCtx) convert;
    __typeof__(&cuCtxSetCurrent) choose;
    CUcontext context;
    return find("cuCtxFromGreenCtx", &convert) && find("cuCtxSetCurrent", &choose) &&
           convert(&context, p->context) == CUDA_SUCCESS && choose(context) == CUDA_SUCCESS;
}
#else
bool open_part(part *p, unsigned multiprocessors)
{
    (void)p;
    (void)multiprocessors;
    return false;
}

void close_part(part *p)
{
    (void)p;
}

bool choose_part(const part *p)
{
    (void)p;
    return false;
}
#endif
