/* The bounds that results are held to, against the oracle's value of the same stored inputs. In the words of the
 * oracle, `term` is the size that rounding is relative to, and `turn` what an error of the phase is multiplied by.
 *
 *   arithmetic   float32 for f32, f16 and bf16, float64 for f64; "ulp" is its ulp unless the storage's is named
 *   phase        the promise is 2^-30 turn (f64: 2^-60): 2 pi 2^-30 times `turn` is allowed on top of the rest, as no
 *                cosine near its zero can be better
 *   by term      act and lrpe, elementwise: 4 ulp of the largest term: of the formula's products, as a cos and b sin, or g s
 *                and g s x (1 - s) of silu's gradient, and of their sums, however small they are
 *                f16 and bf16 gradients of sigmoid and silu on a GPU: 15 ulp, as docs/numerics.md derives, and in lrpe 4 more
 *   by row       softmax, alone or in lrpe: 1e-6 (f64: 1e-14) of the largest term in the softmax's row; forward that is
 *                the largest output, backward the largest of o g and o sum(o g)
 *   attention    tpa_decode: 1e-6 (f64: 1e-14) of the largest output of the (batch, token, head); f16 and bf16: 2 ulp of
 *                the storage type there. This is for scores up to about 8: a score's own rounding grows with it
 *   lse          1e-6 (f64: 1e-14) of the largest of 1, the largest score and the logarithm of the sum
 *   storage      f16 and bf16 (but attention): the result must be what rounding, to nearest even, makes of a number within
 *                the bounds above: half an ulp of the storage type more. Past its largest number that is infinity
 *
 * NaN must be NaN, and infinity the same infinity. Where an infinity was turned by an angle, or met a factor below
 * the normal range, which of inf and NaN comes out hangs on whether that factor is 0: either will do, nothing
 * finite. */
#ifndef COPES_TESTS_HARNESS_BOUNDS_H
#define COPES_TESTS_HARNESS_BOUNDS_H

#include "tests/harness/type.h"
#include "tests/oracle/oracle.h"

#include <stdbool.h>

typedef struct check_verdict {
    bool beyond;
    double ulps; /* of the storage type, at `term`, or by term at the value for f16 and bf16 where that is larger than
                  * the arithmetic's at `term`; less the phase's part */
} check_verdict;

/* What an output of type `type` is held to. */
typedef struct check_bound {
    oracle_rule rule;
    double term_ulps; /* by term */
} check_bound;

check_bound check_bound_of(const copes_op *op, int slot, check_type type, DLDevice device);

check_verdict check_compare(check_bound bound, check_type type, double value, double term, double turn, double got);

#endif
