/* Reading safetensors: the header through a strict check and cJSON, then every claim it makes checked against the bytes there are. */
#include "tools/safetensors.h"

#include "tools/json_text.h"

#include <cJSON.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the data are used as they lie in the file");

static const struct {
    const char *name;
    size_t size;
} dtypes[SAFETENSORS_DTYPES] = {{"F64", 8}, {"F32", 4}, {"F16", 2},     {"BF16", 2},
                                {"I32", 4}, {"I64", 8}, {"F8_E4M3", 1}, {"U8", 1}};

const char *safetensors_dtype_name(safetensors_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t safetensors_dtype_size(safetensors_dtype dtype)
{
    return dtypes[dtype].size;
}

bool safetensors_size(const safetensors_tensor *tensor, size_t *size)
{
    uint64_t bound = dtypes[tensor->dtype].size; /* zeros taken as ones, so that no order of lengths overflows */
    bool empty = false;
    for (int i = 0; i < tensor->rank; i++) {
        const int64_t length = tensor->shape[i];
        if (length < 0 || (length > 0 && bound > (uint64_t)INT64_MAX / (uint64_t)length))
            return false;
        bound *= length > 0 ? (uint64_t)length : 1;
        empty = empty || length == 0;
    }
    *size = empty ? 0 : (size_t)bound;
    return true;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static bool
fail(char reason[SAFETENSORS_REASON], const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(reason, SAFETENSORS_REASON, format, values);
    va_end(values);
    /* The message is to stay one plain line: names come from the file, and may be cut in the middle of a letter. */
    for (char *c = reason; *c != '\0';) {
        const size_t length = (unsigned char)*c < ' ' || *c == 0x7f ? 0 : json_text_utf8(c, strlen(c));
        if (length == 0)
            *c = '?';
        c += length > 0 ? length : 1;
    }
    return false;
}

/* Doubles hold every integer below 2^53; at and past it cJSON has rounded. */
static bool read_integer(const cJSON *item, int64_t *value)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble >= 9007199254740992.0 ||
        item->valuedouble != (double)(int64_t)item->valuedouble)
        return false;
    *value = (int64_t)item->valuedouble;
    return true;
}

/* The one member of this name in an entry of the header, or NULL where it lacks, comes twice or has another type. */
static const cJSON *find_member(const cJSON *entry, const char *name, cJSON_bool (*is_type)(const cJSON *))
{
    const cJSON *member, *found = NULL;
    int times = 0;
    cJSON_ArrayForEach(member, entry)
    {
        if (strcmp(member->string, name) == 0) {
            found = member;
            times++;
        }
    }
    return times == 1 && is_type(found) ? found : NULL;
}

static bool read_dtype(const cJSON *entry, safetensors_tensor *tensor, char reason[SAFETENSORS_REASON])
{
    const cJSON *item = find_member(entry, "dtype", cJSON_IsString);
    if (item == NULL)
        return fail(reason, "tensor \"%.100s\" must have one dtype, a string", entry->string);
    for (int i = 0; i < SAFETENSORS_DTYPES; i++)
        if (strcmp(item->valuestring, dtypes[i].name) == 0) {
            tensor->dtype = (safetensors_dtype)i;
            return true;
        }
    return fail(reason, "tensor \"%.100s\" has dtype %.40s; it must be F64, F32, F16, BF16, I32, I64, F8_E4M3 or U8",
                entry->string, item->valuestring);
}

static bool read_shape(const cJSON *entry, safetensors_tensor *tensor, char reason[SAFETENSORS_REASON])
{
    const cJSON *item = find_member(entry, "shape", cJSON_IsArray), *length;
    if (item == NULL)
        return fail(reason, "tensor \"%.100s\" must have one shape, a list", entry->string);
    cJSON_ArrayForEach(length, item)
    {
        if (tensor->rank == SAFETENSORS_MAX_RANK)
            return fail(reason, "tensor \"%.100s\" has rank %d; at most %d is read", entry->string,
                        cJSON_GetArraySize(item), SAFETENSORS_MAX_RANK);
        if (!read_integer(length, &tensor->shape[tensor->rank]))
            return fail(reason, "tensor \"%.100s\" has a shape whose length %d is not an integer from 0 to 2^53 - 1",
                        entry->string, tensor->rank);
        tensor->rank++;
    }
    if (!safetensors_size(tensor, &tensor->size))
        return fail(reason, "tensor \"%.100s\" has a shape whose size in bytes does not fit 63 bits", entry->string);
    return true;
}

static bool read_offsets(const cJSON *entry, size_t data_size, safetensors_tensor *tensor,
                         char reason[SAFETENSORS_REASON])
{
    const cJSON *item = find_member(entry, "data_offsets", cJSON_IsArray);
    int64_t begin, end;
    if (item == NULL || cJSON_GetArraySize(item) != 2 || !read_integer(item->child, &begin) ||
        !read_integer(item->child->next, &end))
        return fail(reason, "tensor \"%.100s\" must have one data_offsets, a list of two integers from 0 to 2^53 - 1",
                    entry->string);
    if (begin > end)
        return fail(reason, "tensor \"%.100s\" has data_offsets [%lld, %lld], which are reversed", entry->string,
                    (long long)begin, (long long)end);
    if ((uint64_t)end > data_size)
        return fail(reason, "tensor \"%.100s\" has data_offsets [%lld, %lld], past the end of the %zu bytes of data",
                    entry->string, (long long)begin, (long long)end, data_size);
    if ((uint64_t)(end - begin) != tensor->size)
        return fail(reason, "tensor \"%.100s\" has data_offsets [%lld, %lld], but its shape and dtype take %zu bytes",
                    entry->string, (long long)begin, (long long)end, tensor->size);
    tensor->offset = (size_t)begin;
    return true;
}

/* __metadata__ is free text for people: its form is checked, its content not used. */
static bool check_metadata(const cJSON *entry, char reason[SAFETENSORS_REASON])
{
    const cJSON *text;
    if (!cJSON_IsObject(entry))
        return fail(reason, "__metadata__ is not an object");
    cJSON_ArrayForEach(text, entry)
    {
        if (!cJSON_IsString(text))
            return fail(reason, "__metadata__ has a value, \"%.100s\", that is not a string", text->string);
    }
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const safetensors_tensor *)a)->name, ((const safetensors_tensor *)b)->name);
}

static int compare_offsets(const void *a, const void *b)
{
    const safetensors_tensor *left = a, *right = b;
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    return left->size < right->size ? -1 : left->size > right->size;
}

/* The format has every byte of the data belong to exactly one tensor. Sorts them by place. */
static bool check_cover(safetensors_file *file, size_t data_size, char reason[SAFETENSORS_REASON])
{
    size_t end = 0;
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_offsets);
    for (size_t i = 0; i < file->count; i++) {
        const safetensors_tensor *tensor = &file->tensors[i];
        if (tensor->offset < end)
            return fail(reason, "tensors \"%.100s\" and \"%.100s\" overlap in the data", tensor[-1].name, tensor->name);
        if (tensor->offset > end)
            return fail(reason, "bytes %zu to %zu of the data, before tensor \"%.100s\", belong to no tensor", end,
                        tensor->offset - 1, tensor->name);
        end += tensor->size;
    }
    if (end != data_size)
        return fail(reason, "bytes %zu to %zu at the end of the data belong to no tensor", end, data_size - 1);
    return true;
}

/* Sorts the tensors by name. */
static bool check_names(safetensors_file *file, char reason[SAFETENSORS_REASON])
{
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_names);
    for (size_t i = 1; i < file->count; i++)
        if (strcmp(file->tensors[i - 1].name, file->tensors[i].name) == 0)
            return fail(reason, "the header names tensor \"%.100s\" twice", file->tensors[i].name);
    return true;
}

static bool read_tensors(const cJSON *header, const unsigned char *data, size_t data_size, safetensors_file *file,
                         char reason[SAFETENSORS_REASON])
{
    const cJSON *entry;
    bool has_metadata = false;
    file->tensors = calloc((size_t)cJSON_GetArraySize(header) + 1, sizeof *file->tensors);
    if (file->tensors == NULL)
        return fail(reason, "out of memory");
    cJSON_ArrayForEach(entry, header)
    {
        safetensors_tensor *tensor = &file->tensors[file->count];
        if (strcmp(entry->string, "__metadata__") == 0) {
            if (has_metadata)
                return fail(reason, "the header has __metadata__ twice");
            if (!check_metadata(entry, reason))
                return false;
            has_metadata = true;
            continue;
        }
        if (!cJSON_IsObject(entry))
            return fail(reason, "tensor \"%.100s\" is not described by an object", entry->string);
        if (!read_dtype(entry, tensor, reason) || !read_shape(entry, tensor, reason) ||
            !read_offsets(entry, data_size, tensor, reason))
            return false;
        tensor->data = data + tensor->offset;
        tensor->name = strdup(entry->string);
        if (tensor->name == NULL)
            return fail(reason, "out of memory");
        file->count++;
    }
    return check_cover(file, data_size, reason) && check_names(file, reason);
}

/* The header as JSON, from a copy: its numbers are made ready for cJSON, of which some releases read past a text that no
 * NUL ends. */
static cJSON *parse_header(const char *text, size_t size, char reason[SAFETENSORS_REASON])
{
    size_t at;
    char *copy = malloc(size + 1);
    if (copy == NULL) {
        fail(reason, "out of memory");
        return NULL;
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    const char *wrong = json_text_check(copy, size, &at);
    cJSON *header = wrong == NULL && copy[0] == '{' ? cJSON_ParseWithOpts(copy, NULL, 1) : NULL;
    if (wrong != NULL)
        fail(reason, "the header is not JSON: its byte %zu, 0x%02x, %s", at, (unsigned char)text[at], wrong);
    else if (header == NULL)
        fail(reason, "the header is not a JSON object");
    free(copy);
    return header;
}

bool safetensors_parse(const void *bytes, size_t size, safetensors_file *file, char reason[SAFETENSORS_REASON])
{
    const unsigned char *byte = bytes;
    uint64_t length = 0;
    *file = (safetensors_file){0};
    if (size < 8)
        return fail(reason, "the file has %zu bytes, too few for a header length", size);
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)byte[i] << (8 * i);
    if (length > SAFETENSORS_MAX_HEADER)
        return fail(reason, "the header would have %llu bytes; at most %u are read", (unsigned long long)length,
                    SAFETENSORS_MAX_HEADER);
    if (length > size - 8)
        return fail(reason, "the header would have %llu bytes, but only %zu follow: the file is cut off",
                    (unsigned long long)length, size - 8);
    const size_t start = 8 + (size_t)length;
    cJSON *header = parse_header((const char *)byte + 8, (size_t)length, reason);
    if (header == NULL)
        return false;
    const bool ok = read_tensors(header, byte + start, size - start, file, reason);
    cJSON_Delete(header);
    if (!ok)
        safetensors_close(file);
    return ok;
}

void safetensors_close(safetensors_file *file)
{
    for (size_t i = 0; i < file->count; i++)
        free((void *)(uintptr_t)file->tensors[i].name);
    free(file->tensors);
    if (file->map != NULL)
        munmap(file->map, file->map_size);
    *file = (safetensors_file){0};
}

const safetensors_tensor *safetensors_find(const safetensors_file *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}
