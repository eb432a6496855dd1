/* Tensors in guarded memory: strides of each layout, and the image that tells which bytes a call has touched. */
#include "tests/harness/buffer.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD = 256 };

static const char *const names[CHECK_LAYOUTS] = {"compact",  "dense",   "swapped", "reversed", "padded",
                                                 "negative", "strided", "odd",     "broadcast"};

const char *check_layout_name(check_layout layout)
{
    return names[layout];
}

/* Axes from the outermost in memory to the innermost. */
static void order_axes(int rank, check_layout layout, int order[COPES_MAX_RANK])
{
    for (int i = 0; i < rank; i++) {
        order[i] = layout == CHECK_REVERSED ? rank - 1 - i : i;
    }
    if (layout == CHECK_SWAPPED && rank > 1) {
        int at = rank > 2;
        order[at] = at + 1;
        order[at + 1] = at;
    }
}

static void lay_out(int rank, const int64_t *shape, check_layout layout, int64_t *strides)
{
    int order[COPES_MAX_RANK] = {0};
    order_axes(rank, layout, order);
    int64_t step = layout == CHECK_STRIDED ? 2 : 1;
    for (int i = rank - 1; i >= 0; i--) {
        int axis = order[i], innermost = i == rank - 1;
        strides[axis] = step;
        step *= shape[axis] > 0 ? shape[axis] : 1;
        step += innermost && layout == CHECK_PADDED ? 3 : 0;
    }
    if (layout == CHECK_NEGATIVE && rank > 0) {
        strides[0] = -strides[0];
        strides[rank - 1] = rank > 1 ? -strides[rank - 1] : strides[rank - 1];
    }
    if (layout == CHECK_BROADCAST && rank > 0) {
        strides[0] = 0;
    }
}

/* A walk over the elements, row-major, row by row of the last axis. */
typedef struct walk {
    int64_t rows, length, step; /* of the tensor; elements of a row, and the bytes from one to the next */
    int64_t index[COPES_MAX_RANK];
    int64_t at; /* of the row's first element in the image */
} walk;

static walk start(const check_buffer *buffer)
{
    const int last = buffer->tensor.ndim - 1;
    walk w = {.rows = 1, .length = 1, .at = (int64_t)buffer->first};
    for (int i = 0; i < last; i++) {
        w.rows *= buffer->shape[i];
    }
    if (last >= 0) {
        w.length = buffer->shape[last];
        w.step = buffer->strides[last] * check_type_of(buffer->type)->size;
    }
    return w;
}

static void next_row(const check_buffer *buffer, walk *w)
{
    const int64_t size = check_type_of(buffer->type)->size;
    for (int i = buffer->tensor.ndim - 2; i >= 0; i--) {
        w->at += buffer->strides[i] * size;
        if (++w->index[i] < buffer->shape[i]) {
            return;
        }
        w->at -= buffer->shape[i] * buffer->strides[i] * size;
        w->index[i] = 0;
    }
}

static void place(check_buffer *buffer, check_layout layout)
{
    int64_t below = 0, above = 1, size = check_type_of(buffer->type)->size;
    for (int i = 0; i < buffer->tensor.ndim; i++) {
        int64_t reach = (buffer->shape[i] > 0 ? buffer->shape[i] - 1 : 0) * buffer->strides[i];
        below -= reach < 0 ? reach : 0;
        above += reach > 0 ? reach : 0;
    }
    buffer->first = GUARD + (size_t)(below * size) + (layout == CHECK_ODD);
    buffer->bytes = buffer->first + (size_t)(above * size) + GUARD;
}

/* Where the tensor's data begins in an allocation, which need not be there. */
static void *data_in(const check_buffer *buffer, uintptr_t allocation)
{
    const uintptr_t data = allocation + buffer->first - (uintptr_t)buffer->tensor.byte_offset;
    return (void *)data; /* NOLINT(performance-no-int-to-ptr) */
}

void check_buffer_describe(check_buffer *buffer, DLDevice device, check_type type, int rank, const int64_t *shape,
                           check_layout layout, uintptr_t address)
{
    *buffer = (check_buffer){.type = type};
    memcpy(buffer->shape, shape, (size_t)rank * sizeof *shape);
    lay_out(rank, shape, layout, buffer->strides);
    buffer->tensor = (DLTensor){.device = device,
                                .ndim = rank,
                                .dtype = check_type_of(type)->dlpack,
                                .shape = buffer->shape,
                                .strides = layout == CHECK_COMPACT ? NULL : buffer->strides};
    place(buffer, layout);
    buffer->tensor.byte_offset = layout == CHECK_PADDED ? (uint64_t)check_type_of(type)->size : 0;
    buffer->tensor.data = data_in(buffer, address);
}

int check_buffer_create(check_buffer *buffer, DLDevice device, check_type type, int rank, const int64_t *shape,
                        check_layout layout, unsigned char poison)
{
    check_buffer_describe(buffer, device, type, rank, shape, layout, 0);
    buffer->memory = device_memory_of(device.device_type);
    buffer->image = malloc(buffer->bytes);
    buffer->device = buffer->memory->allocate(device.device_id, buffer->bytes);
    if (buffer->image == NULL || buffer->device == NULL) {
        return -1;
    }
    memset(buffer->image, poison, buffer->bytes);
    buffer->tensor.data = data_in(buffer, (uintptr_t)buffer->device);
    return buffer->memory->write(device.device_id, buffer->device, buffer->image, buffer->bytes);
}

void check_buffer_destroy(check_buffer *buffer)
{
    if (buffer->whole == NULL) {
        free(buffer->image);
    }
    if (buffer->whole == NULL && buffer->device != NULL) {
        buffer->memory->release(buffer->tensor.device.device_id, buffer->device);
    }
    *buffer = (check_buffer){.image = NULL};
}

void check_buffer_view(check_buffer *buffer, check_buffer *whole, int64_t first_head, const int64_t *shape)
{
    char *const data = whole->tensor.data;
    const int64_t begin = first_head * whole->strides[2] * check_type_of(whole->type)->size;
    *buffer = *whole;
    buffer->whole = whole;
    memcpy(buffer->shape, shape, 4 * sizeof *shape);
    buffer->first += (size_t)begin;
    buffer->tensor.data = data + begin;
    buffer->tensor.shape = buffer->shape;
    buffer->tensor.strides = buffer->strides;
}

int check_buffer_write(check_buffer *buffer, const double *values)
{
    walk w = start(buffer);
    for (int64_t row = 0; row < w.rows; row++, next_row(buffer, &w)) {
        for (int64_t i = 0; i < w.length; i++) {
            check_encode(buffer->type, *values++, buffer->image + w.at + i * w.step);
        }
    }
    return buffer->memory->write(buffer->tensor.device.device_id, buffer->device, buffer->image, buffer->bytes);
}

/* An element's bits, which are copied. By constants, as the calls of memcpy would take most of the time. */
static uint64_t copy_element(unsigned char *to, const unsigned char *from, int size)
{
    uint64_t bits = 0;
    switch (size) {
    case 1: memcpy(to, memcpy(&bits, from, 1), 1); break;
    case 2: memcpy(to, memcpy(&bits, from, 2), 2); break;
    case 4: memcpy(to, memcpy(&bits, from, 4), 4); break;
    default: memcpy(to, memcpy(&bits, from, 8), 8);
    }
    return bits;
}

static uint64_t mix(uint64_t hash, uint64_t bits)
{
    hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

static uint64_t take_elements(check_buffer *buffer, const unsigned char *after, uint64_t hash)
{
    const int size = check_type_of(buffer->type)->size;
    walk w = start(buffer);
    for (int64_t row = 0; row < w.rows; row++, next_row(buffer, &w)) {
        for (int64_t i = 0; i < w.length; i++) {
            const int64_t at = w.at + i * w.step;
            hash = mix(hash, copy_element(buffer->image + at, after + at, size));
        }
    }
    return hash;
}

int check_buffer_read(check_buffer *buffer, uint64_t *hash)
{
    unsigned char *after = malloc(buffer->bytes);
    if (after == NULL ||
        buffer->memory->read(buffer->tensor.device.device_id, after, buffer->device, buffer->bytes) != 0) {
        free(after);
        return -1;
    }
    if (hash != NULL) {
        *hash = take_elements(buffer, after, *hash);
    }
    int changed = buffer->whole == NULL && memcmp(buffer->image, after, buffer->bytes) != 0;
    free(after);
    return changed;
}

void check_buffer_values(const check_buffer *buffer, double *values)
{
    walk w = start(buffer);
    for (int64_t row = 0; row < w.rows; row++, next_row(buffer, &w)) {
        for (int64_t i = 0; i < w.length; i++) {
            *values++ = check_decode(buffer->type, buffer->image + w.at + i * w.step);
        }
    }
}
