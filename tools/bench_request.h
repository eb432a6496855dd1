/* What a line of `copes bench` or `copes explain` asks for. */
#ifndef COPES_TOOLS_BENCH_REQUEST_H
#define COPES_TOOLS_BENCH_REQUEST_H

#include "bench/case.h"

typedef struct bench_request {
    bench_wish wish;
    DLDevice device;
    const char *json;
    bool replay, explain, help;
} bench_request;

/* The flags that say which calls, as --help lists them. */
extern const char bench_request_help[];

/* False where it complained. */
bool bench_request_read(int argc, char **argv, bench_request *r);

#endif
