/* The safetensors reader takes for a header what RFC 8259 calls a JSON object, and nothing else. */
#include "tests/header_case.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

START_TEST(refuses_what_is_not_json)
{
    static const char *const headers[] = {
        "",           " ",
        "[]",         "1",
        "{",          "{}}",
        "{} x",       " {}",
        "{\"a\"}",    "{\"a\":}",
        "{'a':1}",    "\xef\xbb\xbf{}",
        "{\"a\":1,}", "{\"a\":truth}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        header_refuse(headers[i], 4, "the header is not a JSON object");
    char deep[HEADER_ROOM / 2];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    deep[sizeof deep - 1] = '\0';
    header_refuse(deep, 0, "the header is not a JSON object");
}
END_TEST

/* The header of one tensor with this name and one length, whose byte at `at` must be refused. */
static void expect_byte_refusal(const char *name, const char *length, size_t at, const char *wrong)
{
    char header[256], reason[SAFETENSORS_REASON];
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,4]}}", name, length);
    snprintf(reason, sizeof reason, "the header is not JSON: its byte %zu, 0x%02x, %s", at, (unsigned char)header[at],
             wrong);
    header_refuse(header, 4, reason);
}

START_TEST(refuses_bytes_that_json_has_not)
{
    static const char *const names[] =
        {"\xff", "\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xe0\x80\x80", "\xf5\x80\x80\x80"};
    static const char *const lengths[] = {"04", "1.", "01", "-01", "00", "1e", "1e+", "1.e0", "1-0", "1.0.0", "-"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect_byte_refusal(names[i], "1", 2, "is not UTF-8");
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        expect_byte_refusal("t", lengths[i], 29, "begins no number of JSON");
    expect_byte_refusal("a\tb", "1", 3, "is a control character, which a string must escape");
    expect_byte_refusal("a\nb", "1", 3, "is a control character, which a string must escape");
    expect_byte_refusal("a\\u0000", "1", 3, "begins no escape of JSON, or that of a NUL");
    expect_byte_refusal("a\\u12g4", "1", 3, "begins no escape of JSON, or that of a NUL");
    expect_byte_refusal("a\\x", "1", 3, "begins no escape of JSON, or that of a NUL");
    expect_byte_refusal("t", "\f1", 29, "is a control character");
    header_refuse("{\"\\ud800\":1}", 0, "the header is not a JSON object");
    header_refuse("{\"\\udc00\\ud800\":1}", 0, "the header is not a JSON object");
    header_refuse("{\"t\":{\"dtype\":\"F32\",\"shape\":[+1],\"data_offsets\":[0,4]}}", 4,
                  "the header is not a JSON object");
    unsigned char bytes[HEADER_ROOM];
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    const size_t size = header_compose(bytes, "{}   ", 0);
    bytes[12] = '\0'; /* a NUL for one of the spaces */
    ck_assert(!header_parse(bytes, size, &file, reason));
    ck_assert_str_eq(reason, "the header is not JSON: its byte 4, 0x00, is a control character");
}
END_TEST

/* Only lengths and offsets must be integers. */
START_TEST(takes_numbers_of_other_members)
{
    static const char *const numbers[] = {"0",   "-0",    "-1.5",   "1E+5",
                                          "0e0", "1e999", "1e-999", "123456789012345678901234567890"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        unsigned char bytes[HEADER_ROOM];
        char header[256], reason[SAFETENSORS_REASON];
        safetensors_file file;
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"note\":%s}}",
                 numbers[i]);
        ck_assert_msg(header_parse(bytes, header_compose(bytes, header, 4), &file, reason), "%s", reason);
        safetensors_close(&file);
    }
}
END_TEST

/* A NUL's escape is no escape after an escaped backslash. */
START_TEST(takes_a_backslash_before_u0000)
{
    unsigned char bytes[HEADER_ROOM];
    char reason[SAFETENSORS_REASON];
    safetensors_file file;
    const size_t size =
        header_compose(bytes, "{\"a\\\\u0000\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4);
    ck_assert_msg(header_parse(bytes, size, &file, reason), "%s", reason);
    ck_assert_str_eq(file.tensors[0].name, "a\\u0000");
    safetensors_close(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors_json");
    TCase *reader = tcase_create("reader");
    tcase_add_test(reader, refuses_what_is_not_json);
    tcase_add_test(reader, refuses_bytes_that_json_has_not);
    tcase_add_test(reader, takes_numbers_of_other_members);
    tcase_add_test(reader, takes_a_backslash_before_u0000);
    suite_add_tcase(suite, reader);
    return suite_run(suite);
}
