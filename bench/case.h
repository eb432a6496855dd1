/* The cases of the benchmark: which operator on which shape. The published tables of the Triton library xopes are the
 * default list, so that a run can be laid beside them row by row. */
#ifndef COPES_BENCH_CASE_H
#define COPES_BENCH_CASE_H

#include "tests/harness/type.h"

#include <copes/copes.h>
#include <stdbool.h>

typedef enum bench_operator {
    BENCH_ACT,
    BENCH_ROTATE,
    BENCH_COSINE,
    BENCH_MD_COSINE, /* cosine on a grid, stored (B, H, N, D) */
    BENCH_TPA,
    BENCH_QK,
    BENCH_MERGE,
    BENCH_OPERATORS
} bench_operator;

enum { BENCH_RANKS = 3 };

typedef enum bench_norm { BENCH_NORM_NONE, BENCH_NORM_HEAD, BENCH_NORM_ALL_HEADS } bench_norm;

/* What qk_norm_rope writes keys and values to: no cache, one of the tensors' type, or one of float8. */
typedef enum bench_cache { BENCH_CACHE_NONE, BENCH_CACHE_SAME, BENCH_CACHE_FLOAT8 } bench_cache;

/* Of softmax whose axis lies in shares: the sums of one alone, its result from those of all, or a call for each, one after the other.
 * BENCH_PASS_NONE: the axis lies in no shares. */
typedef enum bench_pass { BENCH_PASS_NONE, BENCH_PASS_FIRST, BENCH_PASS_SECOND, BENCH_PASS_EACH } bench_pass;

typedef struct bench_case {
    bench_operator op;
    bool backward;
    copes_act act;
    bool over_tokens; /* softmax's axis: the sequence; else the features */
    bench_pass pass;
    bool mask;        /* relu: the forward writes one, and the backward reads it */
    bool from_output; /* of the backward of relu and sigmoid: it reads the forward's output */
    int32_t grid_rank;
    int64_t grid[COPES_MAX_GRID];
    bool one_theta;     /* for all heads */
    bool square;        /* a grid whose side is what the row shows */
    bool positions;     /* an int64 tensor (B, N) of them in place of the grid */
    bool in_place;      /* the result replaces x; in the backward, the gradient at the output */
    bool grad_theta;    /* of the backward: theta's gradient, too */
    bool interleaved;   /* pairs are neighbours; else a feature of each half */
    int64_t rotary_dim; /* features that turn; 0: all */
    int64_t prefix;
    int64_t batch, head, dim;
    int64_t kv_head; /* from here to grad_weights: qk_norm_rope's */
    bench_norm norm;
    bench_cache cache;
    bool grad_weights;          /* of the backward: the gradients of the norms' weights, too */
    int64_t ranks[BENCH_RANKS]; /* tpa_decode's: of queries, keys and values */
    int64_t shares;             /* attention_merge's */
    int64_t n;                  /* as the row shows it: tokens, a side of the grid, or the length of the cache */
    check_type type;
} bench_case;

enum { BENCH_LENGTHS = 32, BENCH_NAME = 256 };

/* What is asked for; what is left at 0 (act, norm, cache and prefix: -1) is as in the default list. */
typedef struct bench_wish {
    bool wanted[BENCH_OPERATORS], any_wanted;
    bool forward, backward;
    int64_t n[BENCH_LENGTHS];
    int n_count;
    int64_t batch, head, kv_head, dim, rotary_dim, prefix, shares;
    int64_t ranks[BENCH_RANKS];
    int64_t grid[COPES_MAX_GRID];
    int grid_rank;
    int32_t act, norm, cache;
    bench_pass pass;
    check_type type;
    bool quick, mask, from_output, one_theta, positions, in_place, interleaved, grad_theta, grad_weights;
} bench_wish;

typedef struct bench_list {
    bench_case *cases;
    size_t count, room;
    bool failed; /* memory ran out */
} bench_list;

/* "act", "lrpe_rotate", "lrpe_cosine", "md_lrpe_cosine", "tpa_decode", "qk_norm_rope", "attention_merge". */
const char *bench_operator_name(bench_operator op);

void bench_list_add(bench_list *list, const bench_case *c);

/* list_qk.c: the cases of qk_norm_rope, of `c`'s type and flags. */
void bench_list_add_qk(bench_list *list, const bench_wish *wish, bench_case c);

void bench_list_make(bench_list *list, const bench_wish *wish);
void bench_list_free(bench_list *list);

/* The title of the table that a case is a row of: "lrpe_rotate-speed-fwd-batch12-head12-dim128-act_none-bf16". */
/* The features of a head that turn. */
int64_t bench_turned(const bench_case *c);
void bench_case_name(const bench_case *c, char name[BENCH_NAME]);

/* Whether an operator takes what the wish says of encodings and activations; if not, *flag is the flag it does not. */
bool bench_operator_takes(bench_operator op, const bench_wish *wish, const char **flag);

/* The number of tokens, the prefix included. */
int64_t bench_case_tokens(const bench_case *c);

/* "none", "relu", "sigmoid", "silu", "softmax". */
const char *bench_act_name(copes_act act);

/* "none", "head", "all_heads". */
const char *bench_norm_name(bench_norm norm);

/* "first", "second", "each"; "" for none. */
const char *bench_pass_name(bench_pass pass);

/* The type that qk_norm_rope's caches have. */
check_type bench_cache_type(const bench_case *c);

#endif
