/* Allocations: each one of a context fails once, in turn, and nothing leaks; a run never makes one. The linker puts the
 * functions below in the place of malloc and its kin (-Wl,--wrap), so the library is linked statically. */
#include "tests/small_calls.h"
#include "tests/suite.h"

#include <copes/copes.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size);
void __wrap_free(void *memory);
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **memory, size_t alignment, size_t size);
void __real_free(void *memory);

static long until_failure = -1; /* allocations that succeed before one fails; negative: all succeed */
static bool watching;           /* only while the library runs, since Check allocates too */
static long made, live;         /* allocations seen, and those of them not yet freed */

static bool fails_now(void)
{
    made += watching;
    if (!watching || until_failure < 0)
        return false;
    return until_failure-- == 0;
}

static void *count_live(void *memory)
{
    live += watching && memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : count_live(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : count_live(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    if (fails_now())
        return NULL;
    live -= watching && memory != NULL;
    return count_live(__real_realloc(memory, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails_now() ? NULL : count_live(__real_aligned_alloc(alignment, size));
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t size)
{
    *memory = NULL;
    const int error = fails_now() ? ENOMEM : __real_posix_memalign(memory, alignment, size);
    live += watching && *memory != NULL;
    return error;
}

void __wrap_free(void *memory)
{
    live -= watching && memory != NULL;
    __real_free(memory);
}

static const DLDevice cpu = {kDLCPU, 0};

START_TEST(context_survives)
{
    copes_status status = COPES_ERROR_MEMORY;
    long failures = 0;
    for (; status != COPES_OK; failures++) {
        copes_context *context = (copes_context *)&context;
        until_failure = failures;
        watching = true;
        status = copes_context_create(cpu, NULL, &context);
        watching = false;
        if (status != COPES_OK) {
            ck_assert_int_eq(status, COPES_ERROR_MEMORY);
            ck_assert_ptr_null(context);
            ck_assert_msg(strncmp(copes_last_error(), "context: ", 9) == 0 &&
                              strstr(copes_last_error(), " bytes could not be allocated") != NULL,
                          "%s", copes_last_error());
        }
        watching = true;
        copes_context_destroy(context);
        watching = false;
        ck_assert_int_eq(live, 0);
    }
    ck_assert_int_gt(failures, 3); /* it allocates three times, so four tries */
    until_failure = -1;
}
END_TEST

START_TEST(run_allocates_nothing)
{
    static small_tensors tensors;
    static char workspace[1 << 24];
    const small_call *call = &small_calls[_i];
    copes_context *context;
    const copes_context_options options = {.threads = 3};
    made = 0;
    ck_assert_int_eq(copes_context_create(cpu, &options, &context), COPES_OK);
    small_call_fill(call, (DLDataType){kDLFloat, 32, 1}, &tensors);
    for (int round = 0; round < 3; round++) {
        size_t size = 0;
        watching = true;
        const copes_status sized = copes_workspace_size(context, &call->op, &tensors.args, &size);
        const copes_status ran = size <= sizeof workspace
                                     ? copes_run(context, &call->op, &tensors.args, workspace, size)
                                     : COPES_ERROR_WORKSPACE;
        watching = false;
        ck_assert_msg(sized == COPES_OK && ran == COPES_OK, "%s: %s", call->name, copes_last_error());
        ck_assert_msg(made == 0, "%s: %ld allocations", call->name, made);
    }
    copes_context_destroy(context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *allocation = tcase_create("allocation");
    tcase_add_test(allocation, context_survives);
    tcase_add_loop_test(allocation, run_allocates_nothing, 0, small_call_count);
    suite_add_tcase(suite, allocation);
    return suite_run(suite);
}
