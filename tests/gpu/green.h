/* A part of a device: some of its multiprocessors, as a green context, which only CUDA has, and a stream of it. */
#ifndef COPES_TESTS_GPU_GREEN_H
#define COPES_TESTS_GPU_GREEN_H

#include "memory/current.h"

#include <stdbool.h>

typedef struct part {
    GPU(Stream_t) stream;
    void *context;
} part;

/* Of device 0. False where the family or the driver does not know how, or the device has no more than that. */
bool open_part(part *p, unsigned multiprocessors);
void close_part(part *p);

/* Makes it what the calling thread has current; false where it could not. */
bool choose_part(const part *p);

#endif
