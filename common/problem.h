/* What a backend is asked to do: an operator with every check passed, every default resolved and every tensor brought
 * to one canonical form, so that no kernel sees an optional rank, a negative axis or a default of 0. */
#ifndef COPES_COMMON_PROBLEM_H
#define COPES_COMMON_PROBLEM_H

#include <copes/copes.h>

#include <stdbool.h>

typedef enum copes_dtype {
    COPES_F32,
    COPES_F16,
    COPES_BF16,
    COPES_F64,
    COPES_I32,
    COPES_I64,
    COPES_F8_E4M3,
    COPES_U8,
    COPES_DTYPES
} copes_dtype;

/* A tensor's memory: the address of its first element (NULL: absent) and strides in elements, of any sign. The shape is
 * the problem's. */
typedef struct copes_view {
    void *data;
    int64_t stride[COPES_MAX_RANK];
} copes_view;

/* What a call does of a softmax's two passes. The first takes sums along the axis, and alone it gives them: the log sum exp, or
 * backward delta, the sum of y times its gradient. The second makes the result, and alone it is given those of all shares. */
typedef enum copes_passes { COPES_BOTH_PASSES, COPES_FIRST_PASS, COPES_SECOND_PASS } copes_passes;

/* Dimensions are in the output's memory order (largest stride first), and merged where every tensor allows it. */
typedef struct copes_act_problem {
    copes_act act;
    copes_passes passes;
    int backward;
    bool of_output; /* backward: `saved` is o, and not x */
    copes_dtype dtype;
    int rank; /* at least 1 */
    int64_t shape[COPES_MAX_RANK];
    int axis;         /* softmax's, after the merging; -1: elementwise */
    copes_view src;   /* x, or grad_o */
    copes_view saved; /* backward: x, or o */
    copes_view dst;   /* o, or grad_x; of the first pass alone absent */
    copes_view sums;  /* one pass alone: what it gives or is given, with a stride of 0 along the axis; else absent */
    copes_view mask;  /* relu: written by forward, read by backward in place of `saved`, or absent */
    int mask_axis; /* of which 8 elements share a byte of the mask, whose stride there is from byte to byte; -1: no mask */
} copes_act_problem;

typedef enum copes_softmax_axis { COPES_NO_SOFTMAX, COPES_OVER_FEATURES, COPES_OVER_SEQUENCE } copes_softmax_axis;

/* Angles begin .. end - 1 turn with the position in one dimension: angle i is p theta[theta_begin + i - begin]. */
typedef struct copes_segment {
    int64_t begin, end, theta_begin;
} copes_segment;

typedef struct copes_lrpe_problem {
    copes_lrpe_variant variant;
    copes_lrpe_pairing pairing;
    copes_act act;
    copes_softmax_axis softmax;
    copes_passes passes;
    int backward;
    copes_dtype dtype, theta_dtype;
    int64_t b, n, h, d;
    int64_t e;       /* columns of theta */
    int64_t k;       /* angles of a head; rotate turns 2k features. Angles past the last segment are 0 */
    int64_t begin;   /* rotate: the first feature that turns */
    float amplitude; /* factor of features that turn, for float32 arithmetic */
    double amplitude_as_double;
    int theta_sign; /* factor of theta: -1 for inverse */
    /* Positions are coordinates of a grid, where tokens count along one, and what a tensor has, where there is one. */
    bool counted;
    int64_t prefix; /* tokens before the grid */
    int64_t length; /* tokens in the grid, the product of `grid` */
    int grid_rank;  /* dimensions of positions, at least 1 */
    int64_t grid[COPES_MAX_GRID], offset[COPES_MAX_GRID];
    copes_view positions; /* (m, B, N), or absent */
    copes_dtype positions_dtype;
    copes_segment segment[COPES_MAX_GRID];
    bool mixed;            /* every dimension turns all angles, by a theta of its own; else each turns its segment */
    copes_view theta;      /* (H, E, m); stride 0 where one row or one value serves all, or one theta all dimensions */
    copes_view grad_theta; /* (H, E, m), or absent */
    copes_view src;        /* (B, N, H, D or 2D): x, or grad_o */
    copes_view x;          /* (B, N, H, D): backward with an activation or for grad_theta, else absent */
    copes_view dst;        /* (B, N, H, D or 2D): o, or grad_x; of the first pass alone absent */
    copes_view lse;        /* (B, H, D): written by forward, read by backward and the second pass alone, or absent */
    copes_view delta; /* (B, H, D): backward, written by the first pass alone, read by the second alone; else absent */
} copes_lrpe_problem;

typedef struct copes_tpa_problem {
    copes_dtype dtype;
    int64_t b, n, m, h, d, e, rq, rk, rv;
    double score_scale; /* scale scale_q scale_k is this times 2^score_exponent, which is 0 but for extreme ones */
    double value_scale; /* so is scale_v, times 2^value_exponent */
    int score_exponent, value_exponent;
    /* A power of 2 in all weights. A float32 sum of values by weights of up to 2^8 times it overflows only if the mean of the
     * values times scale_v does. */
    float weight_scale;
    int causal;
    int64_t kv_first, kv_stride, kv_total; /* as the attributes, with no defaults */
    copes_view aq, bq, ak, bk, av, bv;     /* rank 4, the rank axis of keys and values put back */
    copes_view kv_len;                     /* (B) int32 on the device, or absent */
    copes_view o;                          /* (B, N, H, E) */
    copes_view lse;                        /* (B, N, H), or absent */
} copes_tpa_problem;

/* What qk_norm_rope does with the queries, or with the keys. */
typedef struct copes_qk_side {
    /* The rotation: src to dst. dst is absent where keys go to the cache alone; backward, x is there with a norm. */
    copes_lrpe_problem rotate;
    copes_view weight; /* (H, D), stride 0 where heads share a row; absent: no norm */
    copes_dtype weight_dtype;
    int64_t weight_rows;    /* 1 or H */
    copes_view grad_weight; /* (weight_rows, D), or absent */
} copes_qk_side;

typedef struct copes_qk_cache {
    copes_view data;  /* (blocks, page, H, D or E), or absent */
    copes_view scale; /* (H) float32, stride 0 where heads share one; absent: 1 */
} copes_qk_cache;

typedef struct copes_qk_problem {
    int backward;
    copes_dtype dtype;
    int sides; /* 1: there is no k */
    copes_qk_side side[2];
    bool over_heads; /* the mean of a norm is over all heads */
    bool round_between;
    double eps, weight_offset;
    int64_t v_heads, e;
    copes_view v;            /* (B, N, v_heads, E), or absent */
    copes_view slots;        /* (B, N) int64 on the device, or absent: no cache */
    int64_t blocks, page;    /* of the caches */
    copes_dtype cache_dtype; /* dtype or COPES_F8_E4M3 */
    copes_qk_cache k_cache, v_cache;
} copes_qk_problem;

typedef struct copes_merge_problem {
    copes_log_base base;
    int backward;
    copes_dtype dtype;
    int64_t shares, b, n, h, e;
    copes_view o_shares;        /* (S, B, N, H, E); backward: absent without grad_lse_shares */
    copes_view lse_shares;      /* (S, B, N, H) */
    copes_view row;             /* (B, N, H, E): o, or grad_o */
    copes_view lse;             /* (B, N, H): lse, or grad_lse; or absent */
    copes_view grad_o_shares;   /* backward alone */
    copes_view grad_lse_shares; /* likewise, or absent */
} copes_merge_problem;

typedef struct copes_problem {
    copes_kind kind;
    union {
        copes_act_problem act;
        copes_lrpe_problem lrpe;
        copes_tpa_problem tpa;
        copes_qk_problem qk;
        copes_merge_problem merge;
    };
} copes_problem;

static inline copes_dtype copes_problem_dtype(const copes_problem *problem)
{
    switch (problem->kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: return problem->act.dtype;
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: return problem->lrpe.dtype;
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD: return problem->qk.dtype;
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD: return problem->merge.dtype;
    case COPES_TPA_DECODE: break;
    }
    return problem->tpa.dtype;
}

/* Is it one of the types that operators compute on? */
static inline bool copes_is_floating(copes_dtype dtype)
{
    return dtype == COPES_F32 || dtype == COPES_F16 || dtype == COPES_BF16 || dtype == COPES_F64;
}

/* Bytes of an element. */
static inline int64_t copes_dtype_size(copes_dtype dtype)
{
    switch (dtype) {
    case COPES_F64:
    case COPES_I64: return 8;
    case COPES_F16:
    case COPES_BF16: return 2;
    case COPES_F8_E4M3:
    case COPES_U8: return 1;
    default: return 4;
    }
}

/* Bytes that an lrpe problem reads and writes, angles aside: about, as strides of 0 make more of them than 63 bits hold. */
static inline double copes_lrpe_bytes(const copes_lrpe_problem *problem)
{
    const int features = (problem->variant == COPES_LRPE_COSINE ? 3 : 2) + (problem->x.data != NULL);
    return (double)problem->b * (double)problem->n * (double)problem->h * (double)problem->d * features *
           (double)copes_dtype_size(problem->dtype);
}

#endif
