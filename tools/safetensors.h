/* The safetensors file format: eight bytes of header length (little-endian), a JSON header that names each tensor's
 * type, shape and place, then the data. The reader trusts nothing: it takes a file only if the header describes every
 * byte. */
#ifndef COPES_TOOLS_SAFETENSORS_H
#define COPES_TOOLS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    SAFETENSORS_MAX_RANK = 8,
    SAFETENSORS_REASON = 512 /* bytes of a message */
};

#define SAFETENSORS_MAX_HEADER 100000000u /* bytes; the reference implementation's limit */

typedef enum safetensors_dtype {
    SAFETENSORS_F64,
    SAFETENSORS_F32,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_I32,
    SAFETENSORS_I64,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_U8,
    SAFETENSORS_DTYPES
} safetensors_dtype;

typedef struct safetensors_tensor {
    const char *name;
    safetensors_dtype dtype;
    int rank;
    int64_t shape[SAFETENSORS_MAX_RANK];
    size_t offset;    /* of the data, from the end of the header; the writer works it out */
    size_t size;      /* bytes of the data: shape times the type's size */
    const void *data; /* of any alignment */
} safetensors_tensor;

/* What a reader found. The tensors point into the bytes that were read. */
typedef struct safetensors_file {
    size_t count;
    safetensors_tensor *tensors; /* in the order of their names */
    void *map;                   /* the file in memory; NULL after safetensors_parse */
    size_t map_size;
} safetensors_file;

/* Each of these returns false, with one line in `reason`, on a failure; the file is then empty and needs no closing. */
bool safetensors_parse(const void *bytes, size_t size, safetensors_file *file, char reason[SAFETENSORS_REASON]);
bool safetensors_open(const char *path, safetensors_file *file, char reason[SAFETENSORS_REASON]);

void safetensors_close(safetensors_file *file);

/* The tensor of this name, or NULL. */
const safetensors_tensor *safetensors_find(const safetensors_file *file, const char *name);

/* Writes a file of these tensors (of which `offset` and `size` are not read), the largest type first and then by
 * name. */
bool safetensors_write(FILE *stream, const safetensors_tensor *tensors, size_t count, char reason[SAFETENSORS_REASON]);

/* Writes the file at `path` whole or not at all: after a failure, what stood at `path` still does. */
bool safetensors_save(const char *path, const safetensors_tensor *tensors, size_t count,
                      char reason[SAFETENSORS_REASON]);

const char *safetensors_dtype_name(safetensors_dtype dtype);
size_t safetensors_dtype_size(safetensors_dtype dtype);

/* Bytes of the tensor's data by its shape and type; false where a length is negative or they do not fit 63 bits. */
bool safetensors_size(const safetensors_tensor *tensor, size_t *size);

#endif
