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
    double *term; /* outputs: the largest term of the element's formula, or, by row, the largest of its row */
    double *turn; /* outputs: what an error of the phase, in radians, is multiplied by */
} oracle_tensor;

typedef struct oracle_args {
    const oracle_tensor *in[COPES_MAX_INPUTS]; /* kv_len holds its integers */
    oracle_tensor *out[COPES_MAX_OUTPUTS];
    int positions_are_real; /* lrpe: float32, and not integers */
    double tiny; /* the smallest normal number of the arithmetic that is judged: factors below it may count as 0 to an
                  * infinity, and have no relative accuracy */
} oracle_args;

/* What `term` of an output means. */
typedef enum oracle_rule {
    ORACLE_BY_TERM,      /* the largest term of the element itself */
    ORACLE_BY_ROW,       /* softmax: the largest term of the row of the softmax that the element came from */
    ORACLE_BY_ATTENTION, /* tpa_decode: the largest size of an output of the (batch, token, head) */
    ORACLE_BY_SUM,       /* grad_theta: the sum of the sizes of its terms */
    ORACLE_BY_LSE /* log sum exp: the largest of 1, its two terms, the maximum and the logarithm of the sum, and in
                   * tpa_decode the mean size of the scores */
} oracle_rule;

oracle_rule oracle_rule_of(const copes_op *op, int slot);

/* Rank and shape of an output. */
void oracle_infer(const copes_op *op, const oracle_args *args, int slot, oracle_tensor *out);

/* Fills value, term and turn of every output that args->out names. Returns 0, or -1 where memory ran out. */
int oracle_run(const copes_op *op, const oracle_args *args);

/* The angle p theta modulo one turn, in radians from -pi to pi, good to better than 2^-60 turn; NaN for a theta or p that is
 * not finite. */
long double oracle_angle(int64_t p, float theta);
long double oracle_angle_of_float(float p, float theta);

int64_t oracle_count(const oracle_tensor *tensor);

#endif
