/* The public header compiles by itself as C11, with every warning on; its constants are what they say. */
#include <copes/copes.h>

/* What callers fill keeps its size in every version, and has no bytes without a name, which nothing would set to zero. */
_Static_assert(sizeof(copes_act_attributes) == COPES_ATTRIBUTES_SIZE, "act");
_Static_assert(sizeof(copes_lrpe_attributes) == COPES_ATTRIBUTES_SIZE, "lrpe");
_Static_assert(sizeof(copes_tpa_attributes) == COPES_ATTRIBUTES_SIZE, "tpa");
_Static_assert(sizeof(copes_qk_attributes) == COPES_ATTRIBUTES_SIZE, "qk");
_Static_assert(sizeof(copes_merge_attributes) == COPES_ATTRIBUTES_SIZE, "merge");
_Static_assert(sizeof(copes_op) == 8 + COPES_ATTRIBUTES_SIZE, "a kind, a reserved word, and attributes");
_Static_assert(offsetof(copes_lrpe_attributes, grid) == 24, "no gap before the first list");
_Static_assert(offsetof(copes_qk_attributes, grid) == 16, "likewise");
_Static_assert(offsetof(copes_tpa_attributes, reserved) == offsetof(copes_tpa_attributes, causal) + 4,
               "no gap before what is reserved");
_Static_assert(offsetof(copes_qk_attributes, eps) == offsetof(copes_qk_attributes, amplitude) + 8,
               "no gap between factors");
_Static_assert(sizeof(copes_context_options) == COPES_OPTIONS_SIZE, "options");

enum { TENSORS = COPES_MAX_INPUTS + COPES_MAX_OUTPUTS, FIRST_OUT = COPES_MAX_INPUTS };
_Static_assert(sizeof(copes_args) == TENSORS * sizeof(DLTensor *), "every kind's slots are two rows");
_Static_assert(offsetof(copes_act_forward_slots, o) == FIRST_OUT * sizeof(DLTensor *), "act_forward's outputs");
_Static_assert(offsetof(copes_act_backward_slots, grad_x) == FIRST_OUT * sizeof(DLTensor *), "act_backward's");
_Static_assert(offsetof(copes_lrpe_forward_slots, o) == FIRST_OUT * sizeof(DLTensor *), "lrpe_forward's");
_Static_assert(offsetof(copes_lrpe_backward_slots, grad_x) == FIRST_OUT * sizeof(DLTensor *), "lrpe_backward's");
_Static_assert(offsetof(copes_tpa_decode_slots, o) == FIRST_OUT * sizeof(DLTensor *), "tpa_decode's");
_Static_assert(offsetof(copes_qk_norm_rope_forward_slots, q_out) == FIRST_OUT * sizeof(DLTensor *),
               "qk_norm_rope_forward's");
_Static_assert(offsetof(copes_qk_norm_rope_backward_slots, grad_q) == FIRST_OUT * sizeof(DLTensor *),
               "qk_norm_rope_backward's");
_Static_assert(offsetof(copes_qk_norm_rope_forward_slots, wk) == offsetof(copes_qk_norm_rope_backward_slots, wk),
               "what both directions take has one place");
_Static_assert(offsetof(copes_attention_merge_forward_slots, o) == FIRST_OUT * sizeof(DLTensor *),
               "attention_merge_forward's");
_Static_assert(offsetof(copes_attention_merge_backward_slots, grad_o_shares) == FIRST_OUT * sizeof(DLTensor *),
               "attention_merge_backward's");
_Static_assert(offsetof(copes_attention_merge_forward_slots, lse_shares) ==
                   offsetof(copes_attention_merge_backward_slots, lse_shares),
               "what both directions take has one place");

copes_status header_as_c(copes_context *context, const copes_op *op, const copes_args *args);

copes_status header_as_c(copes_context *context, const copes_op *op, const copes_args *args)
{
    return copes_run(context, op, args, NULL, 0);
}
