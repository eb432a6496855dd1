/* The safetensors writer's files read back as written, and appear whole or not at all. */
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

static char folder[] = "/tmp/copes-safetensors-XXXXXX";

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
    static const char header[] =
        "{\"a\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
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
    snprintf(path, sizeof path, "%s/pipe", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert(!safetensors_save(path, samples, SAMPLES, reason));
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
    static const char *const names[] = {"round", "large", "new", "old", "target", "link", "pipe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

int main(void)
{
    Suite *suite = suite_create("safetensors_write");
    TCase *writer = tcase_create("writer");
    tcase_add_test(writer, writes_what_it_reads);
    tcase_add_test(writer, writes_the_format);
    tcase_add_test(writer, refuses_to_write_past_63_bits);
    tcase_add_test(writer, leaves_nothing_of_a_failed_write);
    tcase_add_test(writer, keeps_the_old_file_when_a_write_fails);
    tcase_add_test(writer, replaces_a_file_behind_a_link);
    tcase_add_test(writer, refuses_places_that_are_no_files);
    suite_add_tcase(suite, writer);
    if (mkdtemp(folder) == NULL)
        return 1;
    const int status = suite_run(suite);
    remove_folder();
    return status;
}
