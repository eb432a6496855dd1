/* Composes and parses small safetensors files. */
#include "tests/header_case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

size_t header_compose(unsigned char bytes[HEADER_ROOM], const char *header, size_t data_size)
{
    const size_t length = strlen(header);
    ck_assert_uint_le(8 + length + data_size, HEADER_ROOM);
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> (8 * i));
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_size; i++)
        bytes[8 + length + i] = (unsigned char)i;
    return 8 + length + data_size;
}

bool header_parse(const unsigned char *bytes, size_t size, safetensors_file *file, char *reason)
{
    unsigned char *exact = malloc(size > 0 ? size : 1);
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, bytes, size);
    const bool ok = safetensors_parse(exact, size, file, reason);
    for (size_t i = 0; ok && i < file->count; i++) /* where it would be in `bytes`, which stay */
        file->tensors[i].data = bytes + ((const unsigned char *)file->tensors[i].data - exact);
    free(exact);
    return ok;
}

void header_refuse(const char *header, size_t data_size, const char *reason)
{
    unsigned char bytes[HEADER_ROOM];
    char got[SAFETENSORS_REASON] = "";
    safetensors_file file;
    const bool ok = header_parse(bytes, header_compose(bytes, header, data_size), &file, got);
    ck_assert_msg(!ok, "taken: %s", header);
    ck_assert_str_eq(got, reason);
    ck_assert_uint_eq(file.count, 0);
    ck_assert_ptr_null(file.tensors);
}
