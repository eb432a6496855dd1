/* Every refusal of lrpe's slots, but for shares of a softmax (test_refusals_lrpe_shares.c) and positions
 * (test_refusals_lrpe_positions.c). Its attributes are in test_refusals_lrpe_attributes.c, and what any tensor may be
 * refused for is in test_refusals_tensor.c. */
#include "tests/refusal_lrpe.h"
#include "tests/suite.h"

#include <string.h>

/* How the message ends of a theta with another number of angles than one for each pair or feature. */
#define OR_PADDED ", or 1 for all of them; pad_theta allows fewer, and those past E are then 0"

static const refusal rotate_rows[] = {
    MISSING(BY_ALL, X, "lrpe_forward: x"),
    MISSING(BY_ALL, THETA, "lrpe_forward: theta"),
    MISSING(BY_SIZE_AND_RUN, OUT, "lrpe_forward: o"),
    NO_SLOT(LSE_IN, "lrpe_forward: in[5]"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{GIVEN, LSE_ALL, 0, 0, 0}},
     "lrpe_forward: lse_all is given; it must be NULL but for softmax over the sequence"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{GIVEN, LSE_ALL, 0, 0, 0}, {SET32, AT(act), 0, COPES_ACT_SOFTMAX, 0}},
     "lrpe_forward: lse_all is given; it must be NULL but for softmax over the sequence"},
    NO_SLOT(OUT + 2, "lrpe_forward: out[2]"),
    WITHOUT_DATA(THETA, "lrpe_forward: theta has 12 elements"),
    APART_FROM_FIRST(THETA, "lrpe_forward: theta"),
    APART_FROM_CONTEXT(THETA, "lrpe_forward: theta"),
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, X, kDLInt, 32, 0}}, "lrpe_forward: x has type int32" FLOATS},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, THETA, kDLFloat, 64, 0}}, "lrpe_forward: theta has type float64" THETA_TYPES},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, THETA, kDLInt, 32, 0}}, "lrpe_forward: theta has type int32" THETA_TYPES},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, OUT, kDLBfloat, 16, 0}},
     "lrpe_forward: o has type bfloat16; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, X, 0, 2, 0}},
     "lrpe_forward: x has shape (2, 12); it must be (B, N, H, D) or (B, N, D)"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, X, 0, 5, 0}},
     "lrpe_forward: x has shape (2, 12, 3, 8, 0); it must be (B, N, H, D) or (B, N, D)"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, THETA, 0, 1, 0}},
     "lrpe_forward: theta has shape (3,); with 3 heads it must be (3, E), (1, E) or of rank 3"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 0, 2, 0}},
     "lrpe_forward: theta has shape (2, 4); with 3 heads it must be (3, E), (1, E) or of rank 3"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 1, 0, 0}},
     "lrpe_forward: theta has shape (3, 0); with 4 angles (half of rotary_dim) E must be 4" OR_PADDED},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 1, 2, 0}},
     "lrpe_forward: theta has shape (3, 2); with 4 angles (half of rotary_dim) E must be 4" OR_PADDED},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 1, 3, 0}, {SET64, AT(rotary_dim), 0, 4, 0}},
     "lrpe_forward: theta has shape (3, 3); with 2 angles (half of rotary_dim) E must be 2" OR_PADDED},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 1, 0, 0}, {SET32, AT(pad_theta), 0, 1, 0}},
     "lrpe_forward: theta has shape (3, 0); with 4 angles and 1-d positions E must be 1 to 4"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 1, 5, 0}, {SET32, AT(pad_theta), 0, 1, 0}},
     "lrpe_forward: theta has shape (3, 5); with 4 angles and 1-d positions E must be 1 to 4"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 1, 5, 0}},
     "lrpe_forward: theta has shape (3, 5); with 4 angles (half of rotary_dim) E must be 4" OR_PADDED},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, OUT, 3, 16, 0}},
     "lrpe_forward: o has shape (2, 12, 3, 16); it must be (2, 12, 3, 8), as x; cosine: 2D features"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{SET32, AT(variant), 0, COPES_LRPE_COSINE, 0}, {LENGTH, THETA, 1, 8, 0}},
     "lrpe_forward: o has shape (2, 12, 3, 8); it must be (2, 12, 3, 16), as x; cosine: 2D features"},
    {COPES_ERROR_SIZE,
     BY_INFER,
     {{SET32, AT(variant), 0, COPES_LRPE_COSINE, 0}, {LENGTH, X, 3, INT64_C(1) << 54, 0}, {LENGTH, THETA, 1, 1, 0}},
     "lrpe_forward: o is to have shape (2, 12, 3, 36028797018963968) of float32; its size in bytes must fit 63 bits"},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, OUT, 2, 4, 0}},
     "lrpe_forward: o has shape (2, 12, 3, 8) with strides (288, 24, 4, 1)" SHARED_ELEMENTS},
    OVERLAP_IN_PART(OUT, X, 32, "lrpe_forward: o overlaps x"),
    OVERLAP(OUT, THETA, 0, "lrpe_forward: o overlaps theta"),
};

static const refusal grid_rows[] = {
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 1, 3, 0}},
     "lrpe_forward: theta has shape (3, 3); with sections E must be 4, their sum"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{SET64, AT(sections[0]), 0, 0, 0}, {SET64, AT(sections[1]), 0, 0, 0}, {LENGTH, THETA, 1, 1, 0}},
     "lrpe_forward: theta has shape (3, 1); with 4 angles and 2-d positions E must be 2 to 4"},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, LSE, kDLFloat, 64, 0}},
     "lrpe_forward: lse has type float64; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, LSE, 1, 1, 0}},
     "lrpe_forward: lse has shape (2, 1, 8); it must be (2, 3, 8), (B, H, D)"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{RANK, LSE, 0, 2, 0}},
     "lrpe_forward: lse has shape (2, 3); it must be (2, 3, 8), (B, H, D)"},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, LSE, 2, 0, 0}},
     "lrpe_forward: lse has shape (2, 3, 8) with strides (24, 8, 0)" SHARED_ELEMENTS},
    WITHOUT_DATA(LSE, "lrpe_forward: lse has 48 elements"),
    OVERLAP(LSE, OUT, 0, "lrpe_forward: lse overlaps o"),
    OVERLAP(LSE, X, 64, "lrpe_forward: lse overlaps x"),
};

static const refusal backward_rows[] = {
    MISSING(BY_ALL, GRAD, "lrpe_backward: grad_o"),
    MISSING(BY_ALL, THETA, "lrpe_backward: theta"),
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, X, 0, 0, 0}},
     "lrpe_backward: x is NULL; the backward of an activation needs the forward's input"},
    NO_SLOT(OUT + 3, "lrpe_backward: out[3]"),
    NEITHER(OUT, "lrpe_backward: grad_x", "delta"),
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, X, kDLFloat, 16, 0}},
     "lrpe_backward: x has type float16; it must be float32, as grad_o"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, LSE_IN, kDLFloat, 16, 0}},
     "lrpe_backward: lse has type float16; it must be float32"},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, GRAD, kDLInt, 32, 0}}, "lrpe_backward: grad_o has type int32" FLOATS},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, X, 3, 16, 0}},
     "lrpe_backward: x has shape (2, 12, 3, 16); it must be (2, 12, 3, 8), as the forward's input"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, X, 0, 3, 0}},
     "lrpe_backward: x has shape (2, 12, 3); it must be (2, 12, 3, 8), as the forward's input"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, GRAD, 3, 15, 0}},
     "lrpe_backward: grad_o has 15 features; for variant cosine it must be 2D, an even number"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, GRAD, 0, 1, 0}},
     "lrpe_backward: grad_o has shape (2,); it must be (B, N, H, D) or (B, N, D)"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, LSE_IN, 2, 7, 0}},
     "lrpe_backward: lse has shape (2, 3, 7); it must be (2, 3, 8), (B, H, D)"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, OUT, 3, 16, 0}},
     "lrpe_backward: grad_x has shape (2, 12, 3, 16); it must be (2, 12, 3, 8), as x"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(rotary_dim), 0, 4, 0}},
     "lrpe_backward: rotary_dim is 4; for variant cosine it must be 0"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, THETA, 1, 4, 0}},
     "lrpe_backward: theta has shape (1, 4); with 8 angles (one per feature) E must be 8" OR_PADDED},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(pairing), 0, COPES_LRPE_INTERLEAVED, 0}},
     "lrpe_backward: pairing is 1; for variant cosine, which pairs nothing, it must be COPES_LRPE_HALF (0)"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(act), 0, COPES_ACT_NONE, 0}},
     "lrpe_backward: lse is given; it must be NULL but for softmax over the sequence"},
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{AS_VIEW_OF, OUT, X, 0, 0}},
     "lrpe_backward: grad_x overlaps x; it must have memory of its own"},
    OVERLAP(OUT, GRAD, 0, "lrpe_backward: grad_x overlaps grad_o"),
    OVERLAP(OUT, LSE_IN, 4, "lrpe_backward: grad_x overlaps lse"),
};

REFUSAL_TEST(rotate_refuses, call_rotate, rotate_rows)
REFUSAL_TEST(grid_refuses, call_grid, grid_rows)
REFUSAL_TEST(backward_refuses, call_cosine_backward, backward_rows)

/* B, H and D of 0 leave nothing to write; without tokens, the log of a sum of nothing is -inf. */
START_TEST(empty_succeeds)
{
    static call_case call;
    static const int lse_dim[4] = {0, -1, 1, 2}, theta_dim[4] = {-1, -1, 0, 1};
    call_make(&call, call_grid);
    call.op.lrpe = (copes_lrpe_attributes){.act = COPES_ACT_SOFTMAX, .dim = -3};
    call.shape[X][_i] = call.shape[OUT][_i] = 0;
    if (lse_dim[_i] >= 0)
        call.shape[LSE][lse_dim[_i]] = 0;
    if (theta_dim[_i] >= 0)
        call.shape[THETA][theta_dim[_i]] = 0;
    call.tensor[X].data = call.tensor[OUT].data = NULL;
    expect_success(&call);
    float value;
    memcpy(&value, call.memory[LSE], sizeof value);
    expect_poison(&call, OUT);
    if (_i == 1)
        ck_assert_float_eq(value, -1.0f / 0.0f);
    else
        expect_poison(&call, LSE);
}
END_TEST

/* q and k as columns of one packed (B, N, 3, H, D) buffer. */
START_TEST(packed_columns_are_accepted)
{
    static call_case call;
    call_make(&call, call_rotate);
    call.shape[X][0] = call.shape[OUT][0] = 1;
    call.stride[X][1] = call.stride[OUT][1] = 3 * 24;
    call_change(&call, &(call_edit){SHARE, OUT, X, 24 * sizeof(float), 0});
    expect_success(&call);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_lrpe");
    TCase *lrpe = tcase_create("lrpe");
    ADD_REFUSALS(lrpe, rotate_refuses);
    ADD_REFUSALS(lrpe, grid_refuses);
    ADD_REFUSALS(lrpe, backward_refuses);
    tcase_add_loop_test(lrpe, empty_succeeds, 0, 4);
    tcase_add_test(lrpe, packed_columns_are_accepted);
    suite_add_tcase(suite, lrpe);
    return suite_run(suite);
}
