/* What qk_norm_rope's tensors may share: outputs in place of inputs, and views of one projection; every refusal of the rest. */
#include "tests/refusal_qk.h"
#include "tests/suite.h"

#include <string.h>

static const refusal rows[] = {
    APART_FROM_FIRST(SLOTS, "qk_norm_rope_forward: slots"),
    APART_FROM_CONTEXT(V_CACHE, "qk_norm_rope_forward: v_cache"),
    {COPES_ERROR_STRIDE,
     BY_SIZE_AND_RUN,
     {{STRIDE, K_CACHE, 1, 0, 0}},
     "qk_norm_rope_forward: k_cache has shape (4, 5, 2, 8) with strides (80, 0, 8, 1)" SHARED_ELEMENTS},
    OVERLAP_IN_PART(Q_OUT, Q, 4, "qk_norm_rope_forward: q_out overlaps q"),
    OVERLAP(Q_OUT, K, 0, "qk_norm_rope_forward: q_out overlaps k"),
    OVERLAP(K_OUT, Q, 0, "qk_norm_rope_forward: k_out overlaps q"),
    OVERLAP(K_OUT, V, 0, "qk_norm_rope_forward: k_out overlaps v"),
    OVERLAP(K_OUT, Q_OUT, 64, "qk_norm_rope_forward: k_out overlaps q_out"),
    OVERLAP(K_CACHE, Q, 0, "qk_norm_rope_forward: k_cache overlaps q"),
    OVERLAP(K_CACHE, K, 0, "qk_norm_rope_forward: k_cache overlaps k"),
    OVERLAP(V_CACHE, V, 0, "qk_norm_rope_forward: v_cache overlaps v"),
    OVERLAP(V_CACHE, K_CACHE, 0, "qk_norm_rope_forward: v_cache overlaps k_cache"),
    OVERLAP(V_CACHE, SLOTS, 8, "qk_norm_rope_forward: v_cache overlaps slots"),
};

REFUSAL_TEST(forward_refuses, call_qk, rows)

START_TEST(both_outputs_may_be_in_place)
{
    static call_case call;
    call_make(&call, call_qk);
    call_change(&call, &(call_edit){AS_VIEW_OF, Q_OUT, Q, 0, 0});
    call_change(&call, &(call_edit){AS_VIEW_OF, K_OUT, K, 0, 0});
    expect_success(&call);
    call_make(&call, call_qk_backward);
    call_change(&call, &(call_edit){AS_VIEW_OF, Q_OUT, GRAD_Q_OUT, 0, 0});
    call_change(&call, &(call_edit){AS_VIEW_OF, K_OUT, GRAD_K_OUT, 0, 0});
    expect_success(&call);
}
END_TEST

/* q, k and v become heads 0, 4 and 6 of one tensor, (2, 12, 8, 8), as a projection leaves them. */
static void make_packed(call_case *call)
{
    static const int64_t packed[4] = {2, 12, 8, 8};
    static const int slots[3] = {Q, K, V}, heads[3] = {0, 4, 6};
    call_make(call, call_qk);
    for (int i = 0; i < 3; i++) {
        DLTensor *part = &call->tensor[slots[i]];
        part->data = call->memory[Q] + heads[i] * packed[3] * (int64_t)sizeof(float);
        part->strides[0] = packed[1] * packed[2] * packed[3];
        part->strides[1] = packed[2] * packed[3];
        part->strides[2] = packed[3];
    }
}

START_TEST(one_tensor_may_have_queries_keys_and_values)
{
    static call_case call;
    make_packed(&call);
    expect_success(&call);
    make_packed(&call);
    call_change(&call, &(call_edit){AS_VIEW_OF, Q_OUT, Q, 0, 0});
    call_change(&call, &(call_edit){AS_VIEW_OF, K_OUT, K, 0, 0});
    expect_success(&call);
}
END_TEST

/* A view of one part is no view of another. */
START_TEST(packed_parts_may_not_be_mixed_up)
{
    static call_case call;
    make_packed(&call);
    call_change(&call, &(call_edit){AS_VIEW_OF, K_OUT, K, 0, 0});
    call.tensor[K_OUT].data = call.tensor[Q].data;
    expect_refusal(call_run(&call), COPES_ERROR_ALIAS,
                   "qk_norm_rope_forward: k_out overlaps q; it must have memory of its own");
    make_packed(&call);
    call_change(&call, &(call_edit){AS_VIEW_OF, Q_OUT, Q, 0, 0});
    call.tensor[Q_OUT].data = (char *)call.tensor[Q].data + 2 * 8 * sizeof(float); /* the last heads are those of k */
    expect_refusal(call_run(&call), COPES_ERROR_ALIAS,
                   "qk_norm_rope_forward: q_out overlaps q; it must have memory of its own, or be exactly that tensor");
}
END_TEST

/* copes_infer checks caches, and leaves their DLTensors as they are. */
START_TEST(infer_leaves_caches_alone)
{
    static call_case call;
    call_make(&call, call_qk);
    DLTensor out[2] = {{.shape = call.shape[Q_OUT]}, {.shape = call.shape[K_OUT]}}, before[2];
    call.args.out[COPES_QK_Q_OUT] = &out[0];
    call.args.out[COPES_QK_K_OUT] = &out[1];
    memcpy(before, &call.tensor[K_CACHE], sizeof before);
    ck_assert_msg(copes_infer(&call.op, &call.args) == COPES_OK, "%s", copes_last_error());
    ck_assert_mem_eq(&call.tensor[K_CACHE], before, sizeof before);
    ck_assert_int_eq(out[0].ndim, 4);
    ck_assert_int_eq(out[1].shape[2], 2);
}
END_TEST

/* Without a token, whatever its slot, nothing is written; without a place neither. */
START_TEST(nothing_to_do_succeeds)
{
    static call_case call;
    call_make(&call, call_qk);
    for (int slot = 0; slot < CALL_SLOTS && _i < 2; slot++)
        if (call.args.in[slot % COPES_MAX_INPUTS] != NULL && (slot < K_CACHE) && call.shape[slot][1] == 12)
            call.shape[slot][_i] = 0;
    call.shape[K_CACHE][0] = call.shape[V_CACHE][0] = _i == 2 ? 0 : 4;
    expect_success(&call);
    expect_poison(&call, K_CACHE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_qk_memory");
    TCase *qk = tcase_create("qk_norm_rope");
    ADD_REFUSALS(qk, forward_refuses);
    tcase_add_test(qk, both_outputs_may_be_in_place);
    tcase_add_test(qk, one_tensor_may_have_queries_keys_and_values);
    tcase_add_test(qk, packed_parts_may_not_be_mixed_up);
    tcase_add_test(qk, infer_leaves_caches_alone);
    tcase_add_loop_test(qk, nothing_to_do_succeeds, 0, 3);
    suite_add_tcase(suite, qk);
    return suite_run(suite);
}
