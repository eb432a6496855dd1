/* The slots' numbers in copes_args.in and .out, for code that goes by tables. They follow from the public structs, and one
 * family's kinds agree on those that they share. */
#ifndef COPES_COMMON_SLOTS_H
#define COPES_COMMON_SLOTS_H

#include <copes/copes.h>

#define COPES_SLOT(member) ((int)(offsetof(copes_args, member) / sizeof(DLTensor *)))
#define COPES_OUT_SLOT(member) (COPES_SLOT(member) - COPES_MAX_INPUTS)

/* Of every kind: the first output, such as o or grad_x, and lse, of those that have it. */
enum { COPES_FIRST_OUT = 0, COPES_LSE_OUT = 1 };

typedef enum copes_act_slot {
    COPES_ACT_X = COPES_SLOT(act_backward.x),
    COPES_ACT_GRAD_O = COPES_SLOT(act_backward.grad_o),
    COPES_ACT_O = COPES_SLOT(act_backward.o),
    COPES_ACT_LSE_ALL = COPES_SLOT(act_forward.lse_all),
    COPES_ACT_DELTA_ALL = COPES_SLOT(act_backward.delta_all),
    COPES_ACT_MASK = COPES_SLOT(act_backward.mask)
} copes_act_slot;
typedef enum copes_act_out_slot { /* in the backward the second is delta */
                                  COPES_ACT_OUT = COPES_OUT_SLOT(act_forward.o),
                                  COPES_ACT_OUT_LSE = COPES_OUT_SLOT(act_forward.lse),
                                  COPES_ACT_OUT_MASK = COPES_OUT_SLOT(act_forward.mask)
} copes_act_out_slot;

typedef enum copes_lrpe_slot {
    COPES_LRPE_X = COPES_SLOT(lrpe_backward.x),
    COPES_LRPE_THETA = COPES_SLOT(lrpe_backward.theta),
    COPES_LRPE_POSITIONS = COPES_SLOT(lrpe_backward.positions),
    COPES_LRPE_OFFSETS = COPES_SLOT(lrpe_backward.offsets),
    COPES_LRPE_GRAD_O = COPES_SLOT(lrpe_backward.grad_o),
    COPES_LRPE_LSE = COPES_SLOT(lrpe_backward.lse),
    COPES_LRPE_LSE_ALL = COPES_SLOT(lrpe_forward.lse_all),
    COPES_LRPE_DELTA_ALL = COPES_SLOT(lrpe_backward.delta_all)
} copes_lrpe_slot;
typedef enum copes_lrpe_out_slot {
    COPES_LRPE_OUT = COPES_OUT_SLOT(lrpe_forward.o),
    COPES_LRPE_OUT_LSE = COPES_OUT_SLOT(lrpe_forward.lse),
    COPES_LRPE_GRAD_THETA = COPES_OUT_SLOT(lrpe_backward.grad_theta),
    COPES_LRPE_DELTA = COPES_OUT_SLOT(lrpe_backward.delta)
} copes_lrpe_out_slot;

typedef enum copes_tpa_slot {
    COPES_TPA_AQ = COPES_SLOT(tpa_decode.aq),
    COPES_TPA_BQ = COPES_SLOT(tpa_decode.bq),
    COPES_TPA_AK = COPES_SLOT(tpa_decode.ak),
    COPES_TPA_BK = COPES_SLOT(tpa_decode.bk),
    COPES_TPA_AV = COPES_SLOT(tpa_decode.av),
    COPES_TPA_BV = COPES_SLOT(tpa_decode.bv),
    COPES_TPA_KV_LEN = COPES_SLOT(tpa_decode.kv_len)
} copes_tpa_slot;
typedef enum copes_tpa_out_slot {
    COPES_TPA_OUT = COPES_OUT_SLOT(tpa_decode.o),
    COPES_TPA_OUT_LSE = COPES_OUT_SLOT(tpa_decode.lse)
} copes_tpa_out_slot;

typedef enum copes_qk_slot {
    COPES_QK_Q = COPES_SLOT(qk_norm_rope_forward.q),
    COPES_QK_K = COPES_SLOT(qk_norm_rope_forward.k),
    COPES_QK_THETA = COPES_SLOT(qk_norm_rope_forward.theta),
    COPES_QK_POSITIONS = COPES_SLOT(qk_norm_rope_forward.positions),
    COPES_QK_OFFSETS = COPES_SLOT(qk_norm_rope_forward.offsets),
    COPES_QK_WQ = COPES_SLOT(qk_norm_rope_forward.wq),
    COPES_QK_WK = COPES_SLOT(qk_norm_rope_forward.wk),
    COPES_QK_V = COPES_SLOT(qk_norm_rope_forward.v),
    COPES_QK_SLOTS = COPES_SLOT(qk_norm_rope_forward.slots),
    COPES_QK_K_SCALE = COPES_SLOT(qk_norm_rope_forward.k_scale),
    COPES_QK_V_SCALE = COPES_SLOT(qk_norm_rope_forward.v_scale),
    COPES_QK_GRAD_Q_OUT = COPES_SLOT(qk_norm_rope_backward.grad_q_out),
    COPES_QK_GRAD_K_OUT = COPES_SLOT(qk_norm_rope_backward.grad_k_out)
} copes_qk_slot;
/* In the backward the first two are gradients. */
typedef enum copes_qk_out_slot {
    COPES_QK_Q_OUT = COPES_OUT_SLOT(qk_norm_rope_forward.q_out),
    COPES_QK_K_OUT = COPES_OUT_SLOT(qk_norm_rope_forward.k_out),
    COPES_QK_K_CACHE = COPES_OUT_SLOT(qk_norm_rope_forward.k_cache),
    COPES_QK_V_CACHE = COPES_OUT_SLOT(qk_norm_rope_forward.v_cache),
    COPES_QK_GRAD_WQ = COPES_OUT_SLOT(qk_norm_rope_backward.grad_wq),
    COPES_QK_GRAD_WK = COPES_OUT_SLOT(qk_norm_rope_backward.grad_wk)
} copes_qk_out_slot;

typedef enum copes_merge_slot {
    COPES_MERGE_O_SHARES = COPES_SLOT(attention_merge_backward.o_shares),
    COPES_MERGE_LSE_SHARES = COPES_SLOT(attention_merge_backward.lse_shares),
    COPES_MERGE_GRAD_O = COPES_SLOT(attention_merge_backward.grad_o),
    COPES_MERGE_GRAD_LSE = COPES_SLOT(attention_merge_backward.grad_lse)
} copes_merge_slot;
typedef enum copes_merge_out_slot { /* in the backward those of the shares' gradients */
                                    COPES_MERGE_OUT = COPES_OUT_SLOT(attention_merge_forward.o),
                                    COPES_MERGE_OUT_LSE = COPES_OUT_SLOT(attention_merge_forward.lse)
} copes_merge_out_slot;

#endif
