/* copes: fused operators for sequence models on CPU, NVIDIA and AMD GPUs.
 *
 * One header, four ideas:
 *  - A tensor is a DLPack DLTensor. Its device picks the backend, its strides, of any sign, cover every layout, and its
 *    memory stays the caller's. No alignment is required.
 *  - An operator is a descriptor, copes_op: a kind and its attributes. Zero means "the default", so a designated
 *    initializer, or copes_op op{} in C++, names only what differs.
 *  - Tensors are passed in copes_args, by the kind's name and the slot's: args.lrpe_forward.x = &x. An optional slot left
 *    NULL is absent.
 *  - Everything is checked before anything is computed. A call that fails has written nothing, returns a status, and
 *    leaves one line in copes_last_error() that names the slot or attribute, what it was and what it must be.
 *
 * Notation: B batch, N sequence, H heads, D features of a head, E features of theta or of a value, M cache length,
 * R rank of a factor, S shares. Floating-point types are float32, float16 and bfloat16, and float64 on the CPU; "type T" below is
 * the one type that all the tensors so marked share. Arithmetic is in float32 (float64 for float64), rounded once, to
 * nearest even, at the store. docs/operators.md derives every formula.
 *
 * Threads: descriptors and the tables below are constant; a context serves one thread at a time, and any number of
 * contexts work at once. On the CPU a call runs on a thread with 40 KiB of stack, as OpenMP's may have, and the bits
 * of its results depend neither on the number of threads nor on the caller's floating-point mode (its rounding,
 * what it flushes to zero, which exceptions trap), which every thread has back afterwards.
 *
 * Forks: a process that fork has made, and that has not called exec since, runs CPU calls on the calling thread alone,
 * whatever its contexts were opened with, as OpenMP's threads stay behind in the parent. Contexts of the CPU go on in it,
 * and it gives the same bits. (Where the library is loaded only after the fork, this is known on Linux alone, by /proc.)
 * A GPU's runtime does not outlive a fork: a context of a GPU that the parent opened must not be used in the child.
 *
 * Which calls wait: on the CPU each call returns when its work is done. On a GPU copes_run, copes_workspace_size,
 * copes_workspace_bound and copes_explain wait for nothing on the device. copes_context_create, copes_context_set_stream,
 * copes_device_count and copes_device_summary ask the device's runtime, and may start it, which takes up to seconds.
 * Everything else only computes.
 *
 * Faults on a GPU: what goes wrong while a kernel runs (an address that is not the device's, a device that is lost) comes
 * after copes_run has returned COPES_OK. The next call that reaches the runtime returns COPES_ERROR_BACKEND with the
 * runtime's words, be it a call of this library, on any context, or the caller's own, such as cudaStreamSynchronize. What
 * the stream's outputs hold is then undefined. CUDA keeps such an error: every later call on that device fails likewise
 * until the process ends.
 *
 * How this interface grows: a program goes on with every later library of its minor version (0.2; from 1.0 on, of its major
 * one), without being compiled again.
 *  - What the caller fills has a fixed size: copes_op, copes_args, copes_context_options. New attributes, slots and
 *    options take reserved places, and zero there means what was done before them. What is reserved must be zero, and is
 *    refused by name where it is not, so that a program for a newer library is never misread.
 *  - What the library fills, the structs named copes_..._info, is the library's own, constant, and reached by pointer. Such
 *    a struct gets members at its end: do not copy it, make one, or step from one to the next by its size.
 *  - Functions and enumerators are added; none is taken away or gets another number. A switch over statuses or kinds
 *    needs a default. */
#ifndef COPES_COPES_H
#define COPES_COPES_H

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COPES_VERSION_MAJOR 0
#define COPES_VERSION_MINOR 2
#define COPES_VERSION_PATCH 0

#if defined(COPES_STATIC)
#define COPES_API
#elif defined(__GNUC__)
#define COPES_API __attribute__((visibility("default")))
#else
#define COPES_API
#endif

#if defined(__GNUC__)
#define COPES_EXTENSION __extension__ /* C++ has no structs without a name, its compilers have */
#else
#define COPES_EXTENSION
#endif

enum {
    COPES_MAX_RANK = 8,          /* dimensions of a tensor */
    COPES_MAX_GRID = 4,          /* dimensions of a position grid */
    COPES_MAX_INPUTS = 16,       /* input slots of an operator, with room for those to come */
    COPES_MAX_OUTPUTS = 8,       /* output slots, likewise */
    COPES_ATTRIBUTES_SIZE = 512, /* bytes of each family's attributes, likewise */
    COPES_OPTIONS_SIZE = 128     /* bytes of copes_context_options, likewise */
};

/* ---- Status ------------------------------------------------------------------------------------------------------ */

typedef enum copes_status {
    COPES_OK = 0,
    COPES_ERROR_NULL,        /* a required pointer or slot is NULL */
    COPES_ERROR_OP,          /* the descriptor's kind is unknown */
    COPES_ERROR_ATTRIBUTE,   /* an attribute is unknown, out of range, NaN, reserved, or at odds with the shapes */
    COPES_ERROR_DEVICE,      /* tensors on different devices, not on the context's, or on one that does not exist */
    COPES_ERROR_DTYPE,       /* a type that the slot does not take */
    COPES_ERROR_SHAPE,       /* a rank or shape that the slot does not take */
    COPES_ERROR_STRIDE,      /* an output whose elements overlap, or whose rows lie among one another */
    COPES_ERROR_ALIAS,       /* an output or the workspace overlaps a tensor in a way the operator does not allow */
    COPES_ERROR_SIZE,        /* a size or address range that does not fit 63 bits, or a GPU's launch */
    COPES_ERROR_WORKSPACE,   /* the workspace is NULL or smaller than copes_workspace_size says */
    COPES_ERROR_MEMORY,      /* an allocation failed (copes_context_create only) */
    COPES_ERROR_UNSUPPORTED, /* the backend was not built, or does not run this type */
    COPES_ERROR_BACKEND      /* the device's runtime reported an error; the message carries its words */
} copes_status;

/* The status's name, e.g. "COPES_ERROR_SHAPE". Never NULL. */
COPES_API const char *copes_status_name(copes_status status);

/* The calling thread's message of its last call that failed, "" when none has; valid until its next failure. */
COPES_API const char *copes_last_error(void);

/* The library's version, e.g. "0.2.0"; it may be newer than the header's. */
COPES_API const char *copes_version(void);

/* ---- Operators --------------------------------------------------------------------------------------------------- */

typedef enum copes_kind {
    COPES_ACT_FORWARD = 1,
    COPES_ACT_BACKWARD,
    COPES_LRPE_FORWARD,
    COPES_LRPE_BACKWARD,
    COPES_TPA_DECODE,
    COPES_QK_NORM_ROPE_FORWARD,
    COPES_QK_NORM_ROPE_BACKWARD,
    COPES_ATTENTION_MERGE_FORWARD,
    COPES_ATTENTION_MERGE_BACKWARD
} copes_kind;

typedef enum copes_act {
    COPES_ACT_NONE = 0,
    COPES_ACT_RELU,
    COPES_ACT_SIGMOID,
    COPES_ACT_SILU,
    COPES_ACT_SOFTMAX
} copes_act;
typedef enum copes_lrpe_variant { COPES_LRPE_ROTATE = 0, COPES_LRPE_COSINE } copes_lrpe_variant;
typedef enum copes_lrpe_pairing { COPES_LRPE_HALF = 0, COPES_LRPE_INTERLEAVED } copes_lrpe_pairing;
typedef enum copes_qk_norm { COPES_QK_NORM_HEAD = 0, COPES_QK_NORM_ALL_HEADS } copes_qk_norm;
typedef enum copes_log_base { COPES_LOG_BASE_E = 0, COPES_LOG_BASE_2 } copes_log_base;

/* Axes of a tensor are counted from its end, -1 the last one, so that 0 can be the default. */

/* COPES_ACT_FORWARD: o = act(x), elementwise, or softmax along one axis (a row of -inf gives NaN).
 *   in   x        any shape of rank 1 to 8, type T
 *        lse_all  optional, softmax only: x's shape with 1 along dim, float32 (float64 if T is); o is then e^(x - lse_all)
 *   out  o        x's shape, T; may be x itself. May be absent where lse is asked for
 *        lse      optional, softmax only, without o: lse_all's shape and type: log sum exp of x along dim
 *        mask     optional, relu only: x's shape with ceil(D / 8) in place of D, its last length; uint8. Bit i % 8 of byte i / 8,
 *                 the least significant first, is 1 where x[.., i] > 0; the bits past D are 0
 *
 * COPES_ACT_BACKWARD: grad_x = sum(grad_o * d act(x) / dx)
 *   in   grad_o   any shape of rank 1 to 8, type T
 *        x        the forward's input, same shape, T; required by silu, by sigmoid without o, and by relu without o and mask
 *        o        the forward's output, same shape, T; required by softmax. relu and sigmoid take it in place of x, and use it
 *                 where both are given
 *        delta_all optional, softmax only: the shape of grad_o with 1 along dim, float32 (float64 if T is); stands for
 *                 sum(o g) in the gradient
 *        mask     optional, relu only: the forward's, which is used in place of x and o; grad_x is grad_o where the bit is 1, else
 *                 +0. Bits past D are ignored
 *   out  grad_x   same shape, T; may be grad_o itself. May be absent where delta is asked for
 *        delta    optional, softmax only, without grad_x: delta_all's shape and type: sum(o g) along dim
 *
 * Formulas: none x; relu max(x, 0) with NaN kept; sigmoid s = 1 / (1 + e^-x); silu x s; softmax e^(x - max) / sum.
 * Gradients: relu g where x > 0, or o > 0; sigmoid g s (1 - s), s as computed from x, or o; silu g s (1 + x (1 - s));
 * softmax o (g - sum(o g)).
 *
 * A softmax whose axis lies in shares, as on several devices, takes two calls a share, each of one pass. Forward: lse alone, of
 * the share; then o from lse_all, that of all shares, which is the log sum exp of theirs. Backward: delta alone; then grad_x from
 * delta_all, the sum of all shares' delta. A share of no elements has an lse of -inf and a delta of 0. What is said of
 * infinities and NaN follows from the formulas: where lse_all is -inf, as of a row of -inf, o is NaN; the lse of a row with +inf
 * or NaN is NaN. An o below T's arithmetic's smallest normal number may be 0.
 * silu is Hendrycks and Gimpel's SiLU (2016, "Gaussian error linear units"). */
typedef struct copes_act_attributes {
    copes_act act;
    int32_t dim; /* softmax's axis; for every act -rank to -1, or 0: the last one */
    int32_t reserved[COPES_ATTRIBUTES_SIZE / 4 - 2];
} copes_act_attributes;

typedef struct copes_act_forward_slots {
    DLTensor *x, *lse_all, *reserved_in[COPES_MAX_INPUTS - 2];
    DLTensor *o, *lse, *mask, *reserved_out[COPES_MAX_OUTPUTS - 3];
} copes_act_forward_slots;

typedef struct copes_act_backward_slots {
    DLTensor *x, *grad_o, *o, *delta_all, *mask, *reserved_in[COPES_MAX_INPUTS - 5];
    DLTensor *grad_x, *delta, *reserved_out[COPES_MAX_OUTPUTS - 2];
} copes_act_backward_slots;

/* Linearized relative positional encoding (Qin et al. 2023), of which RoPE (Su et al. 2021) is the variant rotate, over
 * positions of 1 to 4 dimensions: those of a grid, or any that a tensor has.
 *
 * COPES_LRPE_FORWARD
 *   in   x         (B, N, H, D), or (B, N, D) with H = 1; type T
 *        theta     (H, E), (1, E) or (H, 1), or (m, H, K) or (m, 1, K); float32, float16 or bfloat16: radians per position
 *        positions optional, (N), (B, N) or (m, B, N), m of 1 to 4; int32, int64 or float32, in device memory: in place of a
 *                  grid, prefix and suffix
 *        offsets   optional, (B), as positions: added to all positions of a batch entry on a line (one dimension, no positions)
 *        lse_all   optional, softmax over the sequence only: (B, H, D), float32 (float64 if T is); y is then e^(x - lse_all)
 *   out  o         rotate: x's shape, may be x itself; cosine: (B, N, H, 2D), or (B, N, 2D); T. May be absent where lse is
 *                  asked for
 *        lse       optional, softmax over the sequence only, without lse_all: (B, H, D), log sum exp of x over N, which is
 *                  -inf for a column of -inf, or of no tokens; float32 (float64 if T is)
 *
 * COPES_LRPE_BACKWARD
 *   in   theta, positions, offsets  as above
 *        grad_o    o's shape, T
 *        x         the forward's input; required unless act is none and grad_theta is absent
 *        lse       optional, softmax over the sequence only: the forward's, or its lse_all; computed anew when absent
 *        delta_all optional, softmax over the sequence and with lse only: (B, H, D), float32 (float64 if T is); stands for
 *                  sum(y g) in the gradient
 *   out  grad_x    x's shape, T; rotate: may be grad_o itself. May be absent where delta is asked for
 *        grad_theta optional, with grad_x only: theta's shape; float32 (float64 if T is): summed over all that shares an
 *                  element of theta
 *        delta     optional, softmax over the sequence and with lse only, without grad_x: (B, H, D), as delta_all: sum(y g)
 *                  over N, g the gradient of y; 0 of no tokens
 *
 * First the activation: none, relu, sigmoid, silu, or softmax over the features (dim -1) or over all N tokens (dim -3).
 *
 * Then every token has a position in each of m dimensions. On a grid, N = prefix + prod(grid) + suffix; prefix and suffix
 * tokens have angle 0, and token t has s = t - prefix, unravelled row-major over the grid to (s_1 .. s_m), and the position
 * p_j = offset_j + s_j (+ offsets[b]), with |offset_j + s_j| < 2^31. With positions, p_j = positions[j, b, t] + offset_j; of
 * integers the sum is taken modulo 2^64. The K angles of head h (K = D for cosine, rotary_dim / 2 for rotate) are
 *     phi = concat_j(p_j theta_h)[0:K]      theta (H, E): m E >= K if m > 1; if m = 1, E = K, or E = 1 serves all K
 *                                           with pad_theta: m = 1, E <= K, and angles past E are 0
 *     phi_i = p_j theta_h[i]                with sections: i in section j, E = K
 *     phi_i = sum_j p_j theta[j, h, i]      theta (m, H, K)
 * and their opposites with inverse. They are taken modulo a turn exactly: (p theta / 2 pi) is formed in fixed point from
 * theta's float32 value, to 2^-30 turn (2^-60 if T is float64) for every int64 and every finite float32 position. A theta or a
 * position that is not finite gives NaN.
 *   cosine  o = concat(c y cos phi, c y sin phi), y = act(x), c the amplitude
 *   rotate  pairs (a, b) of features become c (a cos phi - b sin phi, a sin phi + b cos phi). Of the features rotary_begin to
 *           rotary_begin + rotary_dim - 1, pair k is (k, k + rotary_dim / 2) for pairing half, (2k, 2k + 1) for interleaved;
 *           the others are y.
 * A sequence in shares, as on several devices, takes two calls a share, as act does: forward lse alone, then o from lse_all, that
 * of all shares; backward, with lse that of all, delta alone, then grad_x from delta_all, the sum of all shares' delta. offset,
 * offsets or positions say where a share's tokens are. grad_theta is the share's part of a sum.
 *
 * Backward is the transpose, then the activation's gradient. grad_theta is the sum of p_j d: for rotate d = g_b y_a - g_a y_b
 * of a pair, g the gradient of y; for cosine d = c y (grad_o_sin cos phi - grad_o_cos sin phi); -d with inverse. */
typedef struct copes_lrpe_attributes {
    copes_lrpe_variant variant;
    copes_lrpe_pairing pairing; /* rotate only; cosine: half */
    copes_act act;
    int32_t dim;       /* softmax's axis in (B, N, H, D), also at rank 3: -1 or 0 the features, -3 the sequence */
    int32_t grid_rank; /* m; 0: one dimension of length N - prefix - suffix, or with positions theirs */
    int32_t pad_theta; /* 1: one dimension without sections, E of 1 to K, angles past E are 0 */
    int64_t grid[COPES_MAX_GRID];     /* its lengths, the last one fastest */
    int64_t offset[COPES_MAX_GRID];   /* added to the positions in each dimension */
    int64_t prefix, suffix;           /* tokens before and after the grid */
    int64_t sections[COPES_MAX_GRID]; /* angles of each dimension, summing to K; all 0: none */
    int64_t rotary_dim;               /* rotate only: features that turn, even; 0: D - rotary_begin */
    int64_t rotary_begin;             /* rotate only: the first feature that turns */
    double amplitude;                 /* c, finite in float32; 0: 1 */
    int32_t inverse;                  /* 1: turns by -phi */
    int32_t reserved[COPES_ATTRIBUTES_SIZE / 4 - 41];
} copes_lrpe_attributes;

typedef struct copes_lrpe_forward_slots {
    DLTensor *x, *theta, *positions, *offsets, *lse_all, *reserved_in[COPES_MAX_INPUTS - 5];
    DLTensor *o, *lse, *reserved_out[COPES_MAX_OUTPUTS - 2];
} copes_lrpe_forward_slots;

typedef struct copes_lrpe_backward_slots {
    DLTensor *x, *theta, *positions, *offsets, *grad_o, *lse, *delta_all, *reserved_in[COPES_MAX_INPUTS - 7];
    DLTensor *grad_x, *grad_theta, *delta, *reserved_out[COPES_MAX_OUTPUTS - 3];
} copes_lrpe_backward_slots;

/* COPES_TPA_DECODE: attention of a few query tokens over a tensor-product (factored) key and value cache (Zhang et al.
 * 2025, "Tensor product attention is all you need").
 *   in   aq       (B, N, H, Rq); all of type T
 *        bq       (B, N, Rq, D)
 *        ak       (B, M, H, Rk), or (B, M, H) with Rk = 1
 *        bk       (B, M, Rk, D), or (B, M, D)
 *        av       (B, M, H, Rv), or (B, M, H)
 *        bv       (B, M, Rv, E), or (B, M, E)
 *        kv_len   optional, (B), int32 in device memory: the L keys of a batch entry, clamped to 0 .. kv_total; absent:
 *                 L = kv_total. Keys at and past L are ignored
 *   out  o        (B, N, H, E), T
 *        lse      optional, (B, N, H), log sum_m exp(scale q.k); float32 (float64 if T is)
 * q[h] = scale_q sum_r aq[h,r] bq[r], k[m,h] = scale_k sum_r ak[m,h,r] bk[m,r], v likewise; o = softmax_m(scale q.k) v.
 * The M keys may be a share of all, as where a cache lies on several devices: key i of the share is key kv_first + i kv_stride of
 * all, one of a run of neighbours or every kv_stride-th. kv_total and kv_len count the keys of all shares, so that each share's call
 * has the same ones, and attention_merge makes the whole of the shares' o and lse. By default the share is the whole.
 * k and v are never formed in memory. With no key to see, o = 0 and lse = -inf. Scales may be of any finite size; sums over
 * keys do not overflow where o does not. docs/numerics.md says what else has to be in the type's range. */
typedef struct copes_tpa_attributes {
    double scale;      /* 0: D^-1/2 */
    double scale_q;    /* 0: 1 / Rq */
    double scale_k;    /* 0: 1 / Rk */
    double scale_v;    /* 0: 1 / Rv */
    int64_t kv_first;  /* the share's first key among all keys */
    int64_t kv_stride; /* from one key of the share to the next; 0: 1 */
    int64_t kv_total;  /* keys of all shares; 0: kv_first + (M - 1) kv_stride + 1, those up to the share's last */
    int32_t causal;    /* 1: query n sees keys 0 .. L - N + n of all L, so that the last sees the last */
    int32_t reserved[COPES_ATTRIBUTES_SIZE / 4 - 15];
} copes_tpa_attributes;

typedef struct copes_tpa_decode_slots {
    DLTensor *aq, *bq, *ak, *bk, *av, *bv, *kv_len, *reserved_in[COPES_MAX_INPUTS - 7];
    DLTensor *o, *lse, *reserved_out[COPES_MAX_OUTPUTS - 2];
} copes_tpa_decode_slots;

/* What stands between a projection and attention, in one pass: RMSNorm (Zhang and Sennrich 2019) of the queries and the keys,
 * their rotary encoding, and the writing of keys and values into a paged cache (Kwon et al. 2023).
 *
 * COPES_QK_NORM_ROPE_FORWARD
 *   in   q         (B, N, H, D); type T
 *        k         optional, (B, N, Hk, D), T; then k_out, k_cache or both are required
 *        theta, positions, offsets  as lrpe has them; k has the angles of q, so that with Hk other than H theta has one row
 *        wq        optional, (D) or (H, D); T or float32: RMSNorm's weights of q; absent: no norm
 *        wk        optional, (D) or (Hk, D), likewise, of k
 *        v         optional, (B, N, Hk, E), T; v_cache is then required
 *        slots     (B, N), int64, in device memory; required with a cache, else absent. Token (b, n) goes to place slot mod page
 *                  of block slot / page. One below 0 or past the cache is written nowhere: it is skipped, so that -1 is padding
 *        k_scale   optional, (1) or (Hk), float32, in device memory, for a cache of float8: what is stored is divided by it;
 *        v_scale   absent: 1
 *   out  q_out     q's shape, T; may be q itself
 *        k_out     optional, k's shape, T; may be k itself
 *        k_cache   optional, (blocks, page, Hk, D); T, or float8_e4m3fn (also as uint8, of its bits)
 *        v_cache   optional, (blocks, page, Hk, E), likewise; blocks, page and type are k_cache's
 * The caches are the caller's: copes_infer leaves their DLTensors as they are, and what no slot names keeps its bytes. Of
 * tokens with one slot any may stay there, as a whole or in parts. Tensors may be views of one packed projection.
 *
 * COPES_QK_NORM_ROPE_BACKWARD
 *   in   theta, positions, offsets, wq, wk  as above
 *        q, k      the forward's inputs; required with wq, and with wk
 *        grad_q_out, grad_k_out  q_out's and k_out's shapes, T; grad_k_out is optional
 *   out  grad_q    q's shape, T; may be grad_q_out itself
 *        grad_k    k's shape, T; may be grad_k_out itself; required with grad_k_out, else absent
 *        grad_wq, grad_wk  optional, wq's and wk's shapes; float32 (float64 if T is)
 *
 *   norm(x; w) = x r (w + weight_offset), r = (mean(x^2) + eps)^-1/2, the mean over D, or over H D with norm_over all_heads
 *   q_out = rotate(norm(q; wq)), k_out = rotate(norm(k; wk)), rotate as lrpe has it, of the act none
 * Arithmetic is in float32, with one rounding at each store; round_between rounds the norm's result to T before it turns, as
 * models do that run the two one after the other. k_cache gets the k that k_out gets, from before its rounding. float8 is
 * rounded to nearest even, and what is past 448 becomes 448 with its sign.
 * Backward, with g the gradient of norm(x; w), x' = x r and g' = g (w + weight_offset): grad_x = r (g' - x' mean(g' x')),
 * grad_w = sum of g x' over tokens, and over heads where they share a row of w. round_between is taken for the identity. */
typedef struct copes_qk_attributes {
    copes_lrpe_pairing pairing;
    int32_t grid_rank, pad_theta, inverse; /* these and those up to amplitude: as in copes_lrpe_attributes */
    int64_t grid[COPES_MAX_GRID], offset[COPES_MAX_GRID];
    int64_t prefix, suffix;
    int64_t sections[COPES_MAX_GRID];
    int64_t rotary_dim, rotary_begin;
    double amplitude;
    double eps;              /* positive in float32; 0: 1e-6 */
    double weight_offset;    /* finite in float32; 1 where weights are stored as their distance from 1 */
    copes_qk_norm norm_over; /* the features of a head, or of all heads of a token */
    int32_t round_between;   /* 1: norm's result is rounded to T */
    int32_t reserved[COPES_ATTRIBUTES_SIZE / 4 - 44];
} copes_qk_attributes;

typedef struct copes_qk_norm_rope_forward_slots {
    DLTensor *q, *k, *theta, *positions, *offsets, *wq, *wk, *v, *slots, *k_scale, *v_scale,
        *reserved_in[COPES_MAX_INPUTS - 11];
    DLTensor *q_out, *k_out, *k_cache, *v_cache, *reserved_out[COPES_MAX_OUTPUTS - 4];
} copes_qk_norm_rope_forward_slots;

typedef struct copes_qk_norm_rope_backward_slots {
    DLTensor *q, *k, *theta, *positions, *offsets, *wq, *wk, *reserved_forward[4], *grad_q_out, *grad_k_out,
        *reserved_in[COPES_MAX_INPUTS - 13];
    DLTensor *grad_q, *grad_k, *grad_wq, *grad_wk, *reserved_out[COPES_MAX_OUTPUTS - 4];
} copes_qk_norm_rope_backward_slots;

/* Attention over keys in S shares, of the attention over each of them: the reduction of Flash-Decoding (Dao et al. 2023), whose
 * shares are parts of a cache, on one device or on several.
 *
 * COPES_ATTENTION_MERGE_FORWARD
 *   in   o_shares   (S, B, N, H, E), type T: the shares' outputs
 *        lse_shares (S, B, N, H), float32 (float64 if T is): the logarithms of the sums of their scores' exponentials
 *   out  o          (B, N, H, E), T
 *        lse        optional, (B, N, H), as lse_shares
 *
 * COPES_ATTENTION_MERGE_BACKWARD
 *   in   lse_shares as above
 *        o_shares   as above; required with grad_lse_shares
 *        grad_o     o's shape, T
 *        grad_lse   optional, lse's shape and type; absent: 0
 *   out  grad_o_shares   o_shares' shape, T
 *        grad_lse_shares optional, lse_shares' shape and type
 *
 * With b the logarithm's base and the sums over the shares that are not empty:
 *     lse = log_b sum_s b^lse_s, w_s = b^(lse_s - lse), o = sum_s w_s o_s
 *     grad_o_s = w_s grad_o, grad_lse_s = w_s (ln b (grad_o.o_s - grad_o.o) + grad_lse)
 * A share is empty, of a (batch, token, head), where its lse is -inf or +inf: -inf is the logarithm of no weight at all, and +inf
 * is what some kernels of FlashAttention give for a row without keys. Nothing is made of its o there, whatever that holds, and
 * its gradients are 0. Where all are empty, o = 0 and lse = -inf. An lse of NaN is not empty: it tells of a fault before this
 * call, and makes NaN of o and of lse. */
typedef struct copes_merge_attributes {
    copes_log_base base; /* of the logarithms, given and returned */
    int32_t reserved[COPES_ATTRIBUTES_SIZE / 4 - 1];
} copes_merge_attributes;

typedef struct copes_attention_merge_forward_slots {
    DLTensor *o_shares, *lse_shares, *reserved_in[COPES_MAX_INPUTS - 2];
    DLTensor *o, *lse, *reserved_out[COPES_MAX_OUTPUTS - 2];
} copes_attention_merge_forward_slots;

typedef struct copes_attention_merge_backward_slots {
    DLTensor *o_shares, *lse_shares, *grad_o, *grad_lse, *reserved_in[COPES_MAX_INPUTS - 4];
    DLTensor *grad_o_shares, *grad_lse_shares, *reserved_out[COPES_MAX_OUTPUTS - 2];
} copes_attention_merge_backward_slots;

typedef struct copes_op {
    copes_kind kind;
    int32_t reserved;
    union { /* by the kind's family */
        copes_act_attributes act;
        copes_lrpe_attributes lrpe;
        copes_tpa_attributes tpa;
        copes_qk_attributes qk;
        copes_merge_attributes merge;
    };
} copes_op;

/* The tensors of a call, under its kind's name. Inputs are only read, though DLPack's consumers rarely say const. */
typedef union copes_args {
    COPES_EXTENSION struct { /* for code that goes by the table below: every kind's slots, by their number */
        DLTensor *in[COPES_MAX_INPUTS];
        DLTensor *out[COPES_MAX_OUTPUTS];
    };
    copes_act_forward_slots act_forward;
    copes_act_backward_slots act_backward;
    copes_lrpe_forward_slots lrpe_forward;
    copes_lrpe_backward_slots lrpe_backward;
    copes_tpa_decode_slots tpa_decode;
    copes_qk_norm_rope_forward_slots qk_norm_rope_forward;
    copes_qk_norm_rope_backward_slots qk_norm_rope_backward;
    copes_attention_merge_forward_slots attention_merge_forward;
    copes_attention_merge_backward_slots attention_merge_backward;
} copes_args;

/* ---- The table of operators: what a command line or a binding needs to drive them all --------------------------- */

typedef enum copes_attribute_type {
    COPES_ATTRIBUTE_ENUM,   /* int32: an index into choices */
    COPES_ATTRIBUTE_BOOL,   /* int32: 0 or 1 */
    COPES_ATTRIBUTE_INT32,  /* int32 */
    COPES_ATTRIBUTE_INT64,  /* int64[count] */
    COPES_ATTRIBUTE_DOUBLE, /* double */
    COPES_ATTRIBUTE_AXIS    /* int32: an axis counted from the end, -1 the last one */
} copes_attribute_type;

typedef struct copes_attribute_info {
    const char *name;
    copes_attribute_type type;
    int32_t count;         /* elements of the value, 1 but for lists */
    int32_t axes;          /* axes: how many there are to count from; 0: as many as the inplace input has. Else 0 */
    size_t offset;         /* of the value in copes_op, in bytes */
    ptrdiff_t rank_offset; /* lists that have a length of their own: of that int32 in copes_op; else -1 */
    const char *choices;   /* enums: the names in order, separated by '|' */
    const char *fallback;  /* what zero stands for, as one writes or says it */
    const char *summary;
} copes_attribute_info;

typedef struct copes_slot_info {
    const char *name; /* as in copes_args */
    const char *shape;
    int32_t optional; /* 1: may be NULL, always or for some attributes */
    const char *summary;
    int32_t replaces; /* outputs: 1 + the input that it may be, given the same shape; 0: none */
    int32_t updated;  /* outputs: 1 for one that exists before the call, with a shape and values of its own (a cache) */
} copes_slot_info;

typedef struct copes_op_info {
    copes_kind kind;
    int32_t backward;
    const char *name;   /* "lrpe_forward", as in copes_args */
    const char *family; /* "lrpe", as in copes_op */
    const char *summary;
    const copes_slot_info *in[COPES_MAX_INPUTS];   /* by the slots' numbers in copes_args.in; NULL: none has this one */
    const copes_slot_info *out[COPES_MAX_OUTPUTS]; /* likewise */
    int32_t inplace; /* 1 + the input that the first output may be, given the same shape; 0: none */
    int32_t attribute_count;
    const copes_attribute_info *const *attributes;
} copes_op_info;

/* The operators that the library has, and each of them; NULL past the last. They keep their places in later versions. */
COPES_API size_t copes_op_count(void);
COPES_API const copes_op_info *copes_op_at(size_t index);

/* ---- Backends and contexts --------------------------------------------------------------------------------------- */

typedef struct copes_backend_info {
    const char *name; /* "cpu", "cuda", "hip" */
    DLDeviceType device_type;
} copes_backend_info;

/* The backends in this build, and each of them; NULL past the last. */
COPES_API size_t copes_backend_count(void);
COPES_API const copes_backend_info *copes_backend_at(size_t index);

/* How many devices of this type there are; 0 where no driver or device is found, or this build has no backend for them. */
COPES_API int32_t copes_device_count(DLDeviceType device_type);

/* One line about a device, cut to `size` bytes: its name and, for the CPU, the instruction-set level and threads in
 * use. Where a backend has no device, device_id 0 tells why. Errors: NULL, DEVICE, UNSUPPORTED. */
COPES_API copes_status copes_device_summary(DLDevice device, char *text, size_t size);

/* On a GPU no call changes the device or context that the calling thread has current, which may be none, or leaves an error
 * of its own for the runtime's next question for one. */
typedef struct copes_context copes_context;

typedef struct copes_context_options {
    void *stream; /* GPU: the cudaStream_t or hipStream_t that calls enqueue on; NULL: the default stream */
    /* CPU: threads to use; 0: as many as OpenMP says (OMP_NUM_THREADS), fewer for small work; 1 in a build without it, and in
     * a process that fork has made */
    int32_t threads;
    int32_t reserved[(COPES_OPTIONS_SIZE - sizeof(void *)) / 4 - 1];
} copes_context_options;

/* Opens a device. `options` may be NULL: all zero. The results of an operator do not depend on the number of threads.
 * A context on the CPU owns 256 KiB of scratch memory for each thread, of which only what is used is touched.
 * COPES_CPU_ISA in the environment caps the CPU's instruction-set level: baseline, avx2, avx512, avx512bf16 or sve256.
 * Errors: NULL, ATTRIBUTE (threads < 0, reserved not zero, an unknown COPES_CPU_ISA or one the processor lacks), DEVICE,
 * UNSUPPORTED, MEMORY, BACKEND; *context is then NULL. */
COPES_API copes_status copes_context_create(DLDevice device, const copes_context_options *options,
                                            copes_context **context);

/* Closes a context. NULL is ignored. Work already enqueued on the stream goes on. */
COPES_API void copes_context_destroy(copes_context *context);

/* GPU: later calls enqueue on `stream`. One of a green context (or the default stream, while one is current) has some of
 * the device's multiprocessors; calls are cut for those, and what copes_workspace_size says may change with it. On the CPU
 * it is ignored. Errors: NULL, BACKEND. */
COPES_API copes_status copes_context_set_stream(copes_context *context, void *stream);

/* ---- Running an operator ----------------------------------------------------------------------------------------- */

/* Checks the descriptor and the inputs, and describes each output that args->out asks for (a non-NULL tensor), but for those that
 * exist already (copes_slot_info.updated), which are checked instead: writes its ndim, dtype, device and shape, and sets strides to NULL and byte_offset to 0. The tensor's `shape` must point to
 * room for COPES_MAX_RANK lengths; `data` is left as it is. The output's DLTensor and those lengths must not overlap an
 * input's DLTensor, shape or strides, nor another output's: an output that is to replace x needs a DLTensor of its own
 * too. Reads no tensor's data; inputs may have data NULL. Errors: NULL, OP, ATTRIBUTE, DEVICE, DTYPE, SHAPE, STRIDE,
 * ALIAS, SIZE. */
COPES_API copes_status copes_infer(const copes_op *op, const copes_args *args);

/* The bytes of scratch memory that copes_run needs for this call, on the context's device; often 0. Depends on shapes,
 * types, attributes, the context and its stream, not on data. Errors: those of copes_run, but for WORKSPACE; data may be NULL. */
COPES_API copes_status copes_workspace_size(copes_context *context, const copes_op *op, const copes_args *args,
                                            size_t *size);

/* The bytes that are enough for each of these calls, of which ops[i] and args[i] are the i-th, where they run one after
 * the other on one stream: a program that knows its calls allocates once. The bound is for the context and the stream that
 * it has now; after copes_context_set_stream ask again. 0 for no calls. An error's message begins with the call's number,
 * "call 3: ...", counted from 0. Errors: those of copes_workspace_size. */
COPES_API copes_status copes_workspace_bound(copes_context *context, const copes_op *ops, const copes_args *args,
                                             size_t count, size_t *size);

/* Runs the operator. GPU: enqueues it on the context's stream and returns; it neither allocates nor synchronizes, and
 * tensors and workspace must live until the stream gets there. CPU: returns when done. The workspace is on the
 * context's device, of any alignment and content and of at least the size that copes_workspace_size gives, and overlaps
 * no tensor; NULL will do for 0. A tensor with no elements may have data NULL; where every output is empty the call
 * does nothing and succeeds. The same call on the same device gives the same bits. Errors: NULL, OP, ATTRIBUTE, DEVICE,
 * DTYPE, SHAPE, STRIDE, ALIAS, SIZE, WORKSPACE, UNSUPPORTED, BACKEND. */
COPES_API copes_status copes_run(copes_context *context, const copes_op *op, const copes_args *args, void *workspace,
                                 size_t workspace_size);

/* ---- Which kernel a call takes ----------------------------------------------------------------------------------- */

/* Tells how copes_run would run this call: writes lines of text, cut to `size` bytes, that name the variant (a kernel and what
 * it is compiled for), how it is launched, its workspace, and the faster variants that refuse the call, with the reason.
 * Launches nothing and reads no data; but alignment counts, so that `data` should be as in the call. The text is for
 * people: only its first line, "variant: NAME", keeps its form. Errors: those of copes_workspace_size. */
COPES_API copes_status copes_explain(copes_context *context, const copes_op *op, const copes_args *args, char *text,
                                     size_t size);

/* The names that "variant: NAME" can have on devices of this type: copies up to `capacity` of them, of static storage, to
 * `names` and returns how many there are; 0 without such a backend.
 * Three variables in the environment of copes_context_create change how calls are planned for GPUs: for tests, and to find out
 * what a faster kernel gains.
 * - COPES_GPU_ARCH=80: as on compute capability 8.0 (of the device's and this one, the lesser).
 * - COPES_GPU_VARIANT=NAME, a variant's name up to its "<": all others that can be refused are. COPES_GPU_VARIANT=-A,-B: A and B
 *   are.
 * - COPES_GPU_MODEL=capability=90,multiprocessors=132,shared_memory=232448: for a device that need not be there, whose blocks
 *   have so many bytes of shared memory, and clusters up to 8 blocks, or N by ",clusters=N". It is the only device. Its contexts
 *   plan calls (copes_workspace_size, copes_explain) and refuse to run them (UNSUPPORTED). */
COPES_API size_t copes_variants(DLDeviceType type, const char **names, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
