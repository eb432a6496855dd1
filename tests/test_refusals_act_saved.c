/* Refusals of what act's backward has of the forward, and what is used where there is more than one: x, o or a mask. */
#include "tests/refusal_act.h"
#include "tests/suite.h"

#include <string.h>

static const DLDataType byte = {kDLUInt, 8, 1};
static const int64_t shape[3] = {2, 3, 9}, bytes[3] = {2, 3, 2};

static void masked_forward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_RELU}};
    call_add(call, X, float32, 3, shape);
    call_add(call, OUT, float32, 3, shape);
    call_add(call, OUT_MASK, byte, 3, bytes);
}

static void masked_backward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_RELU}};
    call_add(call, GRAD, float32, 3, shape);
    call_add(call, MASK, byte, 3, bytes);
    call_add(call, OUT, float32, 3, shape);
}

static void of_output(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SIGMOID}};
    call_add(call, GRAD, float32, 3, shape);
    call_add(call, SAVED, float32, 3, shape);
    call_add(call, OUT, float32, 3, shape);
}

static const refusal forward_rows[] = {
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_SILU, 0}},
     "act_forward: mask is given; it must be NULL but for relu"},
    MISSING(BY_SIZE_AND_RUN, OUT, "act_forward: o"),
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, OUT_MASK, kDLFloat, 32, 0}},
     "act_forward: mask has type float32; it must be uint8"},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, OUT_MASK, 6, 8, 0}},
     "act_forward: mask has type bool; it must be uint8"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, OUT_MASK, 2, 1, 0}},
     "act_forward: mask has shape (2, 3, 1); it must be (2, 3, 2), as x, ceil(D / 8) in place of D"},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, OUT_MASK, 1, 1, 0}},
     "act_forward: mask has shape (2, 3, 2) with strides (6, 1, 1)" SHARED_ELEMENTS},
    OVERLAP(OUT_MASK, X, 215, "act_forward: mask overlaps x"),
    OVERLAP(OUT_MASK, OUT, 0, "act_forward: mask overlaps o"),
    WITHOUT_DATA(OUT_MASK, "act_forward: mask has 12 elements"),
};

static const refusal backward_rows[] = {
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_SIGMOID, 0}},
     "act_backward: mask is given; it must be NULL but for relu"},
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, MASK, 0, 0, 0}},
     "act_backward: x is NULL; the backward of relu needs x, o or mask: the forward's input, output or mask"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, MASK, kDLFloat, 32, 0}},
     "act_backward: mask has type float32; it must be uint8"},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, MASK, kDLInt, 8, 0}}, "act_backward: mask has type int8; it must be uint8"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, MASK, 2, 9, 0}},
     "act_backward: mask has shape (2, 3, 9); it must be (2, 3, 2), as grad_o with a bit for each of its last axis"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, MASK, 0, 2, 0}},
     "act_backward: mask has shape (2, 3); it must be (2, 3, 2), as grad_o with a bit for each of its last axis"},
    OVERLAP(OUT, MASK, 0, "act_backward: grad_x overlaps mask"),
    APART_FROM_FIRST(MASK, "act_backward: mask"),
};

static const refusal output_rows[] = {
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, SAVED, 0, 0, 0}},
     "act_backward: x is NULL; the backward of sigmoid needs x or o: the forward's input or output"},
    {COPES_ERROR_NULL,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_SILU, 0}},
     "act_backward: x is NULL; the backward of this activation needs the forward's input"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, SAVED, kDLFloat, 64, 0}},
     "act_backward: o has type float64; it must be float32, as grad_o"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, SAVED, 1, 1, 0}},
     "act_backward: o has shape (2, 1, 9); it must be (2, 3, 9), as grad_o"},
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{AS_VIEW_OF, OUT, SAVED, 0, 0}},
     "act_backward: grad_x overlaps o; it must have memory of its own"},
};

REFUSAL_TEST(forward_refuses, masked_forward, forward_rows)
REFUSAL_TEST(backward_refuses, masked_backward, backward_rows)
REFUSAL_TEST(output_refuses, of_output, output_rows)

/* What is not used is not looked at, whatever its shape. */
START_TEST(mask_comes_first)
{
    static call_case call;
    call_make(&call, masked_backward);
    call_add(&call, X, float32, 1, shape);
    call_add(&call, SAVED, float32, 1, shape);
    memset(call.memory[MASK], 0x55, 12);
    expect_success(&call);
    const float *grad = (const float *)(const void *)call.memory[GRAD],
                *made = (const float *)(const void *)call.memory[OUT];
    for (int i = 0; i < 54; i++)
        ck_assert(made[i] == (i % 9 % 2 == 0 ? grad[i] : 0));
}
END_TEST

/* The bits past the last element are 0 when they are written. */
START_TEST(mask_ends_in_zeros)
{
    static call_case call;
    call_make(&call, masked_forward);
    float *x = (float *)(void *)call.memory[X];
    for (int i = 0; i < 54; i++)
        x[i] = i % 9 == 3 ? -1.0F : 1.0F;
    expect_success(&call);
    for (int i = 0; i < 6; i++)
        ck_assert(call.memory[OUT_MASK][2 * i] == 0xf7 && call.memory[OUT_MASK][2 * i + 1] == 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_act_saved");
    TCase *act = tcase_create("act");
    ADD_REFUSALS(act, forward_refuses);
    ADD_REFUSALS(act, backward_refuses);
    ADD_REFUSALS(act, output_refuses);
    tcase_add_test(act, mask_comes_first);
    tcase_add_test(act, mask_ends_in_zeros);
    suite_add_tcase(suite, act);
    return suite_run(suite);
}
