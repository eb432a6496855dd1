/* How long a benchmark will take, before it runs. */
#ifndef COPES_TOOLS_BENCH_ESTIMATE_H
#define COPES_TOOLS_BENCH_ESTIMATE_H

#include "bench/measure.h"

/* What the cases are to be measured with. */
typedef struct bench_plan {
    const bench_device *device;
    void *state;
    copes_context *context;
    DLDevice id;
    double budget_ms; /* of a case */
    bool replay;
} bench_plan;

/* The bytes that a case may take: 60 % of the free memory. */
static inline double bench_memory_limit(const bench_plan *plan)
{
    return 0.6 * (double)plan->device->free_memory(plan->state);
}

/* Seconds, from each case's bytes and the time in which the device fills and copies some. Below 0 where that failed. */
double bench_estimate(const bench_plan *plan, const bench_list *list);

#endif
