/* What was run, and what failed, in words. */
#ifndef COPES_TESTS_DIFFERENTIAL_REPORT_H
#define COPES_TESTS_DIFFERENTIAL_REPORT_H

#include "tests/differential/trial.h"

#include <stdio.h>

/* The failed or dead trial: what is wrong, the command that repeats it, the case, and how its tensors lie. */
void report_failure(FILE *stream, const trial *t, const char *what);

void report_add(trial_counts *sum, const trial_counts *more);

/* Executions by operator, level, type and number of threads. */
void report_counts(FILE *stream, const trial_counts *counts, double seconds);

#endif
