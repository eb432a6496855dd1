/* What the benchmark needs of a device besides the library and memory/memory.h: the time of a call with cold
 * caches, a copy to compare it with, and the peak of the arithmetic units. A backend adds one table of these. */
#ifndef COPES_BENCH_DEVICE_H
#define COPES_BENCH_DEVICE_H

#include <copes/copes.h>

#include <stdbool.h>

/* Work to be timed: run, or on a GPU enqueue on the context's stream. 0, or -1 for a failure. With `replay` it is recorded, and the record
 * replayed, on devices that can. */
typedef struct bench_job {
    int (*run)(void *what);
    void *what;
    bool replay;
} bench_job;

typedef struct bench_device {
    DLDeviceType device_type;
    int copies;   /* ways to copy; the fastest at a case's size is its floor */
    bool replays; /* can it record a job and replay it? */

    /* Opens the device and sets the options of the context to be timed. NULL where it failed. */
    void *(*open)(int device, copes_context_options *options);
    void (*close)(void *state);

    /* Bytes of memory that are free. */
    int64_t (*free_memory)(void *state);

    /* Milliseconds of one run of a job whose data is in no cache; below 0 where it failed. */
    double (*time)(void *state, const bench_job *job);

    /* Copies within the device, in one of the ways. As a job does. */
    int (*copy)(void *state, int way, void *to, const void *from, size_t bytes);

    /* A job of as many independent multiply-adds in float32 as the device can do, and their number; 0: there is
     * none. */
    int (*multiply_add)(void *state);
    double (*multiply_adds)(void *state);
} bench_device;

/* NULL: no such device in this build. */
const bench_device *bench_device_of(DLDeviceType type);

extern const bench_device bench_device_cpu, bench_device_cuda, bench_device_hip;

#endif
