/* The file of `copes bench --json`. */
#ifndef COPES_TOOLS_BENCH_H
#define COPES_TOOLS_BENCH_H

#include "bench/measure.h"

typedef struct bench_json bench_json;

/* A report to be filled; NULL without memory. `device` is its line from copes_device_summary. */
bench_json *bench_json_create(const char *device);
int bench_json_add(bench_json *json, const bench_case *c, const bench_result *result); /* 0, or -1 without memory */

void bench_json_free(bench_json *json);

/* Writes the file, which appears whole or not at all. An exit status, with the complaint printed. */
int bench_json_save(const bench_json *json, const char *path);

/* Before anything is measured: can the file be written? An exit status as above. */
int bench_json_try(const char *path);

#endif
