/* Every refusal of act, and those that every operator shares, on act's tensors. */
#include "tests/refusal.h"
#include "tests/suite.h"

#include <string.h>

enum {
    X = COPES_ACT_X,
    GRAD = COPES_ACT_GRAD_O,
    SAVED = COPES_ACT_O,
    LSE_ALL = COPES_ACT_LSE_ALL,
    DELTA_ALL = COPES_ACT_DELTA_ALL,
    SUMS = OUT + COPES_ACT_OUT_LSE /* lse, or delta */
};
#define ACT offsetof(copes_op, act.act)
#define DIM offsetof(copes_op, act.dim)

static const int64_t shape[3] = {2, 3, 8}, rows[3] = {2, 1, 8};

static void forward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SILU}};
    call_add(call, X, float32, 3, shape);
    call_add(call, OUT, float32, 3, shape);
}

static void backward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SILU}};
    call_add(call, X, float32, 3, shape);
    call_add(call, GRAD, float32, 3, shape);
    call_add(call, OUT, float32, 3, shape);
}

static void softmax_backward(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -2}};
    call_add(call, SAVED, float32, 3, shape);
    call_add(call, GRAD, float32, 3, shape);
    call_add(call, OUT, float32, 3, shape);
}

/* Of shares along dim -2: the log sum exp of one, and what all shares' makes of it; then the same of the backward. */
static void share_lse(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -2}};
    call_add(call, X, float32, 3, shape);
    call_add(call, SUMS, float32, 3, rows);
}

static void share_of_lse(call_case *call)
{
    call->op = (copes_op){.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -2}};
    call_add(call, X, float32, 3, shape);
    call_add(call, LSE_ALL, float32, 3, rows);
    call_add(call, OUT, float32, 3, shape);
}

static void share_delta(call_case *call)
{
    softmax_backward(call);
    call_change(call, &(call_edit){ABSENT, OUT, 0, 0, 0});
    call_add(call, SUMS, float32, 3, rows);
}

static void share_of_delta(call_case *call)
{
    softmax_backward(call);
    call_add(call, DELTA_ALL, float32, 3, rows);
}

static const refusal share_lse_rows[] = {
    {COPES_ERROR_NULL,
     BY_SIZE_AND_RUN,
     {{ABSENT, SUMS, 0, 0, 0}},
     "act_forward: o is NULL; it must be a tensor, or lse must be one"},
    {COPES_ERROR_NULL, BY_ALL, {{GIVEN, OUT, 0, 0, 0}}, "act_forward: o and lse are given; one of them must be NULL"},
    {COPES_ERROR_NULL,
     BY_ALL,
     {{GIVEN, LSE_ALL, 0, 0, 0}},
     "act_forward: lse_all and lse are given; one of them must be NULL"},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, SUMS, kDLFloat, 64, 0}},
     "act_forward: lse has type float64; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, SUMS, 1, 3, 0}},
     "act_forward: lse has shape (2, 3, 8); it must be (2, 1, 8), as x, 1 along dim"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{RANK, SUMS, 0, 2, 0}},
     "act_forward: lse has shape (2, 1); it must be (2, 1, 8), as x, 1 along dim"},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, SUMS, 0, 0, 0}},
     "act_forward: lse has shape (2, 1, 8) with strides (0, 0, 1)" SHARED_ELEMENTS},
    OVERLAP(SUMS, X, 0, "act_forward: lse overlaps x"),
    WITHOUT_DATA(SUMS, "act_forward: lse has 16 elements"),
};

static const refusal share_of_lse_rows[] = {
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, LSE_ALL, kDLFloat, 16, 0}},
     "act_forward: lse_all has type float16; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, LSE_ALL, 1, 3, 0}},
     "act_forward: lse_all has shape (2, 3, 8); it must be (2, 1, 8), as x with 1 along dim"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, LSE_ALL, 0, 1, 0}},
     "act_forward: lse_all has shape (2,); it must be (2, 1, 8), as x with 1 along dim"},
    {COPES_ERROR_NULL,
     BY_SIZE_AND_RUN,
     {{ABSENT, OUT, 0, 0, 0}},
     "act_forward: o is NULL; it must be a tensor, or lse must be one"},
    OVERLAP(OUT, LSE_ALL, 0, "act_forward: o overlaps lse_all"),
    APART_FROM_FIRST(LSE_ALL, "act_forward: lse_all"),
};

static const refusal share_delta_rows[] = {
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_NONE, 0}},
     "act_backward: delta is given; it must be NULL but for softmax"},
    {COPES_ERROR_NULL,
     BY_SIZE_AND_RUN,
     {{ABSENT, SUMS, 0, 0, 0}},
     "act_backward: grad_x is NULL; it must be a tensor, or delta must be one"},
    {COPES_ERROR_NULL,
     BY_ALL,
     {{GIVEN, OUT, 0, 0, 0}},
     "act_backward: grad_x and delta are given; one of them must be NULL"},
    {COPES_ERROR_NULL,
     BY_ALL,
     {{GIVEN, DELTA_ALL, 0, 0, 0}},
     "act_backward: delta_all and delta are given; one of them must be NULL"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, SUMS, 2, 1, 0}},
     "act_backward: delta has shape (2, 1, 1); it must be (2, 1, 8), as grad_o, 1 along dim"},
    OVERLAP(SUMS, GRAD, 0, "act_backward: delta overlaps grad_o"),
};

static const refusal share_of_delta_rows[] = {
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_NONE, 0}},
     "act_backward: delta_all is given; it must be NULL but for softmax"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, DELTA_ALL, kDLFloat, 64, 0}},
     "act_backward: delta_all has type float64; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, DELTA_ALL, 0, 1, 0}},
     "act_backward: delta_all has shape (1, 1, 8); it must be (2, 1, 8), as grad_o with 1 along dim"},
};

static const refusal forward_rows[] = {
    {COPES_ERROR_OP, BY_ALL, {{KIND, 0, 0, 0, 0}}, "op: kind is 0; it must be one of copes_kind, 1 to 9"},
    {COPES_ERROR_OP, BY_ALL, {{KIND, 0, 0, 10, 0}}, "op: kind is 10; it must be one of copes_kind, 1 to 9"},
    {COPES_ERROR_OP, BY_ALL, {{KIND, 0, 0, -1, 0}}, "op: kind is -1; it must be one of copes_kind, 1 to 9"},
    MISSING(BY_ALL, X, "act_forward: x"),
    MISSING(BY_SIZE_AND_RUN, OUT, "act_forward: o"),
    NO_SLOT(2, "act_forward: in[2]"),
    NO_SLOT(15, "act_forward: in[15]"),
    NO_SLOT(OUT + 3, "act_forward: out[3]"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{GIVEN, LSE_ALL, 0, 0, 0}},
     "act_forward: lse_all is given; it must be NULL but for softmax"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{GIVEN, SUMS, 0, 0, 0}},
     "act_forward: lse is given; it must be NULL but for softmax"},
    {COPES_ERROR_NULL, BY_ALL, {{NO_SHAPE, X, 0, 0, 0}}, "act_forward: x has a NULL shape; it must point to 3 lengths"},
    {COPES_ERROR_NULL,
     BY_SIZE_AND_RUN,
     {{NO_SHAPE, OUT, 0, 0, 0}},
     "act_forward: o has a NULL shape; it must point to 3 lengths"},
    WITHOUT_DATA(X, "act_forward: x has 48 elements"),
    WITHOUT_DATA(OUT, "act_forward: o has 48 elements"),
    APART_FROM_CONTEXT(X, "act_forward: x"),
    {COPES_ERROR_DEVICE,
     BY_SIZE_AND_RUN,
     {{DEVICE, X, kDLCPU, 1, 0}},
     "act_forward: x is on device (1, 1); it must be on the context's, (1, 0)"},
    {COPES_ERROR_DEVICE,
     BY_SIZE_AND_RUN,
     {{DEVICE, OUT, kDLROCM, 2, 0}},
     "act_forward: o is on device (10, 2); it must be on the context's, (1, 0)"},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, X, kDLInt, 32, 0}}, "act_forward: x has type int32" FLOATS},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, X, kDLInt, 64, 0}}, "act_forward: x has type int64" FLOATS},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, X, kDLUInt, 8, 0}}, "act_forward: x has type uint8" FLOATS},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, X, 10, 8, 0}}, "act_forward: x has type float8_e4m3fn" FLOATS},
    {COPES_ERROR_DTYPE, BY_SIZE_AND_RUN, {{TYPE, OUT, 6, 8, 0}}, "act_forward: o has type bool" FLOATS},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, X, 17, 4, 0}, {LANES, X, 0, 2, 0}},
     "act_forward: x has type float4_e2m1fn in vectors of 2" FLOATS},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, X, 77, 32, 0}}, "act_forward: x has type 77 of DLPack with 32 bits" FLOATS},
    {COPES_ERROR_DTYPE, BY_ALL, {{LANES, X, 0, 4, 0}}, "act_forward: x has type float32 in vectors of 4" FLOATS},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, OUT, kDLFloat, 16, 0}},
     "act_forward: o has type float16; it must be float32"},
    {COPES_ERROR_SHAPE, BY_ALL, {{RANK, X, 0, 0, 0}}, "act_forward: x has rank 0; it must be 1 to 8"},
    {COPES_ERROR_SHAPE, BY_ALL, {{RANK, X, 0, -1, 0}}, "act_forward: x has rank -1; it must be 0 to 8"},
    {COPES_ERROR_SHAPE, BY_ALL, {{RANK, X, 0, 9, 0}}, "act_forward: x has rank 9; it must be 0 to 8"},
    {COPES_ERROR_SHAPE, BY_SIZE_AND_RUN, {{RANK, OUT, 0, 9, 0}}, "act_forward: o has rank 9; it must be 0 to 8"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{RANK, OUT, 0, 2, 0}},
     "act_forward: o has shape (2, 3); it must be (2, 3, 8), as x"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, X, 1, -3, 0}},
     "act_forward: x has length -3 in dimension 1; it must be 0 or more"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, OUT, 2, 7, 0}},
     "act_forward: o has shape (2, 3, 7); it must be (2, 3, 8), as x"},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{LENGTH, X, 0, INT64_MAX, 0}},
     "act_forward: x has shape (9223372036854775807, 3, 8) of float32; its size in bytes must fit 63 bits"},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{LENGTH, X, 0, INT64_C(1) << 40, 0}, {LENGTH, X, 1, INT64_C(1) << 40, 0}},
     "act_forward: x has shape (1099511627776, 1099511627776, 8) of float32; its size in bytes must fit 63 bits"},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{LENGTH, X, 0, 0, 0}, {LENGTH, X, 1, INT64_C(1) << 40, 0}, {LENGTH, X, 2, INT64_C(1) << 40, 0}},
     "act_forward: x has shape (0, 1099511627776, 1099511627776) of float32; its size in bytes must fit 63 bits"},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{STRIDE, X, 0, INT64_MAX, 0}},
     "act_forward: x has shape (2, 3, 8), strides (9223372036854775807, 8, 1) and byte offset 0" PAST_MEMORY},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{STRIDE, X, 0, INT64_MIN, 0}},
     "act_forward: x has shape (2, 3, 8), strides (-9223372036854775808, 8, 1) and byte offset 0" PAST_MEMORY},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{STRIDE, X, 1, -(INT64_C(1) << 62), 0}},
     "act_forward: x has shape (2, 3, 8), strides (24, -4611686018427387904, 1) and byte offset 0" PAST_MEMORY},
    {COPES_ERROR_SIZE,
     BY_SIZE_AND_RUN,
     {{STRIDE, OUT, 1, INT64_C(1) << 60, 0}},
     "act_forward: o has shape (2, 3, 8), strides (24, 1152921504606846976, 1) and byte offset 0" PAST_MEMORY},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{BYTES, X, 0, -1, 0}},
     "act_forward: x has shape (2, 3, 8), strides (24, 8, 1) and byte offset 18446744073709551615" PAST_MEMORY},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{ADDRESS, X, 0, -16, 0}},
     "act_forward: x has shape (2, 3, 8), strides (24, 8, 1) and byte offset 0" PAST_MEMORY},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{ADDRESS, X, 0, 16, 0}, {STRIDE, X, 0, -24, 0}},
     "act_forward: x has shape (2, 3, 8), strides (-24, 8, 1) and byte offset 0" PAST_MEMORY},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, OUT, 0, 0, 0}},
     "act_forward: o has shape (2, 3, 8) with strides (0, 8, 1)" SHARED_ELEMENTS},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, OUT, 1, 7, 0}},
     "act_forward: o has shape (2, 3, 8) with strides (24, 7, 1)" SHARED_ELEMENTS},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, OUT, 0, -8, 0}},
     "act_forward: o has shape (2, 3, 8) with strides (-8, 8, 1)" SHARED_ELEMENTS},
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{SHARE, OUT, X, 4, 0}},
     "act_forward: o overlaps x; it must have memory of its own, or be exactly that tensor"},
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{SHARE, OUT, X, 2, 0}},
     "act_forward: o overlaps x; it must have memory of its own, or be exactly that tensor"},
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{SHARE, OUT, X, 0, 0}, {STRIDE, OUT, 0, 32, 0}},
     "act_forward: o overlaps x; it must have memory of its own, or be exactly that tensor"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, 5, 0}},
     "act_forward: act is 5; it must be COPES_ACT_NONE (0) to COPES_ACT_SOFTMAX (4)"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, -1, 0}},
     "act_forward: act is -1; it must be COPES_ACT_NONE (0) to COPES_ACT_SOFTMAX (4)"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_SOFTMAX, 0}, {SET32, DIM, 0, 3, 0}},
     "act_forward: dim is 3; with tensors of rank 3 it must be -3 to -1, or 0 for the last axis"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, COPES_ACT_SOFTMAX, 0}, {SET32, DIM, 0, -4, 0}},
     "act_forward: dim is -4; with tensors of rank 3 it must be -3 to -1, or 0 for the last axis"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, DIM, 0, 99, 0}},
     "act_forward: dim is 99; with tensors of rank 3 it must be -3 to -1, or 0 for the last axis"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, DIM, 0, 1, 0}},
     "act_forward: dim is 1; axes count from the end: of rank 3 it must be -2"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, DIM, 0, 2, 0}},
     "act_forward: dim is 2; axes count from the end: of rank 3 it must be -1"},
    RESERVED(offsetof(copes_op, reserved), "act_forward"),
    RESERVED(offsetof(copes_op, act.reserved), "act_forward"),
    RESERVED(sizeof(copes_op) - 4, "act_forward"),
};

static const refusal backward_rows[] = {
    MISSING(BY_ALL, GRAD, "act_backward: grad_o"),
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, X, 0, 0, 0}},
     "act_backward: x is NULL; the backward of this activation needs the forward's input"},
    MISSING(BY_SIZE_AND_RUN, OUT, "act_backward: grad_x"),
    WITHOUT_DATA(X, "act_backward: x has 48 elements"),
    APART_FROM_FIRST(GRAD, "act_backward: grad_o"),
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, X, kDLBfloat, 16, 0}},
     "act_backward: x has type bfloat16; it must be float32, as grad_o"},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, GRAD, kDLInt, 32, 0}}, "act_backward: grad_o has type int32" FLOATS},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, X, 0, 1, 0}},
     "act_backward: x has shape (1, 3, 8); it must be (2, 3, 8), as grad_o"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, X, 0, 2, 0}},
     "act_backward: x has shape (2, 3); it must be (2, 3, 8), as grad_o"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, OUT, 0, 1, 0}},
     "act_backward: grad_x has shape (1, 3, 8); it must be (2, 3, 8), as grad_o"},
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{AS_VIEW_OF, OUT, X, 0, 0}},
     "act_backward: grad_x overlaps x; it must have memory of its own"},
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{SHARE, OUT, GRAD, 8, 0}},
     "act_backward: grad_x overlaps grad_o; it must have memory of its own, or be exactly that tensor"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, ACT, 0, 1000, 0}},
     "act_backward: act is 1000; it must be COPES_ACT_NONE (0) to COPES_ACT_SOFTMAX (4)"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, DIM, 0, -4, 0}},
     "act_backward: dim is -4; with tensors of rank 3 it must be -3 to -1, or 0 for the last axis"},
    RESERVED(offsetof(copes_op, act.reserved), "act_backward"),
};

static const refusal softmax_rows[] = {
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, SAVED, 0, 0, 0}},
     "act_backward: o is NULL; the backward of softmax needs the forward's output"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, SAVED, kDLFloat, 64, 0}},
     "act_backward: o has type float64; it must be float32, as grad_o"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, SAVED, 2, 9, 0}},
     "act_backward: o has shape (2, 3, 9); it must be (2, 3, 8), as grad_o"},
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{AS_VIEW_OF, OUT, SAVED, 0, 0}},
     "act_backward: grad_x overlaps o; it must have memory of its own"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, DIM, 0, 3, 0}},
     "act_backward: dim is 3; with tensors of rank 3 it must be -3 to -1, or 0 for the last axis"},
};

REFUSAL_TEST(forward_refuses, forward, forward_rows)
REFUSAL_TEST(backward_refuses, backward, backward_rows)
REFUSAL_TEST(softmax_backward_refuses, softmax_backward, softmax_rows)
REFUSAL_TEST(share_lse_refuses, share_lse, share_lse_rows)
REFUSAL_TEST(share_of_lse_refuses, share_of_lse, share_of_lse_rows)
REFUSAL_TEST(share_delta_refuses, share_delta, share_delta_rows)
REFUSAL_TEST(share_of_delta_refuses, share_of_delta, share_of_delta_rows)

START_TEST(empty_succeeds)
{
    static call_case call;
    for (int i = 0; i < 3; i++) {
        call_make(&call, forward);
        call.shape[X][i] = call.shape[OUT][i] = 0;
        call.tensor[X].data = NULL;
        expect_success(&call);
        expect_poison(&call, OUT);
    }
}
END_TEST

/* x and o as two columns of one buffer's rows, as halves of its last axis, and as its even and odd elements. */
START_TEST(interleaved_views_are_accepted)
{
    static call_case call;
    static const int64_t layouts[3][4] = {{96, 16, 1, 32}, {48, 16, 1, 32}, {48, 16, 2, 4}}; /* strides; o's offset */
    for (int i = 0; i < 3; i++) {
        call_make(&call, forward);
        memcpy(call.stride[X], layouts[i], 3 * sizeof layouts[i][0]);
        memcpy(call.stride[OUT], layouts[i], 3 * sizeof layouts[i][0]);
        call_change(&call, &(call_edit){SHARE, OUT, X, layouts[i][3], 0});
        ck_assert_msg(call_run(&call) == COPES_OK, "layout %d: %s", i, copes_last_error());
    }
}
END_TEST

START_TEST(in_place_is_accepted)
{
    static call_case call;
    call_make(&call, forward);
    call_change(&call, &(call_edit){AS_VIEW_OF, OUT, X, 0, 0});
    expect_success(&call);
    backward(&call);
    call_change(&call, &(call_edit){AS_VIEW_OF, OUT, GRAD, 0, 0});
    expect_success(&call);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_act");
    TCase *act = tcase_create("act");
    ADD_REFUSALS(act, forward_refuses);
    ADD_REFUSALS(act, backward_refuses);
    ADD_REFUSALS(act, softmax_backward_refuses);
    ADD_REFUSALS(act, share_lse_refuses);
    ADD_REFUSALS(act, share_of_lse_refuses);
    ADD_REFUSALS(act, share_delta_refuses);
    ADD_REFUSALS(act, share_of_delta_refuses);
    tcase_add_test(act, empty_succeeds);
    tcase_add_test(act, interleaved_views_are_accepted);
    tcase_add_test(act, in_place_is_accepted);
    suite_add_tcase(suite, act);
    return suite_run(suite);
}
