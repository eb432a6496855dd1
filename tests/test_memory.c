/* Allocations: each one of a context fails once, in turn, and nothing leaks; a run never makes one. The linker puts the
 * functions below in the place of malloc and its kin (-Wl,--wrap), so the library is linked statically. */
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

/* Tensors of every slot that the operators below have, large enough that a run takes a workspace and several
 * threads. */
typedef struct small_call {
    const char *name;
    copes_op op;
    int64_t shapes[9][4]; /* of in[0 .. 6], out[0 .. 1]; a first length of 0: no such tensor */
    int ranks[9];
} small_call;

static const small_call calls[] = {
    {"silu", {.kind = COPES_ACT_FORWARD, .act = {COPES_SILU, -1}}, {{64, 33}, [7] = {64, 33}}, {2, [7] = 2}},
    {"softmax", {.kind = COPES_ACT_FORWARD, .act = {COPES_SOFTMAX, 0}}, {{64, 33}, [7] = {64, 33}}, {2, [7] = 2}},
    {"softmax's gradient",
     {.kind = COPES_ACT_BACKWARD, .act = {COPES_SOFTMAX, 1}},
     {[1] = {64, 33}, [2] = {64, 33}, [7] = {64, 33}},
     {[1] = 2, [2] = 2, [7] = 2}},
    {"rotate",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_SOFTMAX, .dim = 1}},
     {{2, 40, 3, 16}, {3, 8}, [7] = {2, 40, 3, 16}, [8] = {2, 3, 16}},
     {4, 2, [7] = 4, [8] = 3}},
    {"cosine's gradient",
     {.kind = COPES_LRPE_BACKWARD, .lrpe = {.variant = COPES_COSINE, .act = COPES_SOFTMAX, .dim = 1}},
     {{2, 40, 3, 16}, {3, 16}, {2, 40, 3, 32}, [7] = {2, 40, 3, 16}},
     {4, 2, 4, [7] = 4}},
    {"wide rows",
     {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_SOFTMAX}},
     {{1, 2, 1, 60000}, {1, 1}, [7] = {1, 2, 1, 60000}},
     {4, 2, [7] = 4}},
    {"tpa_decode",
     {.kind = COPES_TPA_DECODE},
     {{2, 1, 4, 3},
      {2, 1, 3, 16},
      {2, 50, 4, 2},
      {2, 50, 2, 16},
      {2, 50, 4, 2},
      {2, 50, 2, 16},
      [7] = {2, 1, 4, 16},
      [8] = {2, 1, 4}},
     {4, 4, 4, 4, 4, 4, [7] = 4, [8] = 3}},
};

START_TEST(run_allocates_nothing)
{
    static float memory[9][1 << 17];
    static char workspace[1 << 24];
    small_call call = calls[_i];
    DLTensor tensors[9];
    copes_args args = {0};
    copes_context *context;
    const copes_context_options options = {.threads = 3};
    made = 0;
    ck_assert_int_eq(copes_context_create(cpu, &options, &context), COPES_OK);
    for (int i = 0; i < 9; i++) {
        tensors[i] = (DLTensor){.data = memory[i],
                                .device = cpu,
                                .ndim = call.ranks[i],
                                .dtype = {kDLFloat, 32, 1},
                                .shape = call.shapes[i]};
        if (call.ranks[i] > 0)
            *(i < 7 ? &args.in[i] : &args.out[i - 7]) = &tensors[i];
    }
    for (int round = 0; round < 3; round++) {
        size_t size = 0;
        watching = true;
        const copes_status sized = copes_workspace_size(context, &call.op, &args, &size);
        const copes_status ran =
            size <= sizeof workspace ? copes_run(context, &call.op, &args, workspace, size) : COPES_ERROR_WORKSPACE;
        watching = false;
        ck_assert_msg(sized == COPES_OK && ran == COPES_OK, "%s: %s", call.name, copes_last_error());
        ck_assert_msg(made == 0, "%s: %ld allocations", call.name, made);
    }
    copes_context_destroy(context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *allocation = tcase_create("allocation");
    tcase_add_test(allocation, context_survives);
    tcase_add_loop_test(allocation, run_allocates_nothing, 0, sizeof calls / sizeof calls[0]);
    suite_add_tcase(suite, allocation);
    return suite_run(suite);
}
