/* What calls and tensors of every operator are refused for, on act's: unknown kinds and slots, what is NULL, devices,
 * types, lengths and layouts. */
#include "tests/refusal_act.h"
#include "tests/suite.h"

#include <string.h>

static const refusal slot_rows[] = {
    {COPES_ERROR_OP, BY_ALL, {{KIND, 0, 0, 0, 0}}, "op: kind is 0; it must be one of copes_kind, 1 to 9"},
    {COPES_ERROR_OP, BY_ALL, {{KIND, 0, 0, 10, 0}}, "op: kind is 10; it must be one of copes_kind, 1 to 9"},
    {COPES_ERROR_OP, BY_ALL, {{KIND, 0, 0, -1, 0}}, "op: kind is -1; it must be one of copes_kind, 1 to 9"},
    NO_SLOT(2, "act_forward: in[2]"),
    NO_SLOT(15, "act_forward: in[15]"),
    NO_SLOT(OUT + 3, "act_forward: out[3]"),
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
};

static const refusal type_rows[] = {
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
};

static const refusal length_rows[] = {
    {COPES_ERROR_SHAPE, BY_ALL, {{RANK, X, 0, -1, 0}}, "act_forward: x has rank -1; it must be 0 to 8"},
    {COPES_ERROR_SHAPE, BY_ALL, {{RANK, X, 0, 9, 0}}, "act_forward: x has rank 9; it must be 0 to 8"},
    {COPES_ERROR_SHAPE, BY_SIZE_AND_RUN, {{RANK, OUT, 0, 9, 0}}, "act_forward: o has rank 9; it must be 0 to 8"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, X, 1, -3, 0}},
     "act_forward: x has length -3 in dimension 1; it must be 0 or more"},
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
};

static const refusal layout_rows[] = {
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
    OVERLAP_IN_PART(OUT, X, 4, "act_forward: o overlaps x"),
    OVERLAP_IN_PART(OUT, X, 2, "act_forward: o overlaps x"),
    {COPES_ERROR_ALIAS,
     BY_SIZE_AND_RUN,
     {{SHARE, OUT, X, 0, 0}, {STRIDE, OUT, 0, 32, 0}},
     "act_forward: o overlaps x; it must have memory of its own, or be exactly that tensor"},
};

REFUSAL_TEST(slots_refuse, call_act, slot_rows)
REFUSAL_TEST(types_refuse, call_act, type_rows)
REFUSAL_TEST(lengths_refuse, call_act, length_rows)
REFUSAL_TEST(layouts_refuse, call_act, layout_rows)

START_TEST(empty_succeeds)
{
    static call_case call;
    for (int i = 0; i < 3; i++) {
        call_make(&call, call_act);
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
        call_make(&call, call_act);
        memcpy(call.stride[X], layouts[i], 3 * sizeof layouts[i][0]);
        memcpy(call.stride[OUT], layouts[i], 3 * sizeof layouts[i][0]);
        call_change(&call, &(call_edit){SHARE, OUT, X, layouts[i][3], 0});
        ck_assert_msg(call_run(&call) == COPES_OK, "layout %d: %s", i, copes_last_error());
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_tensor");
    TCase *tensor = tcase_create("tensor");
    ADD_REFUSALS(tensor, slots_refuse);
    ADD_REFUSALS(tensor, types_refuse);
    ADD_REFUSALS(tensor, lengths_refuse);
    ADD_REFUSALS(tensor, layouts_refuse);
    tcase_add_test(tensor, empty_succeeds);
    tcase_add_test(tensor, interleaved_views_are_accepted);
    suite_add_tcase(suite, tensor);
    return suite_run(suite);
}
