/* The harness' own parts: conversions, bounds, and buffers that see a stray byte. */
#include "tests/harness/bounds.h"
#include "tests/harness/buffer.h"
#include "tests/suite.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static void expect_every_pattern(check_type type)
{
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        uint16_t pattern = (uint16_t)bits, back = 0;
        double value = check_decode(type, &pattern);
        check_encode(type, value, &back);
        if (isnan(value)) {
            ck_assert(isnan(check_decode(type, &back)));
        } else {
            ck_assert_uint_eq(back, pattern);
            ck_assert(check_round(type, value) == value);
        }
    }
}

START_TEST(every_short_pattern_survives)
{
    expect_every_pattern(CHECK_F16);
    expect_every_pattern(CHECK_BF16);
    uint16_t one_f16 = 0x3c00, third_bf16 = 0x3eab, least_f16 = 1;
    ck_assert(check_decode(CHECK_F16, &one_f16) == 1);
    ck_assert(check_decode(CHECK_BF16, &third_bf16) == 0.333984375);
    ck_assert(check_decode(CHECK_F16, &least_f16) == 0x1p-24);
}
END_TEST

START_TEST(rounding_is_to_nearest_even)
{
    ck_assert(check_round(CHECK_F16, 1 + 0x1p-11) == 1);
    ck_assert(check_round(CHECK_F16, 1 + 0x3p-11) == 1 + 0x1p-9);
    ck_assert(check_round(CHECK_F16, 1 + 0x1.001p-11) == 1 + 0x1p-10);
    ck_assert(check_round(CHECK_F16, 65519.99) == 65504);
    ck_assert(check_round(CHECK_F16, -65520) == -(double)INFINITY);
    ck_assert(check_round(CHECK_F16, 0x1p-25) == 0);
    ck_assert(check_round(CHECK_F16, 0x1.8p-24) == 0x1p-23);
    ck_assert(check_round(CHECK_BF16, 0x1.feffp127) == 0x1.fep127);
    ck_assert(check_round(CHECK_BF16, 0x1.ffp127) == (double)INFINITY);
    for (int i = 0; i < 1000; i++) {
        double value = ldexp(sin(i), i % 300 - 160);
        ck_assert(check_round(CHECK_F32, value) == (double)(float)value);
    }
    ck_assert(check_ulp(CHECK_F32, 1) == (double)FLT_EPSILON && check_ulp(CHECK_F32, 0) == 0x1p-149);
    ck_assert(check_ulp(CHECK_BF16, 3) == 0x1p-6 && check_ulp(CHECK_F64, 1.5) == DBL_EPSILON);
}
END_TEST

static bool refused(oracle_rule rule, check_type type, double value, double term, double turn, double got)
{
    return check_compare((check_bound){rule, 4, 0}, type, value, term, turn, got).beyond;
}

/* 16-bit gradients of sigmoid and silu have the wider bounds, and on the CPU their values. */
START_TEST(bounds_know_the_device)
{
    const DLDevice cpu = {kDLCPU, 0}, gpu = {kDLCUDA, 0};
    const copes_op forward = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SILU}};
    const copes_op slope = {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SILU}};
    const copes_op relu = {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_RELU}};
    const copes_op rotated = {.kind = COPES_LRPE_BACKWARD, .lrpe = {.act = COPES_ACT_SIGMOID}};
    ck_assert(check_bound_of(&slope, COPES_FIRST_OUT, CHECK_F16, gpu).term_ulps == 15);
    ck_assert(check_bound_of(&rotated, COPES_FIRST_OUT, CHECK_BF16, gpu).term_ulps == 19);
    ck_assert(check_bound_of(&slope, COPES_FIRST_OUT, CHECK_F16, cpu).term_ulps == 15);
    ck_assert(check_bound_of(&slope, COPES_FIRST_OUT, CHECK_F32, gpu).term_ulps == 4);
    ck_assert(check_bound_of(&relu, COPES_FIRST_OUT, CHECK_F16, gpu).term_ulps == 4);
    ck_assert(check_bound_of(&forward, COPES_FIRST_OUT, CHECK_F16, gpu).term_ulps == 4);
    ck_assert(check_bound_of(&forward, COPES_FIRST_OUT, CHECK_F16, cpu).term_ulps == 8);
    ck_assert(check_bound_of(&forward, COPES_FIRST_OUT, CHECK_F64, cpu).term_ulps == 4);
}
END_TEST

START_TEST(bounds_refuse_what_is_past_them)
{
    double ulp = (double)FLT_EPSILON;
    ck_assert(!refused(ORACLE_BY_TERM, CHECK_F32, 1, 1, 0, 1 + 4 * ulp));
    ck_assert(refused(ORACLE_BY_TERM, CHECK_F32, 1, 1, 0, 1 + 5 * ulp));
    ck_assert(!refused(ORACLE_BY_TERM, CHECK_F32, 1, 8, 0, 1 + 30 * ulp));
    ck_assert(!refused(ORACLE_BY_TERM, CHECK_F32, 0, 0, 1, 5e-9) && refused(ORACLE_BY_TERM, CHECK_F32, 0, 0, 1, 7e-9));
    ck_assert(!refused(ORACLE_BY_TERM, CHECK_BF16, 1.00390625, 1, 0, 1) &&
              refused(ORACLE_BY_TERM, CHECK_BF16, 1.005, 1, 0, 1));
    ck_assert(!check_compare((check_bound){ORACLE_BY_TERM, 15, 0}, CHECK_BF16, 1.00390625 + 14 * ulp, 1, 0, 1).beyond &&
              check_compare((check_bound){ORACLE_BY_TERM, 15, 0}, CHECK_BF16, 1.00390625 + 16 * ulp, 1, 0, 1).beyond);
    ck_assert(!refused(ORACLE_BY_ROW, CHECK_F32, 0.1, 1, 0, 0.1 + 9e-7));
    ck_assert(refused(ORACLE_BY_ROW, CHECK_F32, 0.1, 1, 0, 0.1 + 1.1e-6));
    ck_assert(!refused(ORACLE_BY_ATTENTION, CHECK_BF16, 0, 1, 0, 0x1p-6) &&
              refused(ORACLE_BY_ATTENTION, CHECK_BF16, 0, 1, 0, 0.016));
    ck_assert(refused(ORACLE_BY_ROW, CHECK_F64, 0, 1, 0, 1.1e-14));
    ck_assert(refused(ORACLE_BY_TERM, CHECK_F32, 1, 1, 0, (double)NAN) &&
              refused(ORACLE_BY_TERM, CHECK_F32, (double)NAN, 1, 0, 1));
    ck_assert(!refused(ORACLE_BY_TERM, CHECK_F32, (double)NAN, 1, 0, (double)NAN));
    ck_assert(refused(ORACLE_BY_TERM, CHECK_F32, (double)INFINITY, 1, 0, -(double)INFINITY));
    ck_assert(!refused(ORACLE_BY_TERM, CHECK_F16, 65530, 65530, 0, (double)INFINITY));
    ck_assert(refused(ORACLE_BY_TERM, CHECK_F16, 65510, 65510, 0, (double)INFINITY));
    ck_assert(!refused(ORACLE_BY_TERM, CHECK_F32, 1e39, 1e39, 0, (double)INFINITY) &&
              refused(ORACLE_BY_TERM, CHECK_F32, 3e38, 3e38, 0, (double)INFINITY));
    ck_assert(!refused(ORACLE_BY_TERM, CHECK_F32, (double)NAN, 1, (double)INFINITY, (double)INFINITY));
    ck_assert(refused(ORACLE_BY_TERM, CHECK_F32, (double)INFINITY, 1, (double)INFINITY, 1));
}
END_TEST

/* A buffer in each layout gives back what was written, and sees any other byte change. */
START_TEST(buffers_see_stray_bytes)
{
    const int64_t shape[] = {2, 3, 4};
    double values[24], back[24];
    for (int i = 0; i < 24; i++) {
        values[i] = i + 1;
    }
    for (int layout = 0; layout < CHECK_BROADCAST; layout++) {
        check_buffer buffer;
        uint64_t hash = 0;
        ck_assert_int_eq(check_buffer_create(&buffer, (DLDevice){kDLCPU, 0}, CHECK_BF16, 3, shape, (check_layout)layout,
                                             0x5a),
                         0);
        ck_assert_int_eq(check_buffer_write(&buffer, values), 0);
        ck_assert_int_eq(check_buffer_read(&buffer, back, &hash), 0);
        ck_assert(memcmp(values, back, sizeof values) == 0);
        unsigned char *bytes = buffer.device, kept = bytes[buffer.bytes - 1];
        uint64_t other = 0;
        unsigned char *element = (unsigned char *)buffer.tensor.data + buffer.tensor.byte_offset;
        *element ^= 1;
        ck_assert_int_eq(check_buffer_read(&buffer, NULL, NULL), 1);
        ck_assert_int_eq(check_buffer_read(&buffer, back, &other), 0);
        ck_assert(back[0] != 1 && hash != other);
        bytes[buffer.bytes - 1] = 0;
        ck_assert_int_eq(check_buffer_read(&buffer, back, &hash), 1);
        bytes[buffer.bytes - 1] = kept;
        element[-2 - (layout == CHECK_ODD)] = 0;
        ck_assert(layout == CHECK_NEGATIVE || check_buffer_read(&buffer, back, &hash) == 1);
        check_buffer_destroy(&buffer);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("harness");
    TCase *tests = tcase_create("types, bounds and buffers");
    tcase_add_test(tests, every_short_pattern_survives);
    tcase_add_test(tests, rounding_is_to_nearest_even);
    tcase_add_test(tests, bounds_know_the_device);
    tcase_add_test(tests, bounds_refuse_what_is_past_them);
    tcase_add_test(tests, buffers_see_stray_bytes);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
