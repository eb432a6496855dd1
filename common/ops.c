/* The table of operators: every slot and attribute, as bindings, the command and the tests read them. */
#include "common/family.h"

#define X_LRPE COPES_SLOT_INFO("x", "(B, N, H, D) or (B, N, D)", 0, "features")
#define THETA                                                                                                          \
    COPES_SLOT_INFO("theta", "(H or 1, E) or (m, H or 1, K)", 0, "radians per position, float32, float16 or bfloat16")
#define POSITIONS                                                                                                      \
    COPES_SLOT_INFO("positions", "(N), (B, N) or (m, B, N)", 1, "positions in place of a grid: int32, int64 or float32")
#define OFFSETS COPES_SLOT_INFO("offsets", "(B)", 1, "added to the positions of each batch entry, on a line")
#define WEIGHT(name, shape) COPES_SLOT_INFO(name, shape, 1, "RMSNorm's weights, of its type or float32")
#define SCALE(name, summary) COPES_SLOT_INFO(name, "(1) or (Hk)", 1, summary)
#define LSE_SHARES COPES_SLOT_INFO("lse_shares", "(S, B, N, H)", 0, "log sum exp of the shares; -inf or +inf: empty")
#define LSE_ALL(shape)                                                                                                 \
    COPES_SLOT_INFO("lse_all", shape, 1, "softmax in shares: log sum exp of all; o = e^(x - lse_all)")
#define DELTA_ALL(shape) COPES_SLOT_INFO("delta_all", shape, 1, "softmax in shares: the sum of their delta")
#define DELTA(shape) COPES_SLOT_INFO("delta", shape, 1, "softmax in shares: this one's sum, without grad_x")
#define MASK(shape) COPES_SLOT_INFO("mask", shape, 1, "relu: a bit for each element, 1 where x > 0; uint8")
#define CACHE(name, shape, summary) COPES_OUT_INFO(name, shape, 1, summary, 0, 1)

static const copes_op_info ops[] = {
    {
        .kind = COPES_ACT_FORWARD,
        .name = "act_forward",
        .family = "act",
        .inplace = 1 + COPES_ACT_X,
        .summary = "o = act(x): elementwise, or softmax along any axis",
        .in = {[COPES_ACT_X] = COPES_SLOT_INFO("x", "any", 0, "input"),
               [COPES_ACT_LSE_ALL] = LSE_ALL("as x, 1 along dim")},
        .out = {[COPES_ACT_OUT] = COPES_OUT_INFO("o", "as x", 1, "output; may be x", 1 + COPES_ACT_X, 0),
                [COPES_ACT_OUT_LSE] = COPES_SLOT_INFO("lse", "as x, 1 along dim", 1, "softmax: log sum exp, without o"),
                [COPES_ACT_OUT_MASK] = MASK("as x, ceil(D / 8) in place of D")},
        .attribute_count = COPES_ACT_ATTRIBUTES,
        .attributes = copes_act_attribute_table,
    },
    {
        .kind = COPES_ACT_BACKWARD,
        .name = "act_backward",
        .family = "act",
        .backward = 1,
        .inplace = 1 + COPES_ACT_GRAD_O,
        .summary = "the gradient of act_forward",
        .in = {[COPES_ACT_X] =
                   COPES_SLOT_INFO("x", "as grad_o", 1,
                                   "the forward's input; needed by silu, sigmoid and relu, but for o and mask"),
               [COPES_ACT_GRAD_O] = COPES_SLOT_INFO("grad_o", "any", 0, "gradient of o"),
               [COPES_ACT_O] = COPES_SLOT_INFO("o", "as grad_o", 1,
                                               "the forward's output; needed by softmax; sigmoid, relu: in place of x"),
               [COPES_ACT_DELTA_ALL] = DELTA_ALL("as grad_o, 1 along dim"),
               [COPES_ACT_MASK] = MASK("as grad_o, ceil(D / 8) in place of D")},
        .out = {[COPES_ACT_OUT] =
                    COPES_OUT_INFO("grad_x", "as grad_o", 1, "gradient of x; may be grad_o", 1 + COPES_ACT_GRAD_O, 0),
                [COPES_ACT_OUT_LSE] = DELTA("as grad_o, 1 along dim")},
        .attribute_count = COPES_ACT_ATTRIBUTES,
        .attributes = copes_act_attribute_table,
    },
    {
        .kind = COPES_LRPE_FORWARD,
        .name = "lrpe_forward",
        .family = "lrpe",
        .inplace = 1 + COPES_LRPE_X,
        .summary = "act(x), then linearized relative positional encoding: rotate (RoPE) or cosine",
        .in = {[COPES_LRPE_X] = X_LRPE,
               [COPES_LRPE_THETA] = THETA,
               [COPES_LRPE_POSITIONS] = POSITIONS,
               [COPES_LRPE_OFFSETS] = OFFSETS,
               [COPES_LRPE_LSE_ALL] = LSE_ALL("(B, H, D)")},
        .out = {[COPES_LRPE_OUT] = COPES_OUT_INFO("o", "as x; cosine: 2D features", 1, "output; rotate: may be x",
                                                  1 + COPES_LRPE_X, 0),
                [COPES_LRPE_OUT_LSE] =
                    COPES_SLOT_INFO("lse", "(B, H, D)", 1, "log sum exp over the sequence, for the backward")},
        .attribute_count = COPES_LRPE_ATTRIBUTES,
        .attributes = copes_lrpe_attribute_table,
    },
    {
        .kind = COPES_LRPE_BACKWARD,
        .name = "lrpe_backward",
        .family = "lrpe",
        .backward = 1,
        .inplace = 1 + COPES_LRPE_GRAD_O,
        .summary = "the gradient of lrpe_forward",
        .in = {[COPES_LRPE_X] = COPES_SLOT_INFO("x", "(B, N, H, D) or (B, N, D)", 1,
                                                "the forward's input; needed by an activation and by grad_theta"),
               [COPES_LRPE_THETA] = THETA,
               [COPES_LRPE_POSITIONS] = POSITIONS,
               [COPES_LRPE_OFFSETS] = OFFSETS,
               [COPES_LRPE_GRAD_O] = COPES_SLOT_INFO("grad_o", "as o of the forward", 0, "gradient of o"),
               [COPES_LRPE_LSE] =
                   COPES_SLOT_INFO("lse", "(B, H, D)", 1, "the forward's, for softmax over the sequence"),
               [COPES_LRPE_DELTA_ALL] = DELTA_ALL("(B, H, D)")},
        .out = {[COPES_LRPE_OUT] = COPES_OUT_INFO("grad_x", "as x", 1, "gradient of x; rotate: may be grad_o",
                                                  1 + COPES_LRPE_GRAD_O, 0),
                [COPES_LRPE_GRAD_THETA] =
                    COPES_SLOT_INFO("grad_theta", "as theta", 1, "gradient of theta, float32, or float64 where x is"),
                [COPES_LRPE_DELTA] = DELTA("(B, H, D)")},
        .attribute_count = COPES_LRPE_ATTRIBUTES,
        .attributes = copes_lrpe_attribute_table,
    },
    {
        .kind = COPES_TPA_DECODE,
        .name = "tpa_decode",
        .family = "tpa",
        .summary = "attention of a few query tokens over a tensor-product key and value cache",
        .in = {[COPES_TPA_AQ] = COPES_SLOT_INFO("aq", "(B, N, H, Rq)", 0, "queries' head factors"),
               [COPES_TPA_BQ] = COPES_SLOT_INFO("bq", "(B, N, Rq, D)", 0, "queries' feature factors"),
               [COPES_TPA_AK] = COPES_SLOT_INFO("ak", "(B, M, H, Rk) or (B, M, H)", 0, "keys' head factors"),
               [COPES_TPA_BK] = COPES_SLOT_INFO("bk", "(B, M, Rk, D) or (B, M, D)", 0, "keys' feature factors"),
               [COPES_TPA_AV] = COPES_SLOT_INFO("av", "(B, M, H, Rv) or (B, M, H)", 0, "values' head factors"),
               [COPES_TPA_BV] = COPES_SLOT_INFO("bv", "(B, M, Rv, E) or (B, M, E)", 0, "values' feature factors"),
               [COPES_TPA_KV_LEN] = COPES_SLOT_INFO("kv_len", "(B)", 1, "int32: keys in use, clamped to 0 .. M")},
        .out = {[COPES_TPA_OUT] = COPES_SLOT_INFO("o", "(B, N, H, E)", 0, "output"),
                [COPES_TPA_OUT_LSE] = COPES_SLOT_INFO("lse", "(B, N, H)", 1, "log sum exp of the scores")},
        .attribute_count = COPES_TPA_ATTRIBUTES,
        .attributes = copes_tpa_attribute_table,
    },
    {
        .kind = COPES_QK_NORM_ROPE_FORWARD,
        .name = "qk_norm_rope_forward",
        .family = "qk",
        .inplace = 1 + COPES_QK_Q,
        .summary = "RMSNorm and RoPE of queries and keys, and the writing of a paged cache",
        .in = {[COPES_QK_Q] = COPES_SLOT_INFO("q", "(B, N, H, D)", 0, "queries"),
               [COPES_QK_K] = COPES_SLOT_INFO("k", "(B, N, Hk, D)", 1, "keys"),
               [COPES_QK_THETA] = THETA,
               [COPES_QK_POSITIONS] = POSITIONS,
               [COPES_QK_OFFSETS] = OFFSETS,
               [COPES_QK_WQ] = WEIGHT("wq", "(D) or (H, D)"),
               [COPES_QK_WK] = WEIGHT("wk", "(D) or (Hk, D)"),
               [COPES_QK_V] = COPES_SLOT_INFO("v", "(B, N, Hk, E)", 1, "values, for v_cache"),
               [COPES_QK_SLOTS] =
                   COPES_SLOT_INFO("slots", "(B, N)", 1, "int64: each token's place in the cache; outside it: none"),
               [COPES_QK_K_SCALE] = SCALE("k_scale", "what float8 keys are divided by, float32"),
               [COPES_QK_V_SCALE] = SCALE("v_scale", "what float8 values are divided by, float32")},
        .out = {[COPES_QK_Q_OUT] = COPES_OUT_INFO("q_out", "as q", 0, "queries, turned; may be q", 1 + COPES_QK_Q, 0),
                [COPES_QK_K_OUT] = COPES_OUT_INFO("k_out", "as k", 1, "keys, turned; may be k", 1 + COPES_QK_K, 0),
                [COPES_QK_K_CACHE] = CACHE("k_cache", "(blocks, page, Hk, D)", "keys by slot"),
                [COPES_QK_V_CACHE] = CACHE("v_cache", "(blocks, page, Hk, E)", "values by slot")},
        .attribute_count = COPES_QK_ATTRIBUTES,
        .attributes = copes_qk_attribute_table,
    },
    {
        .kind = COPES_QK_NORM_ROPE_BACKWARD,
        .name = "qk_norm_rope_backward",
        .family = "qk",
        .backward = 1,
        .inplace = 1 + COPES_QK_GRAD_Q_OUT,
        .summary = "the gradient of qk_norm_rope_forward",
        .in = {[COPES_QK_Q] = COPES_SLOT_INFO("q", "as grad_q_out", 1, "the forward's input; needed by its norm"),
               [COPES_QK_K] = COPES_SLOT_INFO("k", "as grad_k_out", 1, "the forward's input; needed by its norm"),
               [COPES_QK_THETA] = THETA,
               [COPES_QK_POSITIONS] = POSITIONS,
               [COPES_QK_OFFSETS] = OFFSETS,
               [COPES_QK_WQ] = WEIGHT("wq", "(D) or (H, D)"),
               [COPES_QK_WK] = WEIGHT("wk", "(D) or (Hk, D)"),
               [COPES_QK_GRAD_Q_OUT] = COPES_SLOT_INFO("grad_q_out", "(B, N, H, D)", 0, "gradient of q_out"),
               [COPES_QK_GRAD_K_OUT] = COPES_SLOT_INFO("grad_k_out", "(B, N, Hk, D)", 1, "gradient of k_out")},
        .out = {[COPES_QK_Q_OUT] = COPES_OUT_INFO("grad_q", "as grad_q_out", 0, "gradient of q; may be grad_q_out",
                                                  1 + COPES_QK_GRAD_Q_OUT, 0),
                [COPES_QK_K_OUT] = COPES_OUT_INFO("grad_k", "as grad_k_out", 1, "gradient of k; may be grad_k_out",
                                                  1 + COPES_QK_GRAD_K_OUT, 0),
                [COPES_QK_GRAD_WQ] =
                    COPES_SLOT_INFO("grad_wq", "as wq", 1, "gradient of wq, float32, or float64 where q is"),
                [COPES_QK_GRAD_WK] =
                    COPES_SLOT_INFO("grad_wk", "as wk", 1, "gradient of wk, float32, or float64 where k is")},
        .attribute_count = COPES_QK_ATTRIBUTES,
        .attributes = copes_qk_attribute_table,
    },
    {
        .kind = COPES_ATTENTION_MERGE_FORWARD,
        .name = "attention_merge_forward",
        .family = "merge",
        .summary = "attention over keys in shares, of that over each share and its log sum exp",
        .in = {[COPES_MERGE_O_SHARES] = COPES_SLOT_INFO("o_shares", "(S, B, N, H, E)", 0, "outputs of the shares"),
               [COPES_MERGE_LSE_SHARES] = LSE_SHARES},
        .out = {[COPES_MERGE_OUT] = COPES_SLOT_INFO("o", "(B, N, H, E)", 0, "output"),
                [COPES_MERGE_OUT_LSE] = COPES_SLOT_INFO("lse", "(B, N, H)", 1, "log sum exp of all scores")},
        .attribute_count = COPES_MERGE_ATTRIBUTES,
        .attributes = copes_merge_attribute_table,
    },
    {
        .kind = COPES_ATTENTION_MERGE_BACKWARD,
        .name = "attention_merge_backward",
        .family = "merge",
        .backward = 1,
        .summary = "the gradient of attention_merge_forward",
        .in = {[COPES_MERGE_O_SHARES] =
                   COPES_SLOT_INFO("o_shares", "(S, B, N, H, E)", 1, "the forward's; needed by grad_lse_shares"),
               [COPES_MERGE_LSE_SHARES] = LSE_SHARES,
               [COPES_MERGE_GRAD_O] = COPES_SLOT_INFO("grad_o", "(B, N, H, E)", 0, "gradient of o"),
               [COPES_MERGE_GRAD_LSE] = COPES_SLOT_INFO("grad_lse", "(B, N, H)", 1, "gradient of lse; without it 0")},
        .out = {[COPES_MERGE_OUT] = COPES_SLOT_INFO("grad_o_shares", "(S, B, N, H, E)", 0, "gradient of o_shares"),
                [COPES_MERGE_OUT_LSE] =
                    COPES_SLOT_INFO("grad_lse_shares", "(S, B, N, H)", 1, "gradient of lse_shares")},
        .attribute_count = COPES_MERGE_ATTRIBUTES,
        .attributes = copes_merge_attribute_table,
    },
};

static const copes_family *const families[] = {
    &copes_family_act, &copes_family_act, &copes_family_lrpe,  &copes_family_lrpe,  &copes_family_tpa,
    &copes_family_qk,  &copes_family_qk,  &copes_family_merge, &copes_family_merge,
};

enum { OP_COUNT = sizeof ops / sizeof ops[0] };
_Static_assert(sizeof families / sizeof families[0] == OP_COUNT, "a family for every operator");

size_t copes_op_count(void)
{
    return OP_COUNT;
}

const copes_op_info *copes_op_at(size_t index)
{
    return index < OP_COUNT ? &ops[index] : NULL;
}

const copes_op_info *copes_op_find(copes_kind kind, const copes_family **family)
{
    for (size_t i = 0; i < OP_COUNT; i++)
        if (ops[i].kind == kind) {
            *family = families[i];
            return &ops[i];
        }
    return NULL;
}
