/* What the interface promises beyond the operators: the tables agree with the structs of named slots, a bound is enough for
 * each of its calls, and the tensors of one kind are refused by another. */
#include "common/slots.h"
#include "tests/small_calls.h"
#include "tests/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const DLDevice cpu = {kDLCPU, 0};
static const DLDataType float32 = {kDLFloat, 32, 1};

/* Every member of copes_args by name. */
#define MEMBER(kind, slot) {#kind, #slot, COPES_SLOT(kind.slot)}

static const struct {
    const char *kind, *name;
    int slot; /* those of outputs from COPES_MAX_INPUTS */
} members[] = {
    MEMBER(act_forward, x),
    MEMBER(act_forward, lse_all),
    MEMBER(act_forward, o),
    MEMBER(act_forward, lse),
    MEMBER(act_forward, mask),
    MEMBER(act_backward, x),
    MEMBER(act_backward, grad_o),
    MEMBER(act_backward, o),
    MEMBER(act_backward, delta_all),
    MEMBER(act_backward, mask),
    MEMBER(act_backward, grad_x),
    MEMBER(act_backward, delta),
    MEMBER(lrpe_forward, x),
    MEMBER(lrpe_forward, theta),
    MEMBER(lrpe_forward, positions),
    MEMBER(lrpe_forward, offsets),
    MEMBER(lrpe_forward, lse_all),
    MEMBER(lrpe_forward, o),
    MEMBER(lrpe_forward, lse),
    MEMBER(lrpe_backward, x),
    MEMBER(lrpe_backward, theta),
    MEMBER(lrpe_backward, positions),
    MEMBER(lrpe_backward, offsets),
    MEMBER(lrpe_backward, grad_o),
    MEMBER(lrpe_backward, lse),
    MEMBER(lrpe_backward, delta_all),
    MEMBER(lrpe_backward, grad_x),
    MEMBER(lrpe_backward, grad_theta),
    MEMBER(lrpe_backward, delta),
    MEMBER(tpa_decode, aq),
    MEMBER(tpa_decode, bq),
    MEMBER(tpa_decode, ak),
    MEMBER(tpa_decode, bk),
    MEMBER(tpa_decode, av),
    MEMBER(tpa_decode, bv),
    MEMBER(tpa_decode, kv_len),
    MEMBER(tpa_decode, o),
    MEMBER(tpa_decode, lse),
    MEMBER(qk_norm_rope_forward, q),
    MEMBER(qk_norm_rope_forward, k),
    MEMBER(qk_norm_rope_forward, theta),
    MEMBER(qk_norm_rope_forward, positions),
    MEMBER(qk_norm_rope_forward, offsets),
    MEMBER(qk_norm_rope_forward, wq),
    MEMBER(qk_norm_rope_forward, wk),
    MEMBER(qk_norm_rope_forward, v),
    MEMBER(qk_norm_rope_forward, slots),
    MEMBER(qk_norm_rope_forward, k_scale),
    MEMBER(qk_norm_rope_forward, v_scale),
    MEMBER(qk_norm_rope_forward, q_out),
    MEMBER(qk_norm_rope_forward, k_out),
    MEMBER(qk_norm_rope_forward, k_cache),
    MEMBER(qk_norm_rope_forward, v_cache),
    MEMBER(qk_norm_rope_backward, q),
    MEMBER(qk_norm_rope_backward, k),
    MEMBER(qk_norm_rope_backward, theta),
    MEMBER(qk_norm_rope_backward, positions),
    MEMBER(qk_norm_rope_backward, offsets),
    MEMBER(qk_norm_rope_backward, wq),
    MEMBER(qk_norm_rope_backward, wk),
    MEMBER(qk_norm_rope_backward, grad_q_out),
    MEMBER(qk_norm_rope_backward, grad_k_out),
    MEMBER(qk_norm_rope_backward, grad_q),
    MEMBER(qk_norm_rope_backward, grad_k),
    MEMBER(qk_norm_rope_backward, grad_wq),
    MEMBER(qk_norm_rope_backward, grad_wk),
    MEMBER(attention_merge_forward, o_shares),
    MEMBER(attention_merge_forward, lse_shares),
    MEMBER(attention_merge_forward, o),
    MEMBER(attention_merge_forward, lse),
    MEMBER(attention_merge_backward, o_shares),
    MEMBER(attention_merge_backward, lse_shares),
    MEMBER(attention_merge_backward, grad_o),
    MEMBER(attention_merge_backward, grad_lse),
    MEMBER(attention_merge_backward, grad_o_shares),
    MEMBER(attention_merge_backward, grad_lse_shares),
};

enum { MEMBERS = sizeof members / sizeof members[0] };

START_TEST(table_has_the_named_slots)
{
    int found = 0;
    for (size_t i = 0; i < copes_op_count(); i++) {
        const copes_op_info *info = copes_op_at(i);
        for (int slot = 0; slot < COPES_MAX_INPUTS + COPES_MAX_OUTPUTS; slot++) {
            const copes_slot_info *row = slot < COPES_MAX_INPUTS ? info->in[slot] : info->out[slot - COPES_MAX_INPUTS];
            int member = 0;
            while (member < MEMBERS && (strcmp(members[member].kind, info->name) != 0 || members[member].slot != slot))
                member++;
            ck_assert_msg((row != NULL) == (member < MEMBERS), "%s: slot %d", info->name, slot);
            if (row != NULL)
                ck_assert_str_eq(row->name, members[member].name);
            found += row != NULL;
        }
    }
    ck_assert_int_eq(found, MEMBERS);
}
END_TEST

START_TEST(tables_end)
{
    ck_assert_uint_eq(copes_op_count(), COPES_ATTENTION_MERGE_BACKWARD);
    for (size_t i = 0; i < copes_op_count(); i++)
        ck_assert_int_eq(copes_op_at(i)->kind, (int)i + 1);
    ck_assert_ptr_null(copes_op_at(copes_op_count()));
    ck_assert_ptr_null(copes_op_at(SIZE_MAX));
    ck_assert_uint_ge(copes_backend_count(), 1);
    ck_assert_str_eq(copes_backend_at(0)->name, "cpu");
    ck_assert_int_eq(copes_device_count(copes_backend_at(0)->device_type), 1);
    ck_assert_ptr_null(copes_backend_at(copes_backend_count()));
    ck_assert_int_eq(copes_device_count(kDLVulkan), 0);
}
END_TEST

static copes_context *open_context(void)
{
    const copes_context_options options = {.threads = 3};
    copes_context *context;
    ck_assert_msg(copes_context_create(cpu, &options, &context) == COPES_OK, "%s", copes_last_error());
    return context;
}

/* The table's calls on one workspace of the bound; one byte less is refused by the call that it is for. */
START_TEST(bound_is_enough_and_no_more)
{
    enum { MOST_CALLS = 32 };
    copes_op ops[MOST_CALLS];
    copes_args args[MOST_CALLS];
    small_tensors *tensors = calloc((size_t)small_call_count, sizeof *tensors);
    copes_context *context = open_context();
    size_t most = 0, bound = 0;
    ck_assert_ptr_nonnull(tensors);
    ck_assert_int_le(small_call_count, MOST_CALLS);
    for (int i = 0; i < small_call_count; i++) {
        size_t size;
        small_call_fill(&small_calls[i], float32, &tensors[i]);
        ops[i] = small_calls[i].op;
        args[i] = tensors[i].args;
        ck_assert_int_eq(copes_workspace_size(context, &ops[i], &args[i], &size), COPES_OK);
        most = size > most ? size : most;
    }
    const size_t count = (size_t)small_call_count;
    ck_assert_int_eq(copes_workspace_bound(context, ops, args, count, &bound), COPES_OK);
    ck_assert_uint_gt(bound, 0);
    ck_assert_uint_eq(bound, most);
    void *workspace = malloc(bound);
    int refused = 0;
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(copes_run(context, &ops[i], &args[i], workspace, bound) == COPES_OK, "%s", copes_last_error());
        refused += copes_run(context, &ops[i], &args[i], workspace, bound - 1) == COPES_ERROR_WORKSPACE;
    }
    ck_assert_int_ge(refused, 1);
    ck_assert_int_eq(copes_workspace_bound(context, NULL, NULL, 0, &bound), COPES_OK);
    ck_assert_uint_eq(bound, 0);
    free(workspace);
    free(tensors);
    copes_context_destroy(context);
}
END_TEST

/* An error says which call it is in, and leaves the size as it was. */
START_TEST(bound_names_the_call)
{
    copes_context *context = open_context();
    small_tensors *tensors = calloc(1, sizeof *tensors);
    ck_assert_ptr_nonnull(tensors);
    small_call_fill(&small_calls[0], float32, tensors);
    copes_op ops[3] = {small_calls[0].op, small_calls[0].op, small_calls[0].op};
    copes_args args[3] = {tensors->args, tensors->args, tensors->args};
    size_t size = 77;
    args[2].act_forward.x = NULL;
    ck_assert_int_eq(copes_workspace_bound(context, ops, args, 3, &size), COPES_ERROR_NULL);
    ck_assert_str_eq(copes_last_error(), "call 2: act_forward: x is NULL; it must be a tensor");
    ops[0].kind = (copes_kind)99;
    ck_assert_int_eq(copes_workspace_bound(context, ops, args, 3, &size), COPES_ERROR_OP);
    ck_assert_str_eq(copes_last_error(), "call 0: op: kind is 99; it must be one of copes_kind, 1 to 9");
    ck_assert_uint_eq(size, 77);
    free(tensors);
    copes_context_destroy(context);
}
END_TEST

/* The compiler tells slots of different names apart; what has been put under the wrong kind's name is refused here. */
START_TEST(tensors_of_another_kind_are_refused)
{
    static small_tensors tensors;
    copes_context *context = open_context();
    for (int i = 0; i < small_call_count; i++)
        for (size_t j = 0; j < copes_op_count(); j++) {
            copes_op op = {.kind = copes_op_at(j)->kind};
            size_t size;
            small_call_fill(&small_calls[i], float32, &tensors);
            if (op.kind != small_calls[i].op.kind)
                ck_assert_msg(copes_workspace_size(context, &op, &tensors.args, &size) != COPES_OK, "%s took %s",
                              copes_op_at(j)->name, small_calls[i].name);
        }
    copes_context_destroy(context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("interface");
    TCase *tests = tcase_create("interface");
    tcase_add_test(tests, table_has_the_named_slots);
    tcase_add_test(tests, tables_end);
    tcase_add_test(tests, bound_is_enough_and_no_more);
    tcase_add_test(tests, bound_names_the_call);
    tcase_add_test(tests, tensors_of_another_kind_are_refused);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
