/* Every refusal of lrpe's attributes, but for those that the backward alone has. */
#include "tests/refusal_lrpe.h"
#include "tests/suite.h"

enum { X = COPES_LRPE_X, LSE = OUT + 1 };
#define AT(field) offsetof(copes_op, lrpe.field)
#define FAR ((INT64_C(1) << 31) - 1)

static const refusal rotate_rows[] = {
    RESERVED(offsetof(copes_op, reserved), "lrpe_forward"),
    RESERVED(AT(reserved), "lrpe_forward"),
    RESERVED(sizeof(copes_op) - 4, "lrpe_forward"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(variant), 0, 2, 0}},
     "lrpe_forward: variant is 2; it must be COPES_LRPE_ROTATE (0) or COPES_LRPE_COSINE (1)"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(pairing), 0, -1, 0}},
     "lrpe_forward: pairing is -1; it must be COPES_LRPE_HALF (0) or COPES_LRPE_INTERLEAVED (1)"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(act), 0, 5, 0}},
     "lrpe_forward: act is 5; it must be COPES_ACT_NONE (0) to COPES_ACT_SOFTMAX (4)"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(act), 0, COPES_ACT_SOFTMAX, 0}, {SET32, AT(dim), 0, 1, 0}},
     "lrpe_forward: dim is 1; counted from the end it must be -1 for the features or -3 for the sequence"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(dim), 0, 99, 0}},
     "lrpe_forward: dim is 99; counted from the end it must be -1 for the features or -3 for the sequence"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(pad_theta), 0, 2, 0}},
     "lrpe_forward: pad_theta is 2; it must be 0 or 1"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(pad_theta), 0, -1, 0}},
     "lrpe_forward: pad_theta is -1; it must be 0 or 1"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(pad_theta), 0, 1, 0}, {SET64, AT(sections), 0, 4, 0}},
     "lrpe_forward: pad_theta is 1; with sections it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(rotary_dim), 0, 3, 0}},
     "lrpe_forward: rotary_dim is 3; with 8 features from rotary_begin on it must be even and 0 to 8"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(rotary_dim), 0, -2, 0}},
     "lrpe_forward: rotary_dim is -2; with 8 features from rotary_begin on it must be even and 0 to 8"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(rotary_dim), 0, 10, 0}},
     "lrpe_forward: rotary_dim is 10; with 8 features from rotary_begin on it must be even and 0 to 8"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{LENGTH, X, 3, 7, 0}},
     "lrpe_forward: rotary_dim is 7; with 7 features from rotary_begin on it must be even and 0 to 7"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(prefix), 0, -1, 0}},
     "lrpe_forward: prefix is -1 and suffix is 0; each must be 0 or more, and their sum at most N, 12"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(suffix), 0, -1, 0}},
     "lrpe_forward: prefix is 0 and suffix is -1; each must be 0 or more, and their sum at most N, 12"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(prefix), 0, 13, 0}},
     "lrpe_forward: prefix is 13 and suffix is 0; each must be 0 or more, and their sum at most N, 12"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(prefix), 0, 6, 0}, {SET64, AT(suffix), 0, 7, 0}},
     "lrpe_forward: prefix is 6 and suffix is 7; each must be 0 or more, and their sum at most N, 12"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(prefix), 0, 1, 0}, {SET64, AT(suffix), 0, INT64_MAX, 0}},
     "lrpe_forward: prefix is 1 and suffix is 9223372036854775807; each must be 0 or more, and their sum at most N, 12"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(grid_rank), 0, -1, 0}},
     "lrpe_forward: grid_rank is -1; it must be 0 to 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(grid_rank), 0, 5, 0}},
     "lrpe_forward: grid_rank is 5; it must be 0 to 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(grid), 0, 12, 0}},
     "lrpe_forward: grid[0] is 12; with grid_rank 0 it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(offset), 0, FAR + 1, 0}},
     "lrpe_forward: offset[0] is 2147483648; with 12 positions from there all must lie between -2^31 and 2^31, both excluded"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(offset), 0, FAR - 10, 0}},
     "lrpe_forward: offset[0] is 2147483637; with 12 positions from there all must lie between -2^31 and 2^31, both excluded"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(offset), 0, -FAR - 1, 0}},
     "lrpe_forward: offset[0] is -2147483648; with 12 positions from there all must lie between -2^31 and 2^31, both excluded"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(offset), 0, INT64_MIN, 0}},
     "lrpe_forward: offset[0] is -9223372036854775808; with 12 positions from there all must lie between -2^31 and 2^31, both excluded"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(offset[1]), 0, 5, 0}},
     "lrpe_forward: offset[1] is 5; with 1-d positions it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(sections), 0, 3, 0}},
     "lrpe_forward: sections is (3, 0, 0, 0); with 1-d positions it must have 0 or more angles for each dimension, which sum to 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(sections[1]), 0, 4, 0}},
     "lrpe_forward: sections is (0, 4, 0, 0); with 1-d positions it must have 0 or more angles for each dimension, which sum to 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{GIVEN, LSE, 0, 0, 0}},
     "lrpe_forward: lse is given; it must be NULL but for softmax over the sequence"},
};

static const refusal grid_rows[] = {
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(grid[1]), 0, 6, 0}},
     "lrpe_forward: grid is (2, 6); its lengths must multiply to N - prefix - suffix, 12 - 1 - 1 = 10"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(grid[0]), 0, -2, 0}, {SET64, AT(grid[1]), 0, -5, 0}},
     "lrpe_forward: grid is (-2, -5); its lengths must multiply to N - prefix - suffix, 12 - 1 - 1 = 10"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(grid[0]), 0, INT64_C(1) << 32, 0}, {SET64, AT(grid[1]), 0, INT64_C(1) << 32, 0}},
     "lrpe_forward: grid is (4294967296, 4294967296); its lengths must multiply to N - prefix - suffix, 12 - 1 - 1 = 10"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(suffix), 0, 0, 0}},
     "lrpe_forward: grid is (2, 5); its lengths must multiply to N - prefix - suffix, 12 - 1 - 0 = 11"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(grid[2]), 0, 1, 0}},
     "lrpe_forward: grid[2] is 1; with grid_rank 2 it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(offset[1]), 0, FAR - 3, 0}},
     "lrpe_forward: offset[1] is 2147483644; with 5 positions from there all must lie between -2^31 and 2^31, both excluded"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(offset[2]), 0, -1, 0}},
     "lrpe_forward: offset[2] is -1; with 2-d positions it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(sections[0]), 0, 2, 0}},
     "lrpe_forward: sections is (2, 3, 0, 0); with 2-d positions it must have 0 or more angles for each dimension, which sum to 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(sections[0]), 0, -1, 0}, {SET64, AT(sections[1]), 0, 5, 0}},
     "lrpe_forward: sections is (-1, 5, 0, 0); with 2-d positions it must have 0 or more angles for each dimension, which sum to 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(sections[1]), 0, 2, 0}, {SET64, AT(sections[2]), 0, 1, 0}},
     "lrpe_forward: sections is (1, 2, 1, 0); with 2-d positions it must have 0 or more angles for each dimension, which sum to 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(sections[1]), 0, INT64_MAX, 0}},
     "lrpe_forward: sections is (1, 9223372036854775807, 0, 0); with 2-d positions it must have 0 or more angles for each dimension, which sum to 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(pad_theta), 0, 1, 0}},
     "lrpe_forward: pad_theta is 1; with sections it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(pad_theta), 0, 1, 0}, {SET64, AT(sections[0]), 0, 0, 0}, {SET64, AT(sections[1]), 0, 0, 0}},
     "lrpe_forward: pad_theta is 1; with 2-d positions it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(dim), 0, -1, 0}},
     "lrpe_forward: lse is given; it must be NULL but for softmax over the sequence"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(dim), 0, -2, 0}},
     "lrpe_forward: dim is -2; counted from the end it must be -1 for the features or -3 for the sequence"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(dim), 0, 3, 0}},
     "lrpe_forward: dim is 3; counted from the end it must be -1 for the features or -3 for the sequence"},
};

START_TEST(rotate_refuses)
{
    refusal_test(call_rotate, &rotate_rows[_i]);
}
END_TEST

START_TEST(grid_refuses)
{
    refusal_test(call_grid, &grid_rows[_i]);
}
END_TEST

START_TEST(largest_positions_are_accepted)
{
    static call_case call;
    static const int64_t ends[2] = {FAR - 11, -FAR};
    call_make(&call, call_rotate);
    call.op.lrpe.offset[0] = ends[_i];
    expect_success(&call);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_lrpe_attributes");
    TCase *lrpe = tcase_create("lrpe");
    tcase_add_loop_test(lrpe, rotate_refuses, 0, sizeof rotate_rows / sizeof rotate_rows[0]);
    tcase_add_loop_test(lrpe, grid_refuses, 0, sizeof grid_rows / sizeof grid_rows[0]);
    tcase_add_loop_test(lrpe, largest_positions_are_accepted, 0, 2);
    suite_add_tcase(suite, lrpe);
    return suite_run(suite);
}
