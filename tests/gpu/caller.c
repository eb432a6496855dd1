/* What calls leave in the thread of their caller: the same current context, none included (with HIP: the same device), and
 * no error of theirs. A thread that has nothing current stays so; each visit is a thread of its own, which begins so. */
#include "tests/gpu/cases.h"
#include "tests/gpu/green.h"
#include "tests/gpu/lane.h"

#include "bench/device.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

/* What a thread has before the calls. */
typedef enum caller_has { NOTHING, DEVICE_0, PART_OF_DEVICE_0 } caller_has;

typedef struct visit {
    int device; /* that the calls are on */
    caller_has has;
    part p;
    const void *before;
    char error[200]; /* the first that was found; "" */
} visit;

#ifdef COPES_FAMILY_HIP
static const void *current(void)
{
    int device = -1;
    (void)hipGetDevice(&device);
    return (const void *)(intptr_t)device;
}
#else
static const void *current(void)
{
    __typeof__(&cuCtxGetCurrent) get;
    CUcontext context = NULL;
    return gpu_find_in_driver("cuCtxGetCurrent", 12000, &get) == 0 && get(&context) == CUDA_SUCCESS ? context : NULL;
}

/* Does the device have a context? */
static bool is_active(int device)
{
    __typeof__(&cuDevicePrimaryCtxGetState) get;
    unsigned flags;
    int active = 1;
    return gpu_find_in_driver("cuDevicePrimaryCtxGetState", 12000, &get) != 0 ||
           get(device, &flags, &active) != CUDA_SUCCESS || active != 0;
}
#endif

/* After each step: was it as it had to be, and what did it leave? */
static void check_step(visit *v, const char *step, bool right)
{
    const void *const now = current();
    const GPU(Error_t) left = GPU(GetLastError)();
    if (v->error[0] != '\0')
        return;
    if (!right)
        snprintf(v->error, sizeof v->error, "%s went wrong: %s", step, copes_last_error());
    else if (now != v->before)
        snprintf(v->error, sizeof v->error, "%s leaves %p current, not %p", step, now, v->before);
    else if (left != GPU(Success))
        snprintf(v->error, sizeof v->error, "%s leaves an error: %s", step, GPU(GetErrorString)(left));
}

static void call_library(visit *v, const bench_case *c)
{
    const DLDevice device = {GPU_DEVICE_TYPE, v->device};
    const device_memory *memory = device_memory_of(GPU_DEVICE_TYPE);
    copes_context *context = NULL;
    bench_call call = {.count = 0};
    char begin[16];
    const bool made = copes_context_create(device, NULL, &context) == COPES_OK;
    check_step(v, "copes_context_create", made);
    if (!made)
        return;
    check_step(v, "copes_workspace_size", bench_call_plan(&call, c, context, device) == COPES_OK);
    check_step(v, "to allocate and write", bench_call_allocate(&call, memory) == 0);
    check_step(v, "copes_context_set_stream", copes_context_set_stream(context, NULL) == COPES_OK);
    const copes_status status = copes_run(context, &call.op, &call.args, call.workspace, call.workspace_size);
    check_step(v, "copes_run", status == COPES_OK);
    const void *output = call.tensors[call.count - 1].view.data;
    check_step(v, "to read", memory->read(v->device, begin, output, sizeof begin) == 0);
    bench_call_release(&call, memory);
    check_step(v, "to release", true);
    copes_context_destroy(context);
    check_step(v, "copes_context_destroy", true);
}

static int do_nothing(void *what)
{
    (void)what;
    return 0;
}

static int fail_job(void *what)
{
    (void)what;
    return -1;
}

static void call_benchmark(visit *v)
{
    const bench_device *device = bench_device_of(GPU_DEVICE_TYPE);
    copes_context_options options;
    void *state = device->open(v->device, &options);
    check_step(v, "bench: open", state != NULL);
    if (state == NULL)
        return;
    check_step(v, "bench: free_memory", device->free_memory(state) > 0);
    check_step(v, "bench: time", device->time(state, &(bench_job){.run = do_nothing}) >= 0);
    check_step(v, "bench: time of a record", device->time(state, &(bench_job){.run = do_nothing, .replay = true}) >= 0);
    check_step(v, "bench: a job that fails", device->time(state, &(bench_job){.run = fail_job, .replay = true}) < 0);
    device->close(state);
    check_step(v, "bench: close", true);
}

static void call_in_vain(visit *v)
{
    const device_memory *memory = device_memory_of(GPU_DEVICE_TYPE);
    const DLDevice missing = {GPU_DEVICE_TYPE, 4096};
    copes_context *context = NULL;
    char text[200];
    check_step(v, "too large an allocation", memory->allocate(v->device, SIZE_MAX / 2) == NULL);
    check_step(v, "a write to nowhere", memory->write(v->device, NULL, text, sizeof text) == -1);
    check_step(v, "a read from nowhere", memory->read(v->device, text, NULL, sizeof text) == -1);
    check_step(v, "an allocation on no device", memory->allocate(4096, 16) == NULL);
    check_step(v, "the benchmark on no device",
               bench_device_of(GPU_DEVICE_TYPE)->open(4096, &(copes_context_options){.stream = NULL}) == NULL);
    check_step(v, "a context on no device", copes_context_create(missing, NULL, &context) == COPES_ERROR_DEVICE);
    check_step(v, "copes_device_summary",
               copes_device_summary((DLDevice){GPU_DEVICE_TYPE, v->device}, text, sizeof text) == COPES_OK);
}

static void *visit_all(void *argument)
{
    visit *v = argument;
    const bool ready = v->has == NOTHING    ? true
                       : v->has == DEVICE_0 ? GPU(SetDevice)(0) == GPU(Success)
                                            : choose_part(&v->p);
    v->before = current();
    check_step(v, "what comes before", ready);
    for (int i = 0; i < GPU_CASES; i++)
        call_library(v, &gpu_cases[i]);
    call_benchmark(v);
    call_in_vain(v);
    return NULL;
}

static void expect_unchanged(visit *v)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, visit_all, v), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_str_eq(v->error, "");
}

/* False, and says so, where there are not as many devices. */
static bool has_device(int device)
{
    int count = 0;
    succeed(GPU(GetDeviceCount)(&count));
    if (device >= count)
        printf("%d device: calls on another than the current one are skipped\n", count);
    return device < count;
}

#ifndef COPES_FAMILY_HIP /* which has no threads without a device */
/* The first of all tests, as none before it may have used device 0. */
START_TEST(calls_on_a_device_leave_others_alone)
{
    if (!has_device(1))
        return;
    ck_assert(!is_active(0));
    expect_unchanged(&(visit){.device = 1, .has = NOTHING});
    ck_assert(is_active(1));
    ck_assert(!is_active(0));
}
END_TEST

START_TEST(a_thread_without_a_context_stays_so)
{
    visit v = {.device = 0, .has = NOTHING};
    expect_unchanged(&v);
    ck_assert_ptr_null(v.before);
}
END_TEST
#endif

START_TEST(what_is_current_stays)
{
    if (has_device(_i))
        expect_unchanged(&(visit){.device = _i, .has = DEVICE_0});
}
END_TEST

START_TEST(a_green_context_stays_current)
{
    visit v = {.device = _i, .has = PART_OF_DEVICE_0};
    if (!has_device(_i) || !open_part(&v.p, 16))
        return;
    expect_unchanged(&v);
    close_part(&v.p);
}
END_TEST

TCase *caller_tests(void)
{
    TCase *tests = tcase_create("caller");
    tcase_set_timeout(tests, 300);
#ifndef COPES_FAMILY_HIP
    tcase_add_test(tests, calls_on_a_device_leave_others_alone);
    tcase_add_test(tests, a_thread_without_a_context_stays_so);
#endif
    tcase_add_loop_test(tests, what_is_current_stays, 0, 2);
    tcase_add_loop_test(tests, a_green_context_stays_current, 0, 2);
    return tests;
}
