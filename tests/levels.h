/* The CPU's instruction-set levels, for tests that run at each of them. */
#ifndef COPES_TESTS_LEVELS_H
#define COPES_TESTS_LEVELS_H

#include <copes/copes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Of all architectures; every build and every processor has the first. */
enum { LEVELS = 5 };
static const char *const level_names[LEVELS] = {"baseline", "avx2", "avx512", "avx512bf16", "sve256"};

/* A context at a level; NULL where the processor or the build lacks it. False where it failed for another reason. */
static inline bool open_level(const char *level, int32_t threads, copes_context **context)
{
    const copes_context_options options = {.threads = threads};
    *context = NULL;
    setenv("COPES_CPU_ISA", level, 1);
    const copes_status status = copes_context_create((DLDevice){kDLCPU, 0}, &options, context);
    unsetenv("COPES_CPU_ISA");
    return status == COPES_OK || (status == COPES_ERROR_ATTRIBUTE && strcmp(level, level_names[0]) != 0);
}

static inline bool level_runs(const char *level)
{
    copes_context *context;
    open_level(level, 1, &context);
    const bool runs = context != NULL;
    copes_context_destroy(context);
    return runs;
}

#endif
