/* Tests of kernels at one instruction-set level of the CPU: does the processor run it? */
#ifndef COPES_TESTS_LEVEL_H
#define COPES_TESTS_LEVEL_H

#include <check.h>
#include <copes/copes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* It does where a context can be had at the level; baseline runs everywhere. */
static inline bool level_runs(const char *level)
{
    const DLDevice cpu = {kDLCPU, 0};
    copes_context *context = NULL;
    setenv("COPES_CPU_ISA", level, 1);
    const copes_status status = copes_context_create(cpu, NULL, &context);
    unsetenv("COPES_CPU_ISA");
    if (status == COPES_OK)
        copes_context_destroy(context);
    else
        ck_assert_msg(strcmp(level, "baseline") != 0, "%s", copes_last_error());
    return status == COPES_OK;
}

#endif
