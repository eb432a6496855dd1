/* A lane: a stream, a context on it, and a call of the benchmark with tensors of its own. What fails ends the test. */
#ifndef COPES_TESTS_GPU_LANE_H
#define COPES_TESTS_GPU_LANE_H

#include "bench/call.h"
#include "memory/runtime.h"

static const DLDevice gpu = {GPU_DEVICE_TYPE, 0};

enum { GPU_CASES = 24 };

extern const bench_case gpu_cases[GPU_CASES];

typedef struct lane {
    GPU(Stream_t) stream;
    copes_context *context;
    bench_call call;
} lane;

void succeed(GPU(Error_t) error);

/* On a new stream, or on one that stays when the lane is emptied. */
void open_lane(lane *l, const bench_case *c);
void close_lane(lane *l);
void open_lane_on(GPU(Stream_t) stream, lane *l, const bench_case *c);
void empty_lane(lane *l);

copes_status status_of_run(const lane *l);
void run(const lane *l);

const bench_tensor *output_of(const lane *l);

/* The output's bytes, which the caller frees; what is on the device is poisoned for the next run. */
unsigned char *take_output(const lane *l);
void expect_output(const lane *l, const unsigned char *wanted);

/* Captures the call, the lane's first, in a graph of one launch (some, of two), whose replays give the same bits as a call. */
void expect_replays(const lane *l, const bench_case *c);

#endif
