/* The oracle: every operator in extended precision, straight from its definition, slow and plain. It shares no code
 * with the library; only the descriptor's type comes from the public header. It also says how large the terms of each
 * result were, so that a test can tell a rounding error from a wrong answer (tests/harness/bounds.h). */
#ifndef COPES_TESTS_ORACLE_H
#define COPES_TESTS_ORACLE_H

#include "common/slots.h"

/* A dense row-major tensor. Inputs hold the stored values, widened; theta holds its float32 values, widened. */
typedef struct oracle_tensor {
    int rank;
    int64_t shape[COPES_MAX_RANK];
    double *value;
    double
        *term; /* outputs: the largest term of the element's formula, or, by row, the largest of its row; below 0: the
                   * element is a copy, and must be the value itself, rounded to the output's type */
    double *turn; /* outputs: what an error of the phase, in radians, is multiplied by */
    double *room; /* outputs: how far a rounding within the formula, which may go either way, takes the element from the
                   * value; NULL: no such rounding */
} oracle_tensor;

typedef struct oracle_args {
    const oracle_tensor *in[COPES_MAX_INPUTS]; /* kv_len holds its integers */
    oracle_tensor *out[COPES_MAX_OUTPUTS];
    int positions_are_real;          /* float32, and not integers */
    double (*shorten)(double value); /* rounds to the type of the tensors; NULL: that is the arithmetic's */
    double tiny; /* the smallest normal number of the arithmetic that is judged: factors below it may count as 0 to an
                  * infinity, and have no relative accuracy */
} oracle_args;

/* What `term` of an output means. */
typedef enum oracle_rule {
    ORACLE_BY_TERM,      /* the largest term of the element itself */
    ORACLE_BY_ROW,       /* softmax: the largest term of the row of the softmax that the element came from */
    ORACLE_BY_ATTENTION, /* tpa_decode: the largest size of an output of the (batch, token, head) */
    ORACLE_BY_NORM,      /* qk_norm_rope: the largest term of the element itself, a factor of which is a sum's */
    ORACLE_BY_SUM,       /* grad_theta, weights' gradients, and attention_merge: the sum of the sizes of its terms */
    ORACLE_BY_LSE /* log sum exp: the largest of 1, its two terms, the maximum and the logarithm of the sum, and in
                   * tpa_decode the mean size of the scores */
} oracle_rule;

oracle_rule oracle_rule_of(const copes_op *op, int slot);

/* lrpe's attributes, or those by which qk_norm_rope turns heads. */
copes_lrpe_attributes oracle_rotation_of(const copes_op *op);

/* Rank and shape of an output; those of a cache are the caller's. */
void oracle_infer(const copes_op *op, const oracle_args *args, int slot, oracle_tensor *out);

/* Fills value, term, turn and room of every output that args->out names. A cache's values are at first those from before the
 * call. Returns 0, or -1 where memory ran out. */
int oracle_run(const copes_op *op, const oracle_args *args);

/* The angle p theta modulo one turn, in radians from -pi to pi, good to better than 2^-60 turn; NaN for a theta or p that is
 * not finite. */
long double oracle_angle(int64_t p, float theta);
long double oracle_angle_of_float(float p, float theta);

int64_t oracle_count(const oracle_tensor *tensor);

#endif
