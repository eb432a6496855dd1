/* A case: one call of an operator, complete in a few numbers, so that a line of text and a seed repeat it. */
#ifndef COPES_TESTS_HARNESS_CASE_H
#define COPES_TESTS_HARNESS_CASE_H

#include "common/slots.h"
#include "tests/harness/buffer.h"

#include <stdbool.h>

/* What the values of the tensors are. */
typedef enum check_fill {
    CHECK_NORMAL,    /* about -3 to 3 */
    CHECK_WIDE,      /* of any size from 2^-20 to 2^10 */
    CHECK_SPECIAL,   /* half of them infinities, NaN, zeros, subnormal and largest numbers, and edges of exp's range */
    CHECK_FINITE,    /* the same, without infinities and NaN */
    CHECK_SUBNORMAL, /* all around and below the smallest normal number */
    CHECK_LARGE,     /* within a factor 8 of the largest number */
    CHECK_EQUAL,     /* one value */
    CHECK_MASKED,    /* normal ones, half of them replaced by -infinity; tpa_decode: every second head of aq, and all
                      * other factors of scores positive */
    CHECK_LATE,      /* -infinity, but in the last eighth of every entry of the first axis */
    CHECK_RISING,    /* from -100 to 100 along every entry of the first axis */
    CHECK_STRAY, /* normal, but for a NaN in the first of 16 columns of a sequence, and two far larger in the second */
    CHECK_EVERY, /* the type's numbers by their bits, spread over every entry of the first axis; 2^16 have all of 16 */
    CHECK_POSITIVE, /* from 1/2 to 2: no sum of them cancels */
    CHECK_TAIL, /* half of them from -24 to 24, half 2^-24 to 2^-4: a softmax's gradient is often a term's far below the largest */
    CHECK_FILLS
} check_fill;

/* Random cases have the first of them, so that seeds keep their meaning. */
enum { CHECK_DRAWN_FILLS = CHECK_TAIL };

typedef enum check_angles {
    CHECK_ROPE,       /* 10000^(-i / E), a little different in each head */
    CHECK_ANY_ANGLE,  /* -pi to pi */
    CHECK_TINY_ANGLE, /* down to the smallest subnormal number */
    CHECK_HUGE_ANGLE, /* up to the largest number */
    CHECK_ODD_ANGLE,  /* infinities, NaN and zeros among others */
    CHECK_ANGLES
} check_angles;

/* What positions are. */
typedef enum check_positions {
    CHECK_PACKED,       /* 0, 1, 2 .., and from 0 again: sequences of a packed batch */
    CHECK_SCATTERED,    /* -1000 to 100000 in any order; float32: with fractions */
    CHECK_FAR,          /* around -2^31 and 2^31, of the types that reach so far on both sides, and up to 2^62 */
    CHECK_FRACTION,     /* float32: from -1 to 1 */
    CHECK_ODD_POSITION, /* float32: infinities and NaN among others */
    CHECK_POSITIONS
} check_positions;

typedef struct check_attention_shape {
    int64_t b, n, m, h, d, e, rq, rk, rv;
} check_attention_shape;

typedef enum check_weights { CHECK_NO_WEIGHTS, CHECK_SHARED_WEIGHTS, CHECK_WEIGHTS_EACH } check_weights;
typedef enum check_scales { CHECK_NO_SCALE, CHECK_ONE_SCALE, CHECK_SCALES_EACH } check_scales;

/* Which places of a cache tokens go to: never one place to two of them, as any of the two may stay there. */
typedef enum check_slots {
    CHECK_ANY_PLACE,   /* one for each, in any order, while there are some */
    CHECK_SOME_PADDED, /* the same, but a third are -1 */
    CHECK_SOME_BEYOND, /* the same, but half are just outside the cache, or far from it, the ends of int64 among them */
    CHECK_SLOTS
} check_slots;

/* qk_norm_rope, beside its queries. */
typedef struct check_qk {
    bool k, k_out, k_cache, v_cache; /* which tensors there are; in a backward k_out stands for its gradient */
    int64_t key_heads, e;            /* heads of k and v; features of v */
    check_weights wq, wk;
    check_type weight_type;
    bool grad_weights; /* asked for */
    int64_t blocks, page;
    check_type cache_type;
    check_slots slots;
    check_scales k_scale, v_scale;
    bool packed; /* q, k and v are views of one tensor */
} check_qk;

/* What attention_merge's lse_shares are. */
typedef enum check_lse {
    CHECK_LSE_NEAR,    /* -3 to 3 */
    CHECK_LSE_EQUAL,   /* one value */
    CHECK_LSE_APART,   /* -130 to 130: most weights are 0 */
    CHECK_LSE_EXTREME, /* among others the largest numbers, of both signs */
    CHECK_LSE_EMPTY,   /* a third infinities of both signs, and nothing else in every fourth row */
    CHECK_LSE_ODD,     /* the same, and NaN */
    CHECK_LSE_KINDS
} check_lse;

typedef struct check_merge {
    check_lse lse;
    bool grad_lse_shares; /* asked for */
} check_merge;

/* What a call does of a softmax whose axis may lie in shares. */
typedef enum check_passes {
    CHECK_WHOLE,
    CHECK_SUMS, /* the log sum exp, or delta, alone */
    CHECK_APPLY /* the result, of those of all shares */
} check_passes;

/* What act's backward has of the forward; a mask is what the forward gives beside its output, too. */
typedef enum check_kept {
    CHECK_KEPT_USUAL,  /* the input, of softmax the output */
    CHECK_KEPT_OUTPUT, /* relu, sigmoid */
    CHECK_KEPT_BOTH,   /* the same, beside an input that is not used */
    CHECK_KEPT_MASK,   /* relu: given by the forward, too */
    CHECK_KEPT_ALL     /* relu's backward: a mask beside an output and an input that are not used */
} check_kept;

typedef struct check_case {
    const char *family; /* "act", "lrpe_rotate", "lrpe_cosine", "tpa_decode", "qk_norm_rope", "attention_merge" */
    copes_op op;
    check_type type, theta_type;
    int rank;                      /* act, lrpe: of x; qk_norm_rope: of q; attention_merge: of o_shares */
    int64_t shape[COPES_MAX_RANK]; /* likewise */
    int64_t theta_shape[2];
    bool theta_each;   /* theta of rank 3: a row of these for each dimension of positions */
    int position_rank; /* of positions; 0: there are none */
    int dimensions;    /* of positions of rank 3 */
    bool offsets;
    check_type position_type; /* of positions or offsets */
    check_positions positions;
    bool grad_theta; /* asked for */
    check_attention_shape attention;
    check_qk qk;
    check_merge merge;
    int powers[COPES_TPA_BV + 1]; /* of 2, that tpa_decode's factors are multiplied by */
    bool bare_keys, bare_values;  /* rank axes left out */
    bool lengths;                 /* with kv_len */
    bool lse;                     /* forward: asked for; backward: given, or its gradient */
    check_passes passes;          /* act, lrpe */
    check_kept kept;              /* act */
    bool in_place;
    check_layout in_layout, out_layout;
    bool mixed;                              /* each input has another layout, counted on from in_layout */
    unsigned char repeats[COPES_MAX_INPUTS]; /* a bit for each axis of an input along which all entries are the same */
    check_fill fill;
    check_angles angles;
    uint64_t seed; /* of the values; of the whole case where it is a random one */
    bool random;
    bool any_gradient; /* act: grad_o is any finite numbers, whatever x is */
    bool large;        /* for the blocks of a GPU to share; a processor has nothing new to do, and needs seconds */
} check_case;

bool check_is_backward(const copes_op *op);

/* The input that the first output may be stored over. */
int check_lead_slot(const copes_op *op);

/* The input that an output is stored over in this case; -1: none. */
int check_replaced(const check_case *c, int output);

/* Is an output one that exists before the call, with a shape and values of its own? */
bool check_is_updated(const copes_op *op, int output);

/* The first head of an input in the tensor that it is packed in, (B, N, heads, D); -1: it has its own memory. */
int64_t check_packed_head(const check_case *c, int slot);

/* The shape of the tensor that inputs are packed in. False: none are. */
bool check_packed_shape(const check_case *c, int64_t shape[4]);

/* The layout of an input. */
check_layout check_layout_of(const check_case *c, int slot);

/* The axes of an input along which all entries are the same, a bit each: those of the case and of its layout. */
unsigned check_repeats_of(const check_case *c, int slot);

/* qk_norm_rope's attributes that turn heads as lrpe's do. */
copes_qk_attributes check_qk_of_rotation(const copes_lrpe_attributes *turn);

/* Makes a share's call of some whose softmax may lie in shares. */
void check_draw_passes(check_case *c, uint64_t *state);

/* Draws what act's backward has of the forward, and whether the forward gives a mask. */
void check_draw_kept(check_case *c, uint64_t *state);

/* tpa_decode's attributes for some share of a cache, of m keys. */
copes_tpa_attributes check_share_of(copes_tpa_attributes of, int64_t m, uint64_t *state);

/* A factor as the arithmetic of the case's type has it. */
double check_factor(const check_case *c, double factor);

/* False where the bounds say nothing about such values: a sum that leaves the range of the arithmetic, only to come back
 * in a gradient, or a term that an amplitude takes out of it. */
bool check_makes_sense(const check_case *c);

enum { CHECK_CASE_TEXT = 768 };

/* The case in one line; returns text. */
const char *check_case_text(const check_case *c, char text[CHECK_CASE_TEXT]);

/* A growing array of cases. Running out of memory ends the program. */
typedef struct case_list {
    check_case *cases;
    size_t count, capacity;
} case_list;

void case_list_add(case_list *list, const check_case *c);
void case_list_free(case_list *list);

/* What is checked under one name: its table, and cases made from a seed. */
typedef struct check_family {
    const char *name;
    void (*table)(case_list *list);
    check_case (*random)(uint64_t seed);
} check_family;

extern const check_family check_families[];
extern const size_t check_family_count;

void check_act_table(case_list *list);
void check_rotate_table(case_list *list);
void check_cosine_table(case_list *list);
void check_tpa_table(case_list *list);
void check_qk_table(case_list *list);
void check_merge_table(case_list *list);
check_case check_act_random(uint64_t seed);
check_case check_rotate_random(uint64_t seed);
check_case check_cosine_random(uint64_t seed);
check_case check_tpa_random(uint64_t seed);
check_case check_qk_random(uint64_t seed);
check_case check_merge_random(uint64_t seed);

#endif
