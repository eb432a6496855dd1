/* Every allocation of the safetensors reader and writer fails once, in turn: each call must then say no, leave no file
 * and leak nothing. The linker puts the functions below in the place of malloc and its kin (-Wl,--wrap). */
#include "tests/suite.h"
#include "tools/safetensors.h"

#include <cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t number, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);
void *__real_malloc(size_t size);
void *__real_calloc(size_t number, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *memory);

static long until_failure = -1; /* allocations that succeed before one fails; negative: all succeed */
static long live;               /* allocations not yet freed */

static bool fails_now(void)
{
    if (until_failure < 0)
        return false;
    return until_failure-- == 0;
}

static void *count(void *memory)
{
    live += memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : count(__real_malloc(size));
}

void *__wrap_calloc(size_t number, size_t size)
{
    return fails_now() ? NULL : count(__real_calloc(number, size));
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : count(__real_strdup(text));
}

void __wrap_free(void *memory)
{
    live -= memory != NULL;
    __real_free(memory);
}

static const float one = 1;
static const safetensors_tensor tensors[] = {
    {.name = "a", .dtype = SAFETENSORS_F32, .rank = 2, .shape = {1, 1}, .data = &one},
    {.name = "b", .dtype = SAFETENSORS_F32, .rank = 0, .data = &one},
};

START_TEST(reader_survives)
{
    static const char header[] =
        "{\"__metadata__\":{\"a\":\"b\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]}}";
    unsigned char bytes[512] = {sizeof header - 1};
    char reason[SAFETENSORS_REASON];
    memcpy(bytes + 8, header, sizeof header);
    const long before = live;
    bool ok = false;
    long failures = 0;
    for (; !ok; failures++) {
        safetensors_file file;
        reason[0] = '\0';
        until_failure = failures;
        ok = safetensors_parse(bytes, 8 + sizeof header - 1 + 8, &file, reason);
        until_failure = -1;
        ck_assert_int_eq(ok, reason[0] == '\0');
        ck_assert_uint_eq(file.count, ok ? 2 : 0);
        safetensors_close(&file);
        ck_assert_int_eq(live, before);
    }
    ck_assert_int_gt(failures, 20);
}
END_TEST

START_TEST(writer_survives)
{
    char path[] = "/tmp/copes-memory-XXXXXX", reason[SAFETENSORS_REASON];
    const int descriptor = mkstemp(path);
    ck_assert_int_ge(descriptor, 0);
    close(descriptor);
    ck_assert_int_eq(unlink(path), 0);
    bool ok = false;
    long failures = 0;
    for (; !ok; failures++) {
        ck_assert_int_eq(access(path, F_OK), -1);
        reason[0] = '\0';
        until_failure = failures;
        ok = safetensors_save(path, tensors, 2, reason);
        until_failure = -1;
        ck_assert_int_eq(ok, reason[0] == '\0');
    }
    ck_assert_int_gt(failures, 20);
    safetensors_file file;
    ck_assert_msg(safetensors_open(path, &file, reason), "%s", reason);
    ck_assert_uint_eq(file.count, 2);
    safetensors_close(&file);
    unlink(path);
}
END_TEST

START_TEST(writer_leaks_nothing)
{
    static char buffer[1024];
    char reason[SAFETENSORS_REASON];
    const long before = live;
    bool ok = false;
    for (long failures = 0; !ok; failures++) {
        FILE *stream = fmemopen(buffer, sizeof buffer, "w");
        ck_assert_ptr_nonnull(stream);
        until_failure = failures;
        ok = safetensors_write(stream, tensors, 2, reason);
        until_failure = -1;
        fclose(stream);
        ck_assert_int_eq(live, before);
    }
}
END_TEST

int main(void)
{
    static cJSON_Hooks hooks = {__wrap_malloc, __wrap_free}; /* a shared cJSON is out of the linker's reach */
    Suite *suite = suite_create("safetensors_memory");
    TCase *allocation = tcase_create("allocation");
    cJSON_InitHooks(&hooks);
    tcase_add_test(allocation, reader_survives);
    tcase_add_test(allocation, writer_survives);
    tcase_add_test(allocation, writer_leaks_nothing);
    suite_add_tcase(suite, allocation);
    return suite_run(suite);
}
