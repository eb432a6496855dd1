/* Every refusal of tpa_decode's attributes and slots. What any tensor may be refused for is in
 * test_refusals_tensor.c. */
#include "tests/refusal.h"
#include "tests/suite.h"

#include <math.h>
#include <string.h>

enum {
    AQ = COPES_TPA_AQ,
    BQ = COPES_TPA_BQ,
    AK = COPES_TPA_AK,
    BK = COPES_TPA_BK,
    AV = COPES_TPA_AV,
    BV = COPES_TPA_BV,
    LEN = COPES_TPA_KV_LEN,
    LSE = OUT + 1,
    SLOTS = 9
};
#define AT(field) offsetof(copes_op, tpa.field)

static const struct {
    int slot, rank;
    int64_t shape[4];
} tensors[SLOTS] = {
    {AQ, 4, {2, 1, 4, 3}}, {BQ, 4, {2, 1, 3, 8}},  {AK, 4, {2, 5, 4, 2}}, {BK, 4, {2, 5, 2, 8}}, {AV, 4, {2, 5, 4, 2}},
    {BV, 4, {2, 5, 2, 6}}, {OUT, 4, {2, 1, 4, 6}}, {LSE, 3, {2, 1, 4}},   {LEN, 1, {2}},
};

static void decode(call_case *call)
{
    call->op = (copes_op){.kind = COPES_TPA_DECODE};
    for (int i = 0; i < SLOTS; i++)
        call_add(call, tensors[i].slot, tensors[i].slot == LEN ? (DLDataType){kDLInt, 32, 1} : float32, tensors[i].rank,
                 tensors[i].shape);
}

static const refusal rows[] = {
    MISSING(BY_ALL, AQ, "tpa_decode: aq"),
    MISSING(BY_ALL, BQ, "tpa_decode: bq"),
    MISSING(BY_ALL, AK, "tpa_decode: ak"),
    MISSING(BY_ALL, BK, "tpa_decode: bk"),
    MISSING(BY_ALL, AV, "tpa_decode: av"),
    MISSING(BY_ALL, BV, "tpa_decode: bv"),
    MISSING(BY_SIZE_AND_RUN, OUT, "tpa_decode: o"),
    NO_SLOT(LEN + 1, "tpa_decode: in[7]"),
    WITHOUT_DATA(LEN, "tpa_decode: kv_len has 2 elements"),
    APART_FROM_FIRST(BV, "tpa_decode: bv"),
    APART_FROM_CONTEXT(LEN, "tpa_decode: kv_len"),
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, AQ, kDLInt, 32, 0}}, "tpa_decode: aq has type int32" FLOATS},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, BQ, kDLFloat, 16, 0}},
     "tpa_decode: bq has type float16; it must be float32, as aq"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, BV, kDLFloat, 64, 0}},
     "tpa_decode: bv has type float64; it must be float32, as aq"},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, LEN, kDLInt, 64, 0}}, "tpa_decode: kv_len has type int64; it must be int32"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, LEN, kDLFloat, 32, 0}},
     "tpa_decode: kv_len has type float32; it must be int32"},
    {COPES_ERROR_DTYPE, BY_ALL, {{TYPE, BK, kDLInt, 8, 0}}, "tpa_decode: bk has type int8" FLOATS},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, OUT, kDLFloat, 64, 0}},
     "tpa_decode: o has type float64; it must be float32"},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, LSE, kDLFloat, 16, 0}},
     "tpa_decode: lse has type float16; it must be float32"},
    {COPES_ERROR_SHAPE, BY_ALL, {{RANK, AQ, 0, 3, 0}}, "tpa_decode: aq has shape (2, 1, 4); it must be (B, N, H, Rq)"},
    {COPES_ERROR_SHAPE, BY_ALL, {{RANK, BQ, 0, 3, 0}}, "tpa_decode: bq has shape (2, 1, 3); it must be (B, N, Rq, D)"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, AK, 0, 2, 0}},
     "tpa_decode: ak has shape (2, 5); it must be (B, M, H, Rk) or (B, M, H)"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, AV, 0, 3, 0}},
     "tpa_decode: bv has shape (2, 5, 2, 6); it must be (2, 5, 1, 6), (B, M, Rv, E) to go with av"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, BV, 0, 5, 0}},
     "tpa_decode: bv has shape (2, 5, 2, 6, 0); it must be (B, M, Rv, E) or (B, M, E)"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, AQ, 0, 3, 0}},
     "tpa_decode: aq, bq, ak, bk, av and bv have batches (3, 2, 2, 2, 2, 2); B must be the same in all"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, BV, 0, 1, 0}},
     "tpa_decode: aq, bq, ak, bk, av and bv have batches (2, 2, 2, 2, 2, 1); B must be the same in all"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, BQ, 1, 2, 0}},
     "tpa_decode: bq has shape (2, 2, 3, 8); it must be (2, 1, 3, 8), (B, N, Rq, D) to go with aq"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, BQ, 2, 4, 0}},
     "tpa_decode: bq has shape (2, 1, 4, 8); it must be (2, 1, 3, 8), (B, N, Rq, D) to go with aq"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, AK, 2, 1, 0}},
     "tpa_decode: ak has shape (2, 5, 1, 2); it must be (2, 5, 4, 2), (B, M, H, Rk) to go with aq"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, BK, 3, 7, 0}},
     "tpa_decode: bk has shape (2, 5, 2, 7); it must be (2, 5, 2, 8), (B, M, Rk, D) to go with ak and bq"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, BK, 1, 6, 0}},
     "tpa_decode: bk has shape (2, 6, 2, 8); it must be (2, 5, 2, 8), (B, M, Rk, D) to go with ak and bq"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, AV, 1, 4, 0}},
     "tpa_decode: av has shape (2, 4, 4, 2); it must be (2, 5, 4, 2), (B, M, H, Rv) to go with ak"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, BV, 2, 1, 0}},
     "tpa_decode: bv has shape (2, 5, 1, 6); it must be (2, 5, 2, 6), (B, M, Rv, E) to go with av"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, AK, 3, 0, 0}, {LENGTH, BK, 2, 0, 0}},
     "tpa_decode: aq, ak and av have ranks 3, 0 and 2; each must be 1 or more"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, BQ, 3, 0, 0}, {LENGTH, BK, 3, 0, 0}},
     "tpa_decode: bq has 0 features; it must have 1 or more"},
    {COPES_ERROR_SHAPE, BY_ALL, {{LENGTH, LEN, 0, 1, 0}}, "tpa_decode: kv_len has shape (1,); it must be (2,), (B)"},
    {COPES_ERROR_SHAPE, BY_ALL, {{RANK, LEN, 0, 0, 0}}, "tpa_decode: kv_len has shape (); it must be (2,), (B)"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, OUT, 3, 8, 0}},
     "tpa_decode: o has shape (2, 1, 4, 8); it must be (2, 1, 4, 6), (B, N, H, E)"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, LSE, 2, 3, 0}},
     "tpa_decode: lse has shape (2, 1, 3); it must be (2, 1, 4), (B, N, H)"},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{STRIDE, BK, 1, INT64_C(1) << 61, 0}},
     "tpa_decode: bk has shape (2, 5, 2, 8), strides (80, 2305843009213693952, 8, 1) and byte offset 0" PAST_MEMORY},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, OUT, 2, 5, 0}},
     "tpa_decode: o has shape (2, 1, 4, 6) with strides (24, 0, 5, 1)" SHARED_ELEMENTS},
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, LSE, 0, 0, 0}},
     "tpa_decode: lse has shape (2, 1, 4) with strides (0, 0, 1)" SHARED_ELEMENTS},
    OVERLAP(OUT, AQ, 0, "tpa_decode: o overlaps aq"),
    OVERLAP(OUT, LEN, 4, "tpa_decode: o overlaps kv_len"),
    OVERLAP(LSE, OUT, 20, "tpa_decode: lse overlaps o"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET_REAL, AT(scale), 0, 0, NAN}},
     "tpa_decode: scale is nan; it must be finite, or 0 for the default"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET_REAL, AT(scale), 0, 0, INFINITY}},
     "tpa_decode: scale is inf; it must be finite, or 0 for the default"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET_REAL, AT(scale_q), 0, 0, -INFINITY}},
     "tpa_decode: scale_q is -inf; it must be finite, or 0 for the default"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET_REAL, AT(scale_k), 0, 0, NAN}},
     "tpa_decode: scale_k is nan; it must be finite, or 0 for the default"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET_REAL, AT(scale_v), 0, 0, INFINITY}},
     "tpa_decode: scale_v is inf; it must be finite, or 0 for the default"},
    {COPES_ERROR_ATTRIBUTE, BY_ALL, {{SET32, AT(causal), 0, 2, 0}}, "tpa_decode: causal is 2; it must be 0 or 1"},
    {COPES_ERROR_ATTRIBUTE, BY_ALL, {{SET32, AT(causal), 0, -1, 0}}, "tpa_decode: causal is -1; it must be 0 or 1"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(kv_first), 0, -1, 0}},
     "tpa_decode: kv_first is -1; it must be 0 or more"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(kv_stride), 0, -2, 0}},
     "tpa_decode: kv_stride is -2; it must be 0 or more"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(kv_total), 0, -3, 0}},
     "tpa_decode: kv_total is -3; it must be 0 or more"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(kv_total), 0, 4, 0}},
     "tpa_decode: kv_total is 4; with kv_first 0 and kv_stride 1 the last of 5 keys is key 4"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET64, AT(kv_total), 0, 15, 0}, {SET64, AT(kv_first), 0, 3, 0}, {SET64, AT(kv_stride), 0, 3, 0}},
     "tpa_decode: kv_total is 15; with kv_first 3 and kv_stride 3 the last of 5 keys is key 15"},
    {COPES_ERROR_SIZE,
     BY_ALL,
     {{SET64, AT(kv_stride), 0, INT64_MAX, 0}, {SET64, AT(kv_first), 0, 7, 0}},
     "tpa_decode: kv_first is 7; with kv_stride 9223372036854775807 the places of 5 keys must fit 63 bits"},
    RESERVED(AT(reserved), "tpa_decode"),
};

REFUSAL_TEST(decode_refuses, decode, rows)

/* Each input fits, broadcast over its features; o, whose lengths come from several of them, does not. */
START_TEST(output_past_63_bits)
{
    static call_case call;
    call_make(&call, decode);
    for (int slot = AK; slot <= BV; slot++)
        call.shape[slot][1] = 1;
    call.tensor[AV].ndim = call.tensor[BV].ndim = 3;
    call.shape[BV][2] = INT64_C(1) << 59;
    call.stride[BV][2] = 0;
    expect_refusal(
        copes_infer(&call.op, &call.args), COPES_ERROR_SIZE,
        "tpa_decode: o is to have shape (2, 1, 4, 576460752303423488) of float32; its size in bytes must fit "
        "63 bits");
}
END_TEST

/* Sets axis `dim` of a slot to 0; -1 leaves it. */
static void empty_axis(call_case *call, int slot, int dim)
{
    if (dim >= 0)
        call->shape[slot][dim] = 0;
}

/* Without batch entries, queries or heads there is nothing to write; without features of a value, only lse. */
START_TEST(empty_succeeds)
{
    static const int dims[4][SLOTS] = {
        /* in the order of `tensors`: aq bq ak bk av bv o lse kv_len */
        {0, 0, 0, 0, 0, 0, 0, 0, 0},
        {1, 1, -1, -1, -1, -1, 1, 1, -1},
        {2, -1, 2, -1, 2, -1, 2, 2, -1},
        {-1, -1, -1, -1, -1, 3, 3, -1, -1},
    };
    static call_case call;
    call_make(&call, decode);
    for (int i = 0; i < SLOTS; i++)
        empty_axis(&call, tensors[i].slot, dims[_i][i]);
    call.tensor[OUT].data = NULL;
    expect_success(&call);
    expect_poison(&call, OUT);
    if (_i < 3)
        expect_poison(&call, LSE);
}
END_TEST

/* Without keys o = 0 and lse = -inf, whatever the strides of what is not there. */
START_TEST(no_keys_give_zero)
{
    static call_case call;
    static const int slots[4] = {AK, BK, AV, BV};
    call_make(&call, decode);
    for (int i = 0; i < 4; i++) {
        call.shape[slots[i]][1] = 0;
        call.stride[slots[i]][0] = INT64_MIN;
        call.stride[slots[i]][2] = INT64_MAX;
        call.tensor[slots[i]].data = NULL;
    }
    expect_success(&call);
    float o, lse;
    memcpy(&o, call.memory[OUT], sizeof o);
    memcpy(&lse, call.memory[LSE], sizeof lse);
    ck_assert_float_eq(o, 0);
    ck_assert_float_eq(lse, -INFINITY);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_tpa");
    TCase *tpa = tcase_create("tpa");
    ADD_REFUSALS(tpa, decode_refuses);
    tcase_add_test(tpa, output_past_63_bits);
    tcase_add_loop_test(tpa, empty_succeeds, 0, 4);
    tcase_add_test(tpa, no_keys_give_zero);
    suite_add_tcase(suite, tpa);
    return suite_run(suite);
}
