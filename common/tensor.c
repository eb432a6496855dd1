/* Checks of one tensor, and of the memory that two share. Sizes are user input: every product and sum is checked. */
#include "common/tensor.h"

#include "common/status.h"

#include <stdio.h>

/* Bytes that one dimension, or a byte offset, may reach: sums over 8 dimensions of two tensors stay within 63 bits. */
static const int64_t largest_reach = INT64_MAX / 64;

const char *copes_shape_text(int rank, const int64_t *shape, char text[COPES_SHAPE_TEXT])
{
    int used = snprintf(text, COPES_SHAPE_TEXT, "(");
    for (int i = 0; i < rank && used < COPES_SHAPE_TEXT; i++)
        used +=
            snprintf(text + used, (size_t)(COPES_SHAPE_TEXT - used), i == 0 ? "%lld" : ", %lld", (long long)shape[i]);
    if (used < COPES_SHAPE_TEXT)
        snprintf(text + used, (size_t)(COPES_SHAPE_TEXT - used), rank == 1 ? ",)" : ")");
    return text;
}

/* Strides of a NULL stride array: row-major and compact. */
static void compact_strides(copes_tensor *tensor)
{
    int64_t stride = 1;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        tensor->stride[i] = stride;
        stride *= tensor->shape[i] > 0 ? tensor->shape[i] : 1;
    }
}

/* A length of 1 never takes a step, and a tensor without elements none at all. */
static void read_strides(copes_tensor *tensor, const int64_t *strides)
{
    if (strides == NULL)
        compact_strides(tensor);
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] == 1 || tensor->count == 0)
            tensor->stride[i] = 0;
        else if (strides != NULL)
            tensor->stride[i] = strides[i];
}

static copes_status fail_extent(const char *op, const DLTensor *source, const copes_tensor *tensor)
{
    char shape[COPES_SHAPE_TEXT], strides[COPES_SHAPE_TEXT];
    return copes_fail(COPES_ERROR_SIZE,
                      "%s: %s has shape %s, strides %s and byte offset %llu, which reach past the address space; every "
                      "element must have an address",
                      op, tensor->name, copes_shape_text(tensor->rank, tensor->shape, shape),
                      copes_shape_text(tensor->rank, tensor->stride, strides), (unsigned long long)source->byte_offset);
}

/* The lowest and highest byte that the elements reach, relative to the element at index 0. */
static bool find_extent(copes_tensor *tensor)
{
    const int64_t size = copes_dtype_size(tensor->dtype);
    tensor->low = 0;
    tensor->high = tensor->count > 0 ? size : 0;
    for (int i = 0; i < tensor->rank && tensor->count > 0; i++) {
        const int64_t stride = tensor->stride[i];
        if (stride == INT64_MIN)
            return false;
        const int64_t step = copes_multiply(stride < 0 ? -stride : stride, size);
        const int64_t reach = step < 0 ? -1 : copes_multiply(step, tensor->shape[i] - 1);
        if (reach < 0 || reach > largest_reach)
            return false;
        if (stride < 0)
            tensor->low -= reach;
        else
            tensor->high += reach;
    }
    return true;
}

static copes_status read_shape(const char *op, const char *slot, const DLTensor *source, copes_tensor *tensor)
{
    int64_t bound = 1; /* of the product with zeros taken as ones, so that no order of factors overflows */
    tensor->count = 1;
    for (int i = 0; i < tensor->rank; i++) {
        const int64_t length = source->shape[i];
        if (length < 0)
            return copes_fail(COPES_ERROR_SHAPE, "%s: %s has length %lld in dimension %d; it must be 0 or more", op,
                              slot, (long long)length, i);
        tensor->shape[i] = length;
        tensor->count = length == 0 ? 0 : tensor->count;
        bound = copes_multiply(bound, length > 0 ? length : 1);
        if (bound < 0)
            break;
    }
    if (bound < 0 || copes_multiply(bound, copes_dtype_size(tensor->dtype)) < 0) {
        char text[COPES_SHAPE_TEXT];
        return copes_fail(COPES_ERROR_SIZE, "%s: %s has shape %s of %s; its size in bytes must fit 63 bits", op, slot,
                          copes_shape_text(tensor->rank, source->shape, text), copes_dtype_name(tensor->dtype));
    }
    tensor->count = tensor->count == 0 ? 0 : bound;
    return COPES_OK;
}

const copes_tensor copes_absent = {.name = NULL};

copes_status copes_tensor_read(const char *op, const char *slot, const char *types, const DLTensor *source,
                               copes_tensor *tensor)
{
    *tensor = (copes_tensor){.name = slot, .device = source->device, .rank = source->ndim};
    if (source->ndim < 0 || source->ndim > COPES_MAX_RANK)
        return copes_fail(COPES_ERROR_SHAPE, "%s: %s has rank %d; it must be 0 to %d", op, slot, source->ndim,
                          COPES_MAX_RANK);
    if (source->ndim > 0 && source->shape == NULL)
        return copes_fail(COPES_ERROR_NULL, "%s: %s has a NULL shape; it must point to %d lengths", op, slot,
                          source->ndim);
    if (!copes_dtype_read(source->dtype, &tensor->dtype)) {
        char text[COPES_DTYPE_TEXT];
        return copes_fail(COPES_ERROR_DTYPE, "%s: %s has type %s; it must be %s", op, slot,
                          copes_dtype_text(source->dtype, text), types);
    }
    COPES_TRY(read_shape(op, slot, source, tensor));
    read_strides(tensor, source->strides);
    const uintptr_t base = (uintptr_t)source->data;
    if (!find_extent(tensor) || source->byte_offset > (uint64_t)largest_reach ||
        base > UINTPTR_MAX - source->byte_offset ||
        (base != 0 && base + source->byte_offset < (uintptr_t)-tensor->low) ||
        base + source->byte_offset > UINTPTR_MAX - (uintptr_t)tensor->high)
        return fail_extent(op, source, tensor);
    tensor->data = source->data == NULL ? NULL : (char *)source->data + source->byte_offset;
    return COPES_OK;
}

static int64_t magnitude(int64_t value)
{
    return value < 0 ? -value : value;
}

/* Sufficient and, but for contrived strides, necessary: taken from the smallest stride up, each step must clear all
 * that the smaller ones cover. */
copes_status copes_tensor_check_distinct(const char *op, const copes_tensor *tensor)
{
    int64_t covered = 0; /* the largest offset that the dimensions so far reach */
    bool used[COPES_MAX_RANK] = {false};
    for (int round = 0; round < tensor->rank && tensor->count > 0; round++) {
        int next = -1;
        for (int i = 0; i < tensor->rank; i++)
            if (!used[i] && (next < 0 || magnitude(tensor->stride[i]) < magnitude(tensor->stride[next])))
                next = i;
        used[next] = true;
        if (tensor->shape[next] == 1)
            continue;
        const int64_t stride = magnitude(tensor->stride[next]);
        if (stride <= covered) {
            char shape[COPES_SHAPE_TEXT], strides[COPES_SHAPE_TEXT];
            return copes_fail(COPES_ERROR_STRIDE,
                              "%s: %s has shape %s with strides %s, where elements overlap; each element of an output "
                              "must have its own memory",
                              op, tensor->name, copes_shape_text(tensor->rank, tensor->shape, shape),
                              copes_shape_text(tensor->rank, tensor->stride, strides));
        }
        covered += stride * (tensor->shape[next] - 1);
    }
    return COPES_OK;
}

bool copes_tensor_same(const copes_tensor *a, const copes_tensor *b)
{
    bool same = a->data == b->data && a->dtype == b->dtype && a->rank == b->rank;
    for (int i = 0; i < a->rank && same; i++)
        same = a->shape[i] == b->shape[i] && (a->shape[i] <= 1 || a->stride[i] == b->stride[i]);
    return same;
}

/* The bytes that a tensor covers within one period of `pitch`: those of the dimensions whose stride is no multiple of
 * it. False where they spread past a period. */
static bool fold(const copes_tensor *tensor, int64_t pitch, int64_t *low, int64_t *high)
{
    const int64_t size = copes_dtype_size(tensor->dtype);
    *low = 0;
    *high = size;
    for (int i = 0; i < tensor->rank; i++) {
        const int64_t step = tensor->stride[i] * size;
        if (tensor->shape[i] == 1 || step % pitch == 0)
            continue;
        if (step < 0)
            *low += step * (tensor->shape[i] - 1);
        else
            *high += step * (tensor->shape[i] - 1);
    }
    return *high - *low <= pitch;
}

/* Modulo a common pitch, do the two cover separate parts of it? (x and o as two columns of one packed buffer.) */
static bool apart_modulo(const copes_tensor *a, const copes_tensor *b, int64_t pitch)
{
    int64_t a_low, a_high, b_low, b_high;
    if (!fold(a, pitch, &a_low, &a_high) || !fold(b, pitch, &b_low, &b_high))
        return false;
    const int64_t distance = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data) + b_low - a_low;
    const int64_t gap = (distance % pitch + pitch) % pitch; /* from a's first byte to b's first, within a period */
    return gap >= a_high - a_low && gap + (b_high - b_low) <= pitch;
}

/* Are they apart modulo one of `rows`' steps? */
static bool apart_in_rows_of(const copes_tensor *rows, const copes_tensor *a, const copes_tensor *b)
{
    for (int i = 0; i < rows->rank; i++) {
        const int64_t pitch = magnitude(rows->stride[i]) * copes_dtype_size(rows->dtype);
        if (pitch > 0 && apart_modulo(a, b, pitch))
            return true;
    }
    return false;
}

bool copes_tensor_may_overlap(const copes_tensor *a, const copes_tensor *b)
{
    if (a->count == 0 || b->count == 0)
        return false;
    const uintptr_t a_data = (uintptr_t)a->data, b_data = (uintptr_t)b->data;
    if (a_data + (uintptr_t)a->high <= b_data + (uintptr_t)b->low ||
        b_data + (uintptr_t)b->high <= a_data + (uintptr_t)a->low)
        return false;
    return !apart_in_rows_of(a, a, b) && !apart_in_rows_of(b, a, b);
}
