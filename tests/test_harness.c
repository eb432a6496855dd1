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
    for (uint32_t bits = 0; bits < 1U << 8 * check_type_of(type)->size; bits++) {
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

/* Beside the patterns, what PyTorch says of some. */
START_TEST(float8_has_its_numbers)
{
    static const struct {
        uint8_t bits;
        double value;
    } known[] = {{0x00, 0}, {0x01, 0x1p-9}, {0x08, 0x1p-6}, {0x38, 1}, {0x77, 240}, {0x7e, 448}, {0xfe, -448}};
    expect_every_pattern(CHECK_F8);
    expect_every_pattern(CHECK_U8);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        ck_assert(check_decode(CHECK_F8, &known[i].bits) == known[i].value);
    ck_assert(isnan(check_decode(CHECK_F8, &(uint8_t){0x7f})) && isnan(check_decode(CHECK_U8, &(uint8_t){0xff})));
    ck_assert(check_round(CHECK_F8, 1 + 0x1p-4) == 1 && check_round(CHECK_F8, 1 + 0x3p-4) == 1.25);
    ck_assert(check_round(CHECK_F8, 0x1p-10) == 0 && check_round(CHECK_F8, -0x3p-10) == -0x1p-8);
    ck_assert(check_round(CHECK_F8, 464) == 448 && check_round(CHECK_F8, 1e30) == 448);
    ck_assert(check_round(CHECK_U8, -(double)INFINITY) == -448 && isnan(check_round(CHECK_F8, (double)NAN)));
}
END_TEST

START_TEST(the_ends_of_int64_survive)
{
    static const double values[] = {0, -1, 0x1p62, -0x1p63, 0x1p63};
    static const int64_t wanted[] = {0, -1, 1LL << 62, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        int64_t bits;
        check_encode(CHECK_I64, values[i], &bits);
        ck_assert_int_eq(bits, wanted[i]);
        ck_assert(check_decode(CHECK_I64, &bits) == values[i]);
    }
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

static check_bound plain_bound(oracle_rule rule, double term_ulps, double relative)
{
    return (check_bound){.rule = rule, .term_ulps = term_ulps, .relative = relative};
}

static bool refused(oracle_rule rule, check_type type, double value, double term, double turn, double got)
{
    return check_compare(plain_bound(rule, 4, type == CHECK_F64 ? 1e-14 : 1e-6), type, value, term, turn, got).beyond;
}

/* 16-bit gradients of sigmoid and silu have the wider bounds, and on the CPU their values. */
START_TEST(bounds_know_the_device)
{
    const DLDevice cpu = {kDLCPU, 0}, gpu = {kDLCUDA, 0};
    const copes_op forward = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SILU}};
    const copes_op slope = {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SILU}};
    const copes_op relu = {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_RELU}};
    const copes_op softmax = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX}};
    const copes_op rotated = {.kind = COPES_LRPE_BACKWARD, .lrpe = {.act = COPES_ACT_SIGMOID}};
    ck_assert(check_bound_of(&slope, NULL, COPES_FIRST_OUT, CHECK_F16, gpu).term_ulps == 15);
    ck_assert(check_bound_of(&rotated, NULL, COPES_FIRST_OUT, CHECK_BF16, gpu).term_ulps == 19);
    ck_assert(check_bound_of(&slope, NULL, COPES_FIRST_OUT, CHECK_F16, cpu).term_ulps == 64);
    ck_assert(check_bound_of(&slope, NULL, COPES_FIRST_OUT, CHECK_F32, gpu).term_ulps == 4);
    ck_assert(check_bound_of(&relu, NULL, COPES_FIRST_OUT, CHECK_F16, gpu).term_ulps == 4);
    ck_assert(check_bound_of(&forward, NULL, COPES_FIRST_OUT, CHECK_F16, gpu).term_ulps == 4);
    ck_assert(check_bound_of(&forward, NULL, COPES_FIRST_OUT, CHECK_F16, cpu).term_ulps == 64);
    ck_assert(check_bound_of(&rotated, NULL, COPES_FIRST_OUT, CHECK_BF16, cpu).term_ulps == 116);
    ck_assert(check_bound_of(&forward, NULL, COPES_FIRST_OUT, CHECK_F64, cpu).term_ulps == 4);
    ck_assert(check_bound_of(&softmax, NULL, COPES_FIRST_OUT, CHECK_BF16, cpu).relative == 1e-5);
    ck_assert(check_bound_of(&softmax, NULL, COPES_FIRST_OUT, CHECK_BF16, gpu).relative == 1e-6);
    ck_assert(check_bound_of(&softmax, NULL, COPES_FIRST_OUT, CHECK_F16, cpu).relative == 1e-6);
    ck_assert(check_bound_of(&softmax, NULL, COPES_FIRST_OUT, CHECK_F64, cpu).relative == 1e-14);
}
END_TEST

/* 16-bit rotations on the CPU may be products where tokens are counted along a line. */
START_TEST(bounds_know_products_of_rotations)
{
    const DLDevice cpu = {kDLCPU, 0}, gpu = {kDLCUDA, 0};
    const copes_op line = {.kind = COPES_LRPE_FORWARD}, grid = {.kind = COPES_LRPE_FORWARD, .lrpe = {.grid_rank = 2}};
    const copes_op longer = {.kind = COPES_LRPE_BACKWARD, .lrpe = {.amplitude = 1.5}};
    const copes_op norm = {.kind = COPES_QK_NORM_ROPE_FORWARD};
    const check_bound bound = check_bound_of(&line, NULL, COPES_FIRST_OUT, CHECK_BF16, cpu);
    ck_assert(bound.rotation_units == 5.75);
    ck_assert(check_bound_of(&longer, NULL, COPES_FIRST_OUT, CHECK_F16, cpu).rotation_units == 6.75);
    ck_assert(check_bound_of(&line, NULL, COPES_FIRST_OUT, CHECK_F32, cpu).rotation_units == 0);
    ck_assert(check_bound_of(&line, NULL, COPES_FIRST_OUT, CHECK_BF16, gpu).rotation_units == 0);
    ck_assert(check_bound_of(&grid, NULL, COPES_FIRST_OUT, CHECK_BF16, cpu).rotation_units == 0);
    ck_assert(check_bound_of(&norm, NULL, COPES_FIRST_OUT, CHECK_BF16, cpu).rotation_units == 0);
    const oracle_tensor positions = {.rank = 1};
    const oracle_args given = {.in = {[COPES_LRPE_POSITIONS] = &positions}};
    ck_assert(check_bound_of(&line, &given, COPES_FIRST_OUT, CHECK_BF16, cpu).rotation_units == 0);
    ck_assert(!check_compare(bound, CHECK_BF16, 0, 0, 1, 5.75 * 0x1p-24).beyond &&
              check_compare(bound, CHECK_BF16, 0, 0, 1, 6 * 0x1p-24).beyond);
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
    ck_assert(
        !check_compare(plain_bound(ORACLE_BY_TERM, 15, 1e-6), CHECK_BF16, 1.00390625 + 14 * ulp, 1, 0, 1).beyond &&
        check_compare(plain_bound(ORACLE_BY_TERM, 15, 1e-6), CHECK_BF16, 1.00390625 + 16 * ulp, 1, 0, 1).beyond);
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

/* Copies are the value itself, with its sign; a rounding that may go either way has room; float8 has 448 for infinity. */
START_TEST(bounds_know_copies_room_and_float8)
{
    const check_bound wide = {.rule = ORACLE_BY_NORM, .term_ulps = 4, .relative = 1e-6, .room = 0.25};
    ck_assert(!refused(ORACLE_BY_NORM, CHECK_F32, 0.5, -1, 0, 0.5) &&
              refused(ORACLE_BY_NORM, CHECK_F32, 0.5, -1, 0, 0.5000001));
    ck_assert(refused(ORACLE_BY_TERM, CHECK_F32, 0x1p-149, -1, 0, 0) &&
              refused(ORACLE_BY_TERM, CHECK_F16, 0, -1, 0, -0.0));
    ck_assert(!refused(ORACLE_BY_TERM, CHECK_BF16, (double)NAN, -1, 0, (double)NAN) &&
              refused(ORACLE_BY_TERM, CHECK_BF16, (double)NAN, -1, 0, 1));
    ck_assert(!refused(ORACLE_BY_TERM, CHECK_F8, 1.0626, -1, 0, 1.125) &&
              refused(ORACLE_BY_TERM, CHECK_F8, 1.0624, -1, 0, 1.125));
    ck_assert(!check_compare(wide, CHECK_F32, 1, 1, 0, 1.25).beyond &&
              check_compare(wide, CHECK_F32, 1, 1, 0, 1.26).beyond);
    ck_assert(!refused(ORACLE_BY_NORM, CHECK_F32, 0.1, 1, 0, 0.1 + 9e-7) &&
              refused(ORACLE_BY_NORM, CHECK_F32, 0.1, 1, 0, 0.1 + 1.1e-6));
    ck_assert(!refused(ORACLE_BY_NORM, CHECK_F8, 1e4, 1e4, 0, 448) &&
              refused(ORACLE_BY_NORM, CHECK_F8, 1e4, 1e4, 0, 416));
    ck_assert(check_compare(plain_bound(ORACLE_BY_NORM, 4, 1e-6), CHECK_F8, 1e4, 1e4, 0, 448).ulps == 0);
    ck_assert(!refused(ORACLE_BY_NORM, CHECK_F8, (double)INFINITY, 1, 0, 448) &&
              refused(ORACLE_BY_NORM, CHECK_F8, (double)INFINITY, 1, 0, (double)NAN));
    ck_assert(!refused(ORACLE_BY_NORM, CHECK_F8, (double)NAN, 1, (double)INFINITY, -448) &&
              refused(ORACLE_BY_NORM, CHECK_F8, (double)NAN, 1, (double)INFINITY, 1));
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
        ck_assert_int_eq(check_buffer_read(&buffer, &hash), 0);
        check_buffer_values(&buffer, back);
        ck_assert(memcmp(values, back, sizeof values) == 0);
        unsigned char *bytes = buffer.device, kept = bytes[buffer.bytes - 1];
        uint64_t other = 0;
        unsigned char *element = (unsigned char *)buffer.tensor.data + buffer.tensor.byte_offset;
        *element ^= 1;
        ck_assert_int_eq(check_buffer_read(&buffer, NULL), 1);
        ck_assert_int_eq(check_buffer_read(&buffer, &other), 0);
        check_buffer_values(&buffer, back);
        ck_assert(back[0] != 1 && hash != other);
        bytes[buffer.bytes - 1] = 0;
        ck_assert_int_eq(check_buffer_read(&buffer, &hash), 1);
        bytes[buffer.bytes - 1] = kept;
        element[-2 - (layout == CHECK_ODD)] = 0;
        ck_assert(layout == CHECK_NEGATIVE || check_buffer_read(&buffer, &hash) == 1);
        check_buffer_destroy(&buffer);
    }
}
END_TEST

/* Two views of one buffer are read on their own, and what lies between them with the whole. */
START_TEST(views_share_a_buffer)
{
    const int64_t shape[] = {1, 2, 5, 2}, heads[] = {1, 2, 2, 2};
    const double values[] = {1, 2, 3, 4, 5, 6, 7, 8};
    check_buffer whole, view[2];
    double back[8];
    uint64_t hash = 0;
    ck_assert_int_eq(check_buffer_create(&whole, (DLDevice){kDLCPU, 0}, CHECK_F32, 4, shape, CHECK_COMPACT, 0x5a), 0);
    for (int i = 0; i < 2; i++) {
        check_buffer_view(&view[i], &whole, i == 0 ? 0 : 3, heads);
        ck_assert_int_eq(check_buffer_write(&view[i], values), 0);
    }
    float *elements = whole.tensor.data;
    ck_assert(elements[0] == 1 && elements[6] == 1 && elements[10] == 5 && elements[19] == 8);
    elements[6] = elements[0] = 9;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(check_buffer_read(&view[i], &hash), 0);
        check_buffer_values(&view[i], back);
        ck_assert(back[0] == 9 && back[7] == 8);
    }
    ck_assert_int_eq(check_buffer_read(&whole, NULL), 0);
    elements[4] = 9;
    ck_assert_int_eq(check_buffer_read(&whole, NULL), 1);
    for (int i = 0; i < 2; i++)
        check_buffer_destroy(&view[i]);
    check_buffer_destroy(&whole);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("harness");
    TCase *tests = tcase_create("types, bounds and buffers");
    tcase_add_test(tests, every_short_pattern_survives);
    tcase_add_test(tests, float8_has_its_numbers);
    tcase_add_test(tests, the_ends_of_int64_survive);
    tcase_add_test(tests, rounding_is_to_nearest_even);
    tcase_add_test(tests, bounds_know_the_device);
    tcase_add_test(tests, bounds_know_products_of_rotations);
    tcase_add_test(tests, bounds_refuse_what_is_past_them);
    tcase_add_test(tests, bounds_know_copies_room_and_float8);
    tcase_add_test(tests, buffers_see_stray_bytes);
    tcase_add_test(tests, views_share_a_buffer);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
