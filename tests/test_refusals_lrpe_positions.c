/* Every refusal of what lrpe has beside a grid: positions and offsets, a theta for each dimension, theta's gradient, and the
 * attributes amplitude, inverse and rotary_begin. */
#include "tests/refusal_lrpe.h"
#include "tests/suite.h"

#include <math.h>

static const refusal position_rows[] = {
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, POSITIONS, 1, 3, 0}},
     "lrpe_forward: positions has shape (2, 3, 12); it must be (2, 2, 12), (m, B, N) to go with the tokens"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, POSITIONS, 2, 11, 0}},
     "lrpe_forward: positions has shape (2, 2, 11); it must be (2, 2, 12), (m, B, N) to go with the tokens"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, POSITIONS, 0, 2, 0}},
     "lrpe_forward: positions has shape (2, 2); it must be (2, 12), (B, N) to go with the tokens"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, POSITIONS, 0, 1, 0}},
     "lrpe_forward: positions has shape (2,); it must be (12,), (N) to go with the tokens"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, POSITIONS, 0, 0, 0}},
     "lrpe_forward: positions has shape (); it must be (N), (B, N) or (m, B, N), m of 1 to 4"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, POSITIONS, 0, 4, 0}, {LENGTH, POSITIONS, 3, 1, 0}},
     "lrpe_forward: positions has shape (2, 2, 12, 1); it must be (N), (B, N) or (m, B, N), m of 1 to 4"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, POSITIONS, 0, 0, 0}},
     "lrpe_forward: positions has shape (0, 2, 12); it must be (N), (B, N) or (m, B, N), m of 1 to 4"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, POSITIONS, 0, 5, 0}},
     "lrpe_forward: positions has shape (5, 2, 12); it must be (N), (B, N) or (m, B, N), m of 1 to 4"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, POSITIONS, kDLFloat, 64, 0}},
     "lrpe_forward: positions has type float64; it must be int32, int64 or float32"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, POSITIONS, kDLFloat, 16, 0}},
     "lrpe_forward: positions has type float16; it must be int32, int64 or float32"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, POSITIONS, kDLUInt, 32, 0}},
     "lrpe_forward: positions has type uint32; it must be int32, int64 or float32"},
    APART_FROM_FIRST(POSITIONS, "lrpe_forward: positions"),
    APART_FROM_CONTEXT(POSITIONS, "lrpe_forward: positions"),
    WITHOUT_DATA(POSITIONS, "lrpe_forward: positions has 48 elements"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(grid_rank), 0, 1, 0}, {SET64, AT(grid), 0, 12, 0}},
     "lrpe_forward: grid_rank is 1; with positions it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(grid[3]), 0, 1, 0}},
     "lrpe_forward: grid[3] is 1; with positions it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(prefix), 0, 1, 0}},
     "lrpe_forward: prefix is 1; with positions it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(suffix), 0, -1, 0}},
     "lrpe_forward: suffix is -1; with positions it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{GIVEN, OFFSETS, 0, 0, 0}},
     "lrpe_forward: offsets is given; with positions it must be NULL"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(offset[2]), 0, 1, 0}},
     "lrpe_forward: offset[2] is 1; with 2-d positions it must be 0"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 0, 3, 0}},
     "lrpe_forward: theta has shape (3, 3, 4); it must be (2, 3, 4), (m, H, K) or (m, 1, K) with as many rows of angles as positions have dimensions"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 1, 2, 0}},
     "lrpe_forward: theta has shape (2, 2, 4); it must be (2, 3, 4), (m, H, K) or (m, 1, K) with as many rows of angles as positions have dimensions"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 1, 1, 0}, {LENGTH, THETA, 2, 1, 0}},
     "lrpe_forward: theta has shape (2, 1, 1); it must be (2, 1, 4), (m, H, K) or (m, 1, K) with as many rows of angles as positions have dimensions"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 2, 4, 0}, {SET64, AT(rotary_dim), 0, 4, 0}},
     "lrpe_forward: theta has shape (2, 3, 4); it must be (2, 3, 2), (m, H, K) or (m, 1, K) with as many rows of angles as positions have dimensions"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, THETA, 0, 4, 0}, {LENGTH, THETA, 3, 1, 0}},
     "lrpe_forward: theta has shape (2, 3, 4, 1); with 3 heads it must be (3, E), (1, E) or of rank 3"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, POSITIONS, 0, 1, 0}},
     "lrpe_forward: theta has shape (2, 3, 4); it must be (1, 3, 4), (m, H, K) or (m, 1, K) with as many rows of angles as positions have dimensions"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(sections[0]), 0, 3, 0}, {SET64, AT(sections[1]), 0, 1, 0}},
     "lrpe_forward: sections is given; with a theta of rank 3 it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(pad_theta), 0, 1, 0}},
     "lrpe_forward: pad_theta is 1; with 2-d positions it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(pad_theta), 0, 1, 0}, {LENGTH, POSITIONS, 0, 1, 0}, {LENGTH, THETA, 0, 1, 0}},
     "lrpe_forward: pad_theta is 1; with a theta of rank 3 it must be 0"},
    OVERLAP(OUT, POSITIONS, 0, "lrpe_forward: o overlaps positions"),
    OVERLAP(POSITIONS, OUT, 2300, "lrpe_forward: o overlaps positions"),
};

static const refusal offsets_rows[] = {
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, OFFSETS, 0, 3, 0}},
     "lrpe_forward: offsets has shape (3,); it must be (2,), (B)"},
    {COPES_ERROR_SHAPE, BY_ALL, {{RANK, OFFSETS, 0, 0, 0}}, "lrpe_forward: offsets has shape (); it must be (2,), (B)"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, OFFSETS, 0, 2, 0}, {LENGTH, OFFSETS, 1, 1, 0}},
     "lrpe_forward: offsets has shape (2, 1); it must be (2,), (B)"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, OFFSETS, kDLFloat, 64, 0}},
     "lrpe_forward: offsets has type float64; it must be int32, int64 or float32"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, OFFSETS, kDLInt, 8, 0}},
     "lrpe_forward: offsets has type int8; it must be int32, int64 or float32"},
    {COPES_ERROR_DEVICE,
     BY_SIZE_AND_RUN,
     {{DEVICE, OFFSETS, kDLCUDA, 1, 0}},
     "lrpe_forward: offsets is on device (2, 1); it must be on the context's, (1, 0)"},
    WITHOUT_DATA(OFFSETS, "lrpe_forward: offsets has 2 elements"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(grid_rank), 0, 2, 0}, {SET64, AT(grid[0]), 0, 3, 0}, {SET64, AT(grid[1]), 0, 4, 0}},
     "lrpe_forward: offsets is given; with a 2-d grid it must be NULL"},
    OVERLAP(OUT, OFFSETS, 4, "lrpe_forward: o overlaps offsets"),
};

/* On the good call of rotate. */
static const refusal attribute_rows[] = {
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, THETA, 0, 3, 0}, {LENGTH, THETA, 2, 4, 0}},
     "lrpe_forward: theta has shape (3, 4, 4); it must be (1, 3, 4), (m, H, K) or (m, 1, K) with as many rows of angles as positions have dimensions"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(rotary_begin), 0, -2, 0}},
     "lrpe_forward: rotary_begin is -2; with 8 features it must be 0 to 8"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(rotary_begin), 0, 9, 0}},
     "lrpe_forward: rotary_begin is 9; with 8 features it must be 0 to 8"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(rotary_begin), 0, INT64_MIN, 0}},
     "lrpe_forward: rotary_begin is -9223372036854775808; with 8 features it must be 0 to 8"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(rotary_begin), 0, 3, 0}},
     "lrpe_forward: rotary_dim is 5; with 5 features from rotary_begin on it must be even and 0 to 5"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(rotary_begin), 0, 4, 0}, {SET64, AT(rotary_dim), 0, 6, 0}},
     "lrpe_forward: rotary_dim is 6; with 4 features from rotary_begin on it must be even and 0 to 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(rotary_begin), 0, 4, 0}, {SET64, AT(rotary_dim), 0, INT64_MAX - 1, 0}},
     "lrpe_forward: rotary_dim is 9223372036854775806; with 4 features from rotary_begin on it must be even and 0 to 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(variant), 0, COPES_LRPE_COSINE, 0}, {SET64, AT(rotary_begin), 0, 2, 0}},
     "lrpe_forward: rotary_begin is 2; for variant cosine it must be 0"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET_REAL, AT(amplitude), 0, 0, (double)NAN}},
     "lrpe_forward: amplitude is nan; it must be finite in float32, or 0 for 1"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET_REAL, AT(amplitude), 0, 0, -(double)INFINITY}},
     "lrpe_forward: amplitude is -inf; it must be finite in float32, or 0 for 1"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET_REAL, AT(amplitude), 0, 0, 1e300}},
     "lrpe_forward: amplitude is 1e+300; it must be finite in float32, or 0 for 1"},
    {COPES_ERROR_ATTRIBUTE, BY_ALL, {{SET32, AT(inverse), 0, 2, 0}}, "lrpe_forward: inverse is 2; it must be 0 or 1"},
    {COPES_ERROR_ATTRIBUTE, BY_ALL, {{SET32, AT(inverse), 0, -1, 0}}, "lrpe_forward: inverse is -1; it must be 0 or 1"},
};

static const refusal learn_rows[] = {
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, X, 0, 0, 0}},
     "lrpe_backward: x is NULL; grad_theta needs the forward's input"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, GRAD_THETA, 0, 1, 0}},
     "lrpe_backward: grad_theta has shape (1, 4); it must be (3, 4), as theta"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{RANK, GRAD_THETA, 0, 3, 0}, {LENGTH, GRAD_THETA, 2, 1, 0}},
     "lrpe_backward: grad_theta has shape (3, 4, 1); it must be (3, 4), as theta"},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, GRAD_THETA, kDLFloat, 16, 0}},
     "lrpe_backward: grad_theta has type float16; it must be float32"},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, GRAD_THETA, kDLFloat, 64, 0}},
     "lrpe_backward: grad_theta has type float64; it must be float32"},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, GRAD_THETA, 0, 0, 0}},
     "lrpe_backward: grad_theta has shape (3, 4) with strides (0, 1)" SHARED_ELEMENTS},
    APART_FROM_CONTEXT(GRAD_THETA, "lrpe_backward: grad_theta"),
    WITHOUT_DATA(GRAD_THETA, "lrpe_backward: grad_theta has 12 elements"),
    MISSING(BY_SIZE_AND_RUN, OUT, "lrpe_backward: grad_x"),
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{AS_VIEW_OF, GRAD_THETA, THETA, 0, 0}},
     "lrpe_backward: grad_theta overlaps theta; it must have memory of its own"},
    OVERLAP(GRAD_THETA, POSITIONS, 8, "lrpe_backward: grad_theta overlaps positions"),
    OVERLAP(GRAD_THETA, OUT, 0, "lrpe_backward: grad_theta overlaps grad_x"),
};

REFUSAL_TEST(positions_refuse, call_positions, position_rows)
REFUSAL_TEST(offsets_refuse, call_offsets, offsets_rows)
REFUSAL_TEST(attributes_refuse, call_rotate, attribute_rows)
REFUSAL_TEST(learning_refuses, call_learning, learn_rows)

/* Of a backward without an activation, too, which else takes no x. */
START_TEST(theta_alone_needs_x)
{
    static call_case call;
    call_make(&call, call_learning);
    call.op.lrpe.act = COPES_ACT_NONE;
    call_change(&call, &(call_edit){ABSENT, X, 0, 0, 0});
    expect_refusal(call_run(&call), COPES_ERROR_NULL, "lrpe_backward: x is NULL; grad_theta needs the forward's input");
    call_change(&call, &(call_edit){ABSENT, GRAD_THETA, 0, 0, 0});
    expect_success(&call);
}
END_TEST

/* In place of the input that it replaces beside positions; and with no feature left to turn. */
START_TEST(in_place_is_accepted)
{
    static call_case call;
    call_make(&call, call_positions);
    call_change(&call, &(call_edit){AS_VIEW_OF, OUT, X, 0, 0});
    expect_success(&call);
}
END_TEST

/* Nothing to sum leaves zeros, where theta is there for no token. */
START_TEST(gradient_of_no_tokens_is_zero)
{
    static call_case call;
    static const int axis[2] = {0, 1}; /* B, N */
    call_make(&call, call_learning);
    for (int slot = 0; slot < CALL_SLOTS; slot++)
        if (call.tensor[slot].ndim == 4)
            call.shape[slot][axis[_i]] = 0;
    call.shape[POSITIONS][axis[_i]] = 0;
    expect_success(&call);
    for (size_t i = 0; i < 12 * sizeof(float); i++)
        ck_assert_int_eq(call.memory[GRAD_THETA][i], 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_lrpe_positions");
    TCase *lrpe = tcase_create("lrpe");
    ADD_REFUSALS(lrpe, positions_refuse);
    ADD_REFUSALS(lrpe, offsets_refuse);
    ADD_REFUSALS(lrpe, attributes_refuse);
    ADD_REFUSALS(lrpe, learning_refuses);
    tcase_add_test(lrpe, theta_alone_needs_x);
    tcase_add_test(lrpe, in_place_is_accepted);
    tcase_add_loop_test(lrpe, gradient_of_no_tokens_is_zero, 0, 2);
    suite_add_tcase(suite, lrpe);
    return suite_run(suite);
}
