/* The safetensors reader refuses every malformed file with its reason, and the writer's files read back as written,
 * appear whole, or do not appear. */
#include "tests/suite.h"
#include "tools/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 4096 };

static char folder[] = "/tmp/copes-safetensors-XXXXXX";

/* A file of this header and `data_size` bytes 0, 1, 2 ..; returns its size. */
static size_t compose(unsigned char bytes[ROOM], const char *header, size_t data_size)
{
    const size_t length = strlen(header);
    ck_assert_uint_le(8 + length + data_size, ROOM);
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> (8 * i));
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_size; i++)
        bytes[8 + length + i] = (unsigned char)i;
    return 8 + length + data_size;
}

/* Parses from memory of exactly that size, so that a sanitizer sees a read past it. */
static bool parse(const unsigned char *bytes, size_t size, safetensors_file *file, char *reason)
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

static void expect_refusal(const char *header, size_t data_size, const char *reason)
{
    unsigned char bytes[ROOM];
    char got[SAFETENSORS_REASON] = "";
    safetensors_file file;
    const bool ok = parse(bytes, compose(bytes, header, data_size), &file, got);
    ck_assert_msg(!ok, "taken: %s", header);
    ck_assert_str_eq(got, reason);
    ck_assert_uint_eq(file.count, 0);
    ck_assert_ptr_null(file.tensors);
}

START_TEST(reads_a_file)
{
    unsigned char bytes[ROOM];
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    const size_t size = compose(bytes,
                                "{\"__metadata__\":{\"format\":\"pt\"},"
                                "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                                "\"a\":{\"shape\":[],\"data_offsets\":[0,4],\"dtype\":\"F32\",\"note\":1},"
                                "\"none\":{\"dtype\":\"F64\",\"shape\":[5,0,9],\"data_offsets\":[16,16]}}   ",
                                16);
    ck_assert_msg(parse(bytes, size, &file, reason), "%s", reason);
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
    static const char *const names[] = {"F64", "F32", "F16", "BF16", "I32", "I64"};
    static const size_t sizes[] = {8, 4, 2, 2, 4, 8};
    for (int i = 0; i < SAFETENSORS_DTYPES; i++) {
        unsigned char bytes[ROOM];
        char header[128], reason[SAFETENSORS_REASON];
        safetensors_file file;
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}", names[i],
                 3 * sizes[i]);
        ck_assert_msg(parse(bytes, compose(bytes, header, 3 * sizes[i]), &file, reason), "%s", reason);
        ck_assert_int_eq(file.tensors[0].dtype, i);
        ck_assert_str_eq(safetensors_dtype_name(file.tensors[0].dtype), names[i]);
        safetensors_close(&file);
    }
}
END_TEST

START_TEST(reads_a_file_without_tensors)
{
    unsigned char bytes[ROOM];
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    ck_assert(parse(bytes, compose(bytes, "{}", 0), &file, reason));
    ck_assert_uint_eq(file.count, 0);
    safetensors_close(&file);
}
END_TEST

START_TEST(refuses_lengths)
{
    unsigned char bytes[ROOM] = {0};
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    ck_assert(!parse(bytes, 0, &file, reason));
    ck_assert_str_eq(reason, "the file has 0 bytes, too few for a header length");
    ck_assert(!parse(bytes, 7, &file, reason));
    ck_assert_str_eq(reason, "the file has 7 bytes, too few for a header length");
    ck_assert(!parse(bytes, 8, &file, reason));
    ck_assert_str_eq(reason, "the header is not a JSON object");
    bytes[0] = 3;
    ck_assert(!parse(bytes, 10, &file, reason));
    ck_assert_str_eq(reason, "the header would have 3 bytes, but only 2 follow: the file is cut off");
    for (int i = 0; i < 8; i++)
        bytes[i] = 0xff;
    ck_assert(!parse(bytes, 64, &file, reason));
    ck_assert_str_eq(reason, "the header would have 18446744073709551615 bytes; at most 100000000 are read");
    memcpy(bytes, "\x01\xe1\xf5\x05\0\0\0", 8); /* 100 000 001 */
    ck_assert(!parse(bytes, 64, &file, reason));
    ck_assert_str_eq(reason, "the header would have 100000001 bytes; at most 100000000 are read");
    bytes[0] = 0; /* 100 000 000 */
    ck_assert(!parse(bytes, 64, &file, reason));
    ck_assert_str_eq(reason, "the header would have 100000000 bytes, but only 56 follow: the file is cut off");
}
END_TEST

START_TEST(refuses_what_is_not_json)
{
    static const char *const headers[] = {
        "", " ", "[]", "1", "{", "{}}", "{} x", " {}", "{\"a\"}", "{\"a\":}", "{'a':1}", "\xef\xbb\xbf{}", "{\"a\":1,}",
        "{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        expect_refusal(headers[i], 4, "the header is not a JSON object");
    char deep[ROOM / 2];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    deep[sizeof deep - 1] = '\0';
    expect_refusal(deep, 0, "the header is not a JSON object");
    unsigned char bytes[ROOM];
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    const size_t size = compose(bytes, "{}   ", 0);
    bytes[12] = '\0'; /* a NUL for one of the spaces */
    ck_assert(!parse(bytes, size, &file, reason));
    ck_assert_str_eq(reason, "the header is not a JSON object");
}
END_TEST

/* A NUL's escape is no escape after an escaped backslash. */
START_TEST(takes_a_backslash_before_u0000)
{
    unsigned char bytes[ROOM];
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    const size_t size = compose(bytes, "{\"a\\\\u0000\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4);
    ck_assert_msg(parse(bytes, size, &file, reason), "%s", reason);
    ck_assert_str_eq(file.tensors[0].name, "a\\u0000");
    safetensors_close(&file);
}
END_TEST

START_TEST(refuses_metadata)
{
    expect_refusal("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
    expect_refusal("{\"__metadata__\":{\"a\":\"b\",\"c\":1}}", 0,
                   "__metadata__ has a value, \"c\", that is not a string");
}
END_TEST

START_TEST(refuses_entries)
{
    expect_refusal("{\"t\":1}", 0, "tensor \"t\" is not described by an object");
    expect_refusal("{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor \"t\" must have one dtype, a string");
    expect_refusal("{\"t\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                   "tensor \"t\" must have one dtype, a string");
    expect_refusal("{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                   "tensor \"t\" must have one dtype, a string");
    expect_refusal("{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
                   "tensor \"t\" has dtype U8; it must be F64, F32, F16, BF16, I32 or I64");
    expect_refusal("{\"t\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                   "tensor \"t\" has dtype f32; it must be F64, F32, F16, BF16, I32 or I64");
    expect_refusal("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor \"t\" must have one shape, a list");
    expect_refusal("{\"t\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4,
                   "tensor \"t\" must have one shape, a list");
    expect_refusal("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4,
                   "tensor \"t\" must have one data_offsets, a list of two integers from 0 to 2^53 - 1");
    expect_refusal("{\"a\\nb\":1}", 0, "tensor \"a?b\" is not described by an object");
}
END_TEST

static void expect_shape_refusal(const char *shape, const char *reason)
{
    char header[512];
    snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,4]}}", shape);
    expect_refusal(header, 4, reason);
}

START_TEST(refuses_shapes)
{
    static const char *const lengths[] = {"-1", "1.5", "\"1\"", "null", "true", "[1]", "9007199254740992",
                                          "9007199254740993", "1e300", "1e999"};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        expect_shape_refusal(lengths[i], "tensor \"t\" has a shape whose length 0 is not an integer from 0 to 2^53 - 1");
    expect_shape_refusal("1,-2", "tensor \"t\" has a shape whose length 1 is not an integer from 0 to 2^53 - 1");
    expect_shape_refusal("1,1,1,1,1,1,1,1,1", "tensor \"t\" has rank 9; at most 8 is read");
    const char *too_large = "tensor \"t\" has a shape whose size in bytes does not fit 63 bits";
    expect_shape_refusal("4503599627370496,512", too_large);             /* 2^52 2^9 4 = 2^63 */
    expect_shape_refusal("9007199254740991,9007199254740991", too_large);
    expect_shape_refusal("0,9007199254740991,9007199254740991", too_large); /* empty, yet its strides would not fit */
    expect_shape_refusal("4503599627370496,511",
                         "tensor \"t\" has data_offsets [0, 4], but its shape and dtype take 9205357638345293824 bytes");
}
END_TEST

static void expect_offsets_refusal(const char *offsets, const char *reason)
{
    char header[512];
    snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":%s}}", offsets);
    expect_refusal(header, 8, reason);
}

START_TEST(refuses_offsets)
{
    static const char *const forms[] = {"8",           "[]",           "[0]",       "[0,8,8]",
                                        "[\"0\",\"8\"]", "[-1,7]",       "[0.5,8.5]", "{\"0\":0,\"1\":8}",
                                        "[0,null]",    "[0,9007199254740992]"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        expect_offsets_refusal(forms[i],
                               "tensor \"t\" must have one data_offsets, a list of two integers from 0 to 2^53 - 1");
    expect_offsets_refusal("[8,0]", "tensor \"t\" has data_offsets [8, 0], which are reversed");
    expect_offsets_refusal("[1,9]", "tensor \"t\" has data_offsets [1, 9], past the end of the 8 bytes of data");
    expect_offsets_refusal("[0,9007199254740991]",
                           "tensor \"t\" has data_offsets [0, 9007199254740991], past the end of the 8 bytes of data");
    expect_offsets_refusal("[0,4]", "tensor \"t\" has data_offsets [0, 4], but its shape and dtype take 8 bytes");
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
    expect_refusal(header, data_size, reason);
}

START_TEST(refuses_overlaps_and_holes)
{
    expect_place_refusal("[0,4]", "[0,4]", 4, "tensors \"a\" and \"b\" overlap in the data");
    expect_place_refusal("[3,7]", "[0,4]", 7, "tensors \"b\" and \"a\" overlap in the data");
    expect_place_refusal("[0,4]", "[5,9]", 9, "bytes 4 to 4 of the data, before tensor \"b\", belong to no tensor");
    expect_place_refusal("[2,6]", "[6,10]", 10, "bytes 0 to 1 of the data, before tensor \"a\", belong to no tensor");
    expect_place_refusal("[0,4]", "[4,8]", 11, "bytes 8 to 10 at the end of the data belong to no tensor");
    expect_refusal("{}", 1, "bytes 0 to 0 at the end of the data belong to no tensor");
    expect_refusal("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                   "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}",
                   8, "tensors \"a\" and \"e\" overlap in the data");
    expect_refusal("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                   "\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                   8, "the header names tensor \"a\" twice");
}
END_TEST

static const float ones[] = {1, 1, 1};
static const double twos[] = {2, 2};
static const uint16_t halves[] = {3};

static const safetensors_tensor samples[] = {
    {.name = "z \"quoted\" \\ \xc3\xa9\n", .dtype = SAFETENSORS_F32, .rank = 2, .shape = {3, 1}, .data = ones},
    {.name = "b", .dtype = SAFETENSORS_BF16, .rank = 1, .shape = {1}, .data = halves},
    {.name = "empty", .dtype = SAFETENSORS_I64, .rank = 2, .shape = {INT64_C(1) << 40, 0}, .data = NULL},
    {.name = "a", .dtype = SAFETENSORS_F64, .rank = 1, .shape = {2}, .data = twos},
    {.name = "scalar", .dtype = SAFETENSORS_F16, .rank = 0, .data = halves},
};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

START_TEST(writes_what_it_reads)
{
    char path[128], reason[SAFETENSORS_REASON];
    safetensors_file file;
    snprintf(path, sizeof path, "%s/round", folder);
    ck_assert_msg(safetensors_save(path, samples, SAMPLES, reason), "%s", reason);
    ck_assert_msg(safetensors_open(path, &file, reason), "%s", reason);
    ck_assert_uint_eq(file.count, SAMPLES);
    const uint64_t header = *(const unsigned char *)file.map + ((const unsigned char *)file.map)[1] * 256u;
    ck_assert_uint_eq(header % 8, 0);
    for (int i = 0; i < SAMPLES; i++) {
        const safetensors_tensor *got = safetensors_find(&file, samples[i].name);
        ck_assert_ptr_nonnull(got);
        ck_assert_int_eq(got->dtype, samples[i].dtype);
        ck_assert_int_eq(got->rank, samples[i].rank);
        ck_assert_mem_eq(got->shape, samples[i].shape, sizeof got->shape);
        ck_assert_uint_eq((uintptr_t)got->data % safetensors_dtype_size(got->dtype), 0);
        if (got->size > 0)
            ck_assert_mem_eq(got->data, samples[i].data, got->size);
    }
    safetensors_close(&file);
}
END_TEST

/* Byte for byte: any other reader must find the same. */
START_TEST(writes_the_format)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
                                 "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[16,18]}} ";
    char *bytes = NULL, reason[SAFETENSORS_REASON];
    size_t size = 0;
    FILE *stream = open_memstream(&bytes, &size);
    const safetensors_tensor tensors[] = {samples[1], samples[3]};
    ck_assert(safetensors_write(stream, tensors, 2, reason));
    fclose(stream);
    const size_t length = sizeof header - 1;
    ck_assert_uint_eq(length % 8, 0);
    ck_assert_uint_eq(size, 8 + length + 18);
    ck_assert_int_eq((unsigned char)bytes[0], (int)length);
    ck_assert_mem_eq(bytes + 1, "\0\0\0\0\0\0\0", 7);
    ck_assert_mem_eq(bytes + 8, header, length);
    ck_assert_mem_eq(bytes + 8 + length, twos, 16);
    ck_assert_mem_eq(bytes + 8 + length + 16, halves, 2);
    free(bytes);
}
END_TEST

START_TEST(refuses_to_write_past_63_bits)
{
    char path[128], reason[SAFETENSORS_REASON];
    const safetensors_tensor half = {.name = "h", .dtype = SAFETENSORS_F64, .rank = 1, .shape = {INT64_C(1) << 59}};
    const safetensors_tensor whole = {.name = "w", .dtype = SAFETENSORS_F64, .rank = 1, .shape = {INT64_C(1) << 60}};
    const safetensors_tensor halves_of_it[] = {half, half};
    snprintf(path, sizeof path, "%s/large", folder);
    ck_assert(!safetensors_save(path, &whole, 1, reason));
    ck_assert_str_eq(reason, "the data would not fit 63 bits of bytes");
    ck_assert(!safetensors_save(path, halves_of_it, 2, reason));
    ck_assert_str_eq(reason, "the data would not fit 63 bits of bytes");
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

static int count_entries(void)
{
    int count = 0;
    DIR *directory = opendir(folder);
    ck_assert_ptr_nonnull(directory);
    for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(directory);
    return count;
}

/* Saves all samples where writes past 64 bytes fail, like those to a full disk, and expects the failure. */
static void fail_to_save(const char *path)
{
    char reason[SAFETENSORS_REASON] = "";
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 64;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const bool ok = safetensors_save(path, samples, SAMPLES, reason);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert(!ok);
    ck_assert_str_eq(reason, strerror(EFBIG));
}

START_TEST(leaves_nothing_of_a_failed_write)
{
    char path[128];
    const int before = count_entries();
    snprintf(path, sizeof path, "%s/new", folder);
    fail_to_save(path);
    ck_assert_int_eq(count_entries(), before);
}
END_TEST

START_TEST(keeps_the_old_file_when_a_write_fails)
{
    char path[128], reason[SAFETENSORS_REASON];
    safetensors_file file;
    snprintf(path, sizeof path, "%s/old", folder);
    ck_assert(safetensors_save(path, samples, 1, reason));
    const int before = count_entries();
    fail_to_save(path);
    ck_assert_int_eq(count_entries(), before);
    ck_assert_msg(safetensors_open(path, &file, reason), "%s", reason);
    ck_assert_uint_eq(file.count, 1);
    ck_assert_mem_eq(file.tensors[0].data, ones, sizeof ones);
    safetensors_close(&file);
}
END_TEST

START_TEST(replaces_a_file_behind_a_link)
{
    char path[128], link[128], reason[SAFETENSORS_REASON];
    struct stat status;
    snprintf(path, sizeof path, "%s/target", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    ck_assert(safetensors_save(path, samples, 1, reason));
    ck_assert_int_eq(symlink("target", link), 0);
    ck_assert_msg(safetensors_save(link, samples, SAMPLES, reason), "%s", reason);
    ck_assert_int_eq(lstat(link, &status), 0);
    ck_assert(S_ISLNK(status.st_mode));
    safetensors_file file;
    ck_assert(safetensors_open(path, &file, reason));
    ck_assert_uint_eq(file.count, SAMPLES);
    safetensors_close(&file);
}
END_TEST

START_TEST(refuses_places_that_are_no_files)
{
    char path[128], reason[SAFETENSORS_REASON];
    safetensors_file file;
    ck_assert(!safetensors_save("/dev/null", samples, SAMPLES, reason));
    ck_assert_str_eq(reason, "what is there is not a regular file");
    ck_assert(!safetensors_save(folder, samples, SAMPLES, reason));
    ck_assert_str_eq(reason, "a folder is there");
    snprintf(path, sizeof path, "%s/none/file", folder);
    ck_assert(!safetensors_save(path, samples, SAMPLES, reason));
    ck_assert_str_eq(reason, strerror(ENOENT));
    ck_assert(!safetensors_open(path, &file, reason));
    ck_assert_str_eq(reason, strerror(ENOENT));
    ck_assert(!safetensors_open(folder, &file, reason));
    ck_assert_str_eq(reason, "not a regular file");
}
END_TEST

static void remove_folder(void)
{
    char path[128];
    static const char *const names[] = {"round", "large", "new", "old", "target", "link"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

int main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *reader = tcase_create("reader"), *writer = tcase_create("writer");
    tcase_add_test(reader, reads_a_file);
    tcase_add_test(reader, reads_every_dtype);
    tcase_add_test(reader, reads_a_file_without_tensors);
    tcase_add_test(reader, refuses_lengths);
    tcase_add_test(reader, refuses_what_is_not_json);
    tcase_add_test(reader, takes_a_backslash_before_u0000);
    tcase_add_test(reader, refuses_metadata);
    tcase_add_test(reader, refuses_entries);
    tcase_add_test(reader, refuses_shapes);
    tcase_add_test(reader, refuses_offsets);
    tcase_add_test(reader, refuses_overlaps_and_holes);
    tcase_add_test(writer, writes_what_it_reads);
    tcase_add_test(writer, writes_the_format);
    tcase_add_test(writer, refuses_to_write_past_63_bits);
    tcase_add_test(writer, leaves_nothing_of_a_failed_write);
    tcase_add_test(writer, keeps_the_old_file_when_a_write_fails);
    tcase_add_test(writer, replaces_a_file_behind_a_link);
    tcase_add_test(writer, refuses_places_that_are_no_files);
    suite_add_tcase(suite, reader);
    suite_add_tcase(suite, writer);
    if (mkdtemp(folder) == NULL)
        return 1;
    const int status = suite_run(suite);
    remove_folder();
    return status;
}
