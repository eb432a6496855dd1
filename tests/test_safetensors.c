/* The safetensors reader takes what the format allows, and refuses every malformed file with its reason. */
#include "tests/header_case.h"
#include "tests/suite.h"

#include <stdlib.h>
#include <string.h>

START_TEST(reads_a_file)
{
    unsigned char bytes[HEADER_ROOM];
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    const size_t size = header_compose(bytes,
                                       "{\"__metadata__\":{\"format\":\"pt\"},"
                                       "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                                       "\"a\":{\"shape\":[],\"data_offsets\":[0,4],\"dtype\":\"F32\",\"note\":1},"
                                       "\"none\":{\"dtype\":\"F64\",\"shape\":[5,0,9],\"data_offsets\":[16,16]}}   ",
                                       16);
    ck_assert_msg(header_parse(bytes, size, &file, reason), "%s", reason);
    ck_assert_uint_eq(file.count, 3);
    const safetensors_tensor *a = safetensors_find(&file, "a"), *b = safetensors_find(&file, "b");
    const safetensors_tensor *none = safetensors_find(&file, "none");
    ck_assert_ptr_null(safetensors_find(&file, "__metadata__"));
    ck_assert(a != NULL && a->rank == 0 && a->dtype == SAFETENSORS_F32 && a->size == 4);
    ck_assert(b != NULL && b->rank == 2 && b->shape[0] == 2 && b->shape[1] == 3 && b->size == 12);
    ck_assert(none != NULL && none->rank == 3 && none->shape[1] == 0 && none->size == 0);
    ck_assert_int_eq(*(const unsigned char *)a->data, 0);
    ck_assert_int_eq(*(const unsigned char *)b->data, 4);
    safetensors_close(&file);
    ck_assert_uint_eq(file.count, 0);
}
END_TEST

START_TEST(reads_every_dtype)
{
    static const char *const names[] = {"F64", "F32", "F16", "BF16", "I32", "I64", "F8_E4M3", "U8"};
    static const size_t sizes[] = {8, 4, 2, 2, 4, 8, 1, 1};
    for (int i = 0; i < SAFETENSORS_DTYPES; i++) {
        unsigned char bytes[HEADER_ROOM];
        char header[128], reason[SAFETENSORS_REASON];
        safetensors_file file;
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}", names[i],
                 3 * sizes[i]);
        ck_assert_msg(header_parse(bytes, header_compose(bytes, header, 3 * sizes[i]), &file, reason), "%s", reason);
        ck_assert_int_eq(file.tensors[0].dtype, i);
        ck_assert_str_eq(safetensors_dtype_name(file.tensors[0].dtype), names[i]);
        safetensors_close(&file);
    }
}
END_TEST

START_TEST(reads_a_file_without_tensors)
{
    unsigned char bytes[HEADER_ROOM];
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    ck_assert(header_parse(bytes, header_compose(bytes, "{}", 0), &file, reason));
    ck_assert_uint_eq(file.count, 0);
    safetensors_close(&file);
}
END_TEST

/* An empty tensor may share its place with one that is not. */
START_TEST(reads_empty_tensors_anywhere_between)
{
    unsigned char bytes[HEADER_ROOM];
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    const size_t size = header_compose(bytes,
                                       "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                                       "\"first\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                                       "\"last\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}",
                                       4);
    ck_assert_msg(header_parse(bytes, size, &file, reason), "%s", reason);
    ck_assert_uint_eq(file.count, 3);
    safetensors_close(&file);
}
END_TEST

START_TEST(refuses_lengths)
{
    unsigned char bytes[HEADER_ROOM] = {0};
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    ck_assert(!header_parse(bytes, 0, &file, reason));
    ck_assert_str_eq(reason, "the file has 0 bytes, too few for a header length");
    ck_assert(!header_parse(bytes, 7, &file, reason));
    ck_assert_str_eq(reason, "the file has 7 bytes, too few for a header length");
    ck_assert(!header_parse(bytes, 8, &file, reason));
    ck_assert_str_eq(reason, "the header is not a JSON object");
    bytes[0] = 3;
    ck_assert(!header_parse(bytes, 10, &file, reason));
    ck_assert_str_eq(reason, "the header would have 3 bytes, but only 2 follow: the file is cut off");
    for (int i = 0; i < 8; i++)
        bytes[i] = 0xff;
    ck_assert(!header_parse(bytes, 64, &file, reason));
    ck_assert_str_eq(reason, "the header would have 18446744073709551615 bytes; at most 100000000 are read");
    memcpy(bytes, "\x01\xe1\xf5\x05\0\0\0", 8); /* 100 000 001 */
    ck_assert(!header_parse(bytes, 64, &file, reason));
    ck_assert_str_eq(reason, "the header would have 100000001 bytes; at most 100000000 are read");
    bytes[0] = 0; /* 100 000 000 */
    ck_assert(!header_parse(bytes, 64, &file, reason));
    ck_assert_str_eq(reason, "the header would have 100000000 bytes, but only 56 follow: the file is cut off");
}
END_TEST

static void expect_shape_refusal(const char *shape, const char *reason)
{
    char header[512];
    snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,4]}}", shape);
    header_refuse(header, 4, reason);
}

START_TEST(refuses_metadata)
{
    header_refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "the header has __metadata__ twice");
    header_refuse("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
    header_refuse("{\"__metadata__\":{\"a\":\"b\",\"c\":1}}", 0,
                  "__metadata__ has a value, \"c\", that is not a string");
}
END_TEST

START_TEST(refuses_entries)
{
    header_refuse("{\"t\":1}", 0, "tensor \"t\" is not described by an object");
    header_refuse("{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor \"t\" must have one dtype, a string");
    header_refuse("{\"t\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                  "tensor \"t\" must have one dtype, a string");
    header_refuse("{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                  "tensor \"t\" must have one dtype, a string");
    header_refuse("{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
                  "tensor \"t\" has dtype I8; it must be F64, F32, F16, BF16, I32, I64, F8_E4M3 or U8");
    header_refuse("{\"t\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                  "tensor \"t\" has dtype f32; it must be F64, F32, F16, BF16, I32, I64, F8_E4M3 or U8");
    header_refuse("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor \"t\" must have one shape, a list");
    header_refuse("{\"t\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4,
                  "tensor \"t\" must have one shape, a list");
    header_refuse("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4,
                  "tensor \"t\" must have one data_offsets, a list of two integers from 0 to 2^53 - 1");
    header_refuse("{\"a\\nb\":1}", 0, "tensor \"a?b\" is not described by an object");
    char letters[121], header[256], reason[SAFETENSORS_REASON];
    for (size_t i = 0; i + 2 < sizeof letters; i += 2)
        memcpy(letters + i, "\xc3\xa9", 3);
    snprintf(header, sizeof header, "{\"x%s\":1}", letters); /* a name is cut after 100 bytes, here within a letter */
    snprintf(reason, sizeof reason, "tensor \"x%.98s?\" is not described by an object", letters);
    header_refuse(header, 0, reason);
}
END_TEST

START_TEST(refuses_shapes)
{
    static const char *const lengths[] = {"-1", "1.5", "\"1\"", "null", "true", "[1]", "9007199254740992",
                                          "9007199254740993", "1e300", "1e999",
                                          /* which doubles round to integers */
                                          "1e0", "1.0", "10e-1", "1.00000000000000000001", "1e-999",
                                          "100000000000000000000"};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        expect_shape_refusal(lengths[i],
                             "tensor \"t\" has a shape whose length 0 is not an integer from 0 to 2^53 - 1");
    expect_shape_refusal("1,-2", "tensor \"t\" has a shape whose length 1 is not an integer from 0 to 2^53 - 1");
    expect_shape_refusal("1,1,1,1,1,1,1,1,1", "tensor \"t\" has rank 9; at most 8 is read");
    const char *too_large = "tensor \"t\" has a shape whose size in bytes does not fit 63 bits";
    expect_shape_refusal("4503599627370496,512", too_large); /* 2^52 2^9 4 = 2^63 */
    expect_shape_refusal("9007199254740991,9007199254740991", too_large);
    expect_shape_refusal("0,9007199254740991,9007199254740991", too_large); /* empty, yet its strides would not fit */
    expect_shape_refusal(
        "4503599627370496,511",
        "tensor \"t\" has data_offsets [0, 4], but its shape and dtype take 9205357638345293824 bytes");
}
END_TEST

static void expect_offsets_refusal(const char *offsets, const char *reason)
{
    char header[512];
    snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":%s}}", offsets);
    header_refuse(header, 8, reason);
}

START_TEST(refuses_offsets)
{
    static const char *const forms[] = {"8",
                                        "[]",
                                        "[0]",
                                        "[0,8,8]",
                                        "[\"0\",\"8\"]",
                                        "[-1,7]",
                                        "[0.5,8.5]",
                                        "{\"0\":0,\"1\":8}",
                                        "[0,null]",
                                        "[0,9007199254740992]"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        expect_offsets_refusal(forms[i],
                               "tensor \"t\" must have one data_offsets, a list of two integers from 0 to 2^53 - 1");
    expect_offsets_refusal("[8,0]", "tensor \"t\" has data_offsets [8, 0], which are reversed");
    expect_offsets_refusal("[1,9]", "tensor \"t\" has data_offsets [1, 9], past the end of the 8 bytes of data");
    expect_offsets_refusal("[0,9007199254740991]",
                           "tensor \"t\" has data_offsets [0, 9007199254740991], past the end of the 8 bytes of data");
    expect_offsets_refusal("[0,4]", "tensor \"t\" has data_offsets [0, 4], but its shape and dtype take 8 bytes");
    header_refuse("{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
                  "tensor \"t\" has data_offsets [0, 8], but its shape and dtype take 4 bytes");
    expect_offsets_refusal("[0,7]", "tensor \"t\" has data_offsets [0, 7], but its shape and dtype take 8 bytes");
}
END_TEST

/* A file of tensors a and b, each of 4 bytes, at these places. */
static void expect_place_refusal(const char *a, const char *b, size_t data_size, const char *reason)
{
    char header[512];
    snprintf(header, sizeof header,
             "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":%s},"
             "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":%s}}",
             a, b);
    header_refuse(header, data_size, reason);
}

START_TEST(refuses_overlaps_and_holes)
{
    expect_place_refusal("[0,4]", "[0,4]", 4, "tensors \"a\" and \"b\" overlap in the data");
    expect_place_refusal("[3,7]", "[0,4]", 7, "tensors \"b\" and \"a\" overlap in the data");
    expect_place_refusal("[0,4]", "[5,9]", 9, "bytes 4 to 4 of the data, before tensor \"b\", belong to no tensor");
    expect_place_refusal("[2,6]", "[6,10]", 10, "bytes 0 to 1 of the data, before tensor \"a\", belong to no tensor");
    expect_place_refusal("[0,4]", "[4,8]", 11, "bytes 8 to 10 at the end of the data belong to no tensor");
    header_refuse("{}", 1, "bytes 0 to 0 at the end of the data belong to no tensor");
    header_refuse(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}",
        8, "tensors \"a\" and \"e\" overlap in the data");
    header_refuse(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
        8, "the header names tensor \"a\" twice");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *reader = tcase_create("reader");
    tcase_add_test(reader, reads_a_file);
    tcase_add_test(reader, reads_every_dtype);
    tcase_add_test(reader, reads_a_file_without_tensors);
    tcase_add_test(reader, reads_empty_tensors_anywhere_between);
    tcase_add_test(reader, refuses_lengths);
    tcase_add_test(reader, refuses_metadata);
    tcase_add_test(reader, refuses_entries);
    tcase_add_test(reader, refuses_shapes);
    tcase_add_test(reader, refuses_offsets);
    tcase_add_test(reader, refuses_overlaps_and_holes);
    suite_add_tcase(suite, reader);
    return suite_run(suite);
}
