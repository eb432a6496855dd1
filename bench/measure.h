/* Measuring a call beside a copy of as many bytes. */
#ifndef COPES_BENCH_MEASURE_H
#define COPES_BENCH_MEASURE_H

#include "bench/call.h"
#include "bench/device.h"

typedef struct bench_result {
    double ms, copy_ms; /* medians */
    double share;       /* of the copy's rate: copy_ms / ms */
    double rate;        /* GB/s, read and written */
    double peak_share;  /* of the multiply-adds that the probe does in the same time; 0 for calls that have none */
    double mebibytes;   /* inputs, output and workspace */
    int repeats;
    const char *skipped; /* NULL, or why there is nothing above but mebibytes */
} bench_result;

/* Calls alike, each with memory of its own. With `replay` they are recorded and replayed one after another, and times
 * are of one of them: what a call takes in a graph of many. Without it there is one. */
typedef struct bench_calls {
    bench_call *calls;
    int count;
    bool replay;
} bench_calls;

/* How many calls are to be replayed so that none finds its data in a cache. */
int bench_replays(const bench_call *call);

/* Bytes that measuring such a call takes: its own, and what the copy reads and writes. */
int64_t bench_measure_memory(const bench_call *call);

/* Runs the calls, the copies and the probe in turn, at least 5 times each and for about so many milliseconds. 0, or -1
 * where memory ran out or a run failed. */
int bench_measure(const bench_device *device, void *state, const bench_calls *calls, double budget_ms,
                  bench_result *result);

#endif
