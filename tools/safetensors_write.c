/* Writing safetensors to a stream, the header through cJSON. */
#include "tools/safetensors.h"

#include <cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool fail(char reason[SAFETENSORS_REASON], const char *text)
{
    snprintf(reason, SAFETENSORS_REASON, "%s", text);
    return false;
}

/* The largest type first, as the reference implementation has it, so that every tensor is aligned to its type. */
static int compare_places(const void *a, const void *b)
{
    const safetensors_tensor *left = a, *right = b;
    const size_t left_size = safetensors_dtype_size(left->dtype), right_size = safetensors_dtype_size(right->dtype);
    if (left_size != right_size)
        return left_size > right_size ? -1 : 1;
    return strcmp(left->name, right->name);
}

/* A number as written: cJSON's own are doubles. */
static bool add_integer(cJSON *list, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    cJSON *item = cJSON_CreateRaw(text);
    if (cJSON_AddItemToArray(list, item))
        return true;
    cJSON_Delete(item);
    return false;
}

static bool add_entry(cJSON *header, const safetensors_tensor *tensor)
{
    cJSON *entry = cJSON_AddObjectToObject(header, tensor->name);
    bool ok = cJSON_AddStringToObject(entry, "dtype", safetensors_dtype_name(tensor->dtype)) != NULL;
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
    ok = ok && shape != NULL;
    for (int i = 0; i < tensor->rank; i++)
        ok = add_integer(shape, tensor->shape[i]) && ok;
    cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    ok = add_integer(offsets, (int64_t)tensor->offset) && ok;
    return add_integer(offsets, (int64_t)(tensor->offset + tensor->size)) && ok;
}

/* The header's text, to be freed, or NULL without memory. The tensors are in their places already. */
static char *print_header(const safetensors_tensor *tensors, size_t count)
{
    cJSON *header = cJSON_CreateObject();
    bool ok = header != NULL;
    for (size_t i = 0; i < count && ok; i++)
        ok = add_entry(header, &tensors[i]);
    char *text = ok ? cJSON_PrintUnformatted(header) : NULL;
    cJSON_Delete(header);
    return text;
}

static bool write_placed(FILE *stream, const safetensors_tensor *tensors, size_t count, char reason[SAFETENSORS_REASON])
{
    static const char spaces[] = "       ";
    char *text = print_header(tensors, count);
    if (text == NULL)
        return fail(reason, "out of memory");
    const size_t size = strlen(text), padding = (8 - size % 8) % 8; /* the data starts at a multiple of 8 */
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)(size + padding) >> (8 * i));
    bool ok = size + padding <= SAFETENSORS_MAX_HEADER || fail(reason, "the header would be too long");
    if (ok) {
        errno = 0;
        ok = fwrite(length, 1, 8, stream) == 8 && fwrite(text, 1, size, stream) == size &&
             fwrite(spaces, 1, padding, stream) == padding;
        for (size_t i = 0; i < count && ok; i++)
            ok = tensors[i].size == 0 || fwrite(tensors[i].data, 1, tensors[i].size, stream) == tensors[i].size;
        if (!ok || fflush(stream) != 0)
            ok = fail(reason, errno != 0 ? strerror(errno) : "the write failed");
    }
    cJSON_free(text);
    return ok;
}

bool safetensors_write(FILE *stream, const safetensors_tensor *tensors, size_t count, char reason[SAFETENSORS_REASON])
{
    safetensors_tensor *placed = calloc(count + 1, sizeof *placed);
    if (placed == NULL)
        return fail(reason, "out of memory");
    size_t offset = 0;
    bool ok = true;
    for (size_t i = 0; i < count; i++)
        placed[i] = tensors[i];
    qsort(placed, count, sizeof *placed, compare_places);
    for (size_t i = 0; i < count && ok; i++) {
        placed[i].offset = offset;
        ok = safetensors_size(&placed[i], &placed[i].size) && placed[i].size <= (size_t)INT64_MAX - offset;
        offset += placed[i].size;
    }
    ok = ok ? write_placed(stream, placed, count, reason) : fail(reason, "the data would not fit 63 bits of bytes");
    free(placed);
    return ok;
}
