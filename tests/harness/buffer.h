/* A tensor on a device, in memory of its own that is poisoned and guarded, laid out in any way that DLPack can say. */
#ifndef COPES_TESTS_HARNESS_BUFFER_H
#define COPES_TESTS_HARNESS_BUFFER_H

#include "memory/memory.h"
#include "tests/harness/type.h"

#include <copes/copes.h>

typedef enum check_layout {
    CHECK_COMPACT,   /* strides NULL */
    CHECK_DENSE,     /* the same, with strides */
    CHECK_SWAPPED,   /* the middle two axes change places in memory: (B, N, H, D) stored as (B, H, N, D) */
    CHECK_REVERSED,  /* the first axis is the fastest */
    CHECK_PADDED,    /* rows of three elements more than they hold, and a byte_offset */
    CHECK_NEGATIVE,  /* the first and the last axis run backwards */
    CHECK_STRIDED,   /* every other element */
    CHECK_ODD,       /* dense at an odd address */
    CHECK_BROADCAST, /* the first axis has stride 0; inputs only */
    CHECK_LAYOUTS
} check_layout;

const char *check_layout_name(check_layout layout);

typedef struct check_buffer {
    DLTensor tensor;
    int64_t shape[COPES_MAX_RANK], strides[COPES_MAX_RANK];
    check_type type;
    const device_memory *memory;
    struct check_buffer *whole; /* that this is a view of, in whose memory it lies; NULL: it has its own */
    void *device;               /* the allocation */
    unsigned char *image;       /* what it holds, on the host */
    size_t bytes, first;        /* of the allocation; of the element at index 0 in it */
} check_buffer;

/* All of a buffer but its memory, as if that had been allocated at an address. */
void check_buffer_describe(check_buffer *buffer, DLDevice device, check_type type, int rank, const int64_t *shape,
                           check_layout layout, uintptr_t address);

/* Allocates, filled with `poison`. 0, or -1 where memory ran out. */
int check_buffer_create(check_buffer *buffer, DLDevice device, check_type type, int rank, const int64_t *shape,
                        check_layout layout, unsigned char poison);
void check_buffer_destroy(check_buffer *buffer);

/* Some heads of another, (B, N, heads, features), and the first of their features. That one must be there longer. */
void check_buffer_view(check_buffer *buffer, check_buffer *whole, int64_t first_head, const int64_t *shape);

/* Sends dense row-major values to the device. */
int check_buffer_write(check_buffer *buffer, const double *values);

/* Reads the elements back into the image, and adds their bits to `hash`. Returns 0; -1 where the device failed; 1 where a byte that is
 * no element has changed. With `hash` NULL the elements must not have changed either. Of a view only its elements are read: the rest
 * is seen in a reading of the whole after those of its views. */
int check_buffer_read(check_buffer *buffer, uint64_t *hash);

/* The image's elements as dense row-major values. */
void check_buffer_values(const check_buffer *buffer, double *values);

#endif
