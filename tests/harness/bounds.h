/* The bounds that results are held to, against the oracle's value of the same stored inputs. In the words of the
 * oracle, `term` is the size that rounding is relative to, and `turn` what an error of the phase is multiplied by.
 *
 *   arithmetic   float32 for f32, f16 and bf16, float64 for f64; "ulp" is its ulp unless the storage's is named
 *   phase        the promise is 2^-30 turn (f64: 2^-60): 2 pi 2^-30 times `turn` is allowed on top of the rest, as no
 *                cosine near its zero can be better
 *   rotation     lrpe's f16 and bf16 results on the CPU, of tokens counted along a line: 5.75 2^-24 times `turn` besides, as
 *                docs/numerics.md derives, and 6.75 with an amplitude that is no power of two
 *   by term      act and lrpe, elementwise: 4 ulp of the largest term: of the formula's products, as a cos and b sin, or g s
 *                and g s x (1 - s) of silu's gradient, and of their sums, however small they are
 *                an amplitude multiplies lrpe's terms, which count it times the smallest normal number at least
 *                f16 and bf16 gradients of sigmoid and silu: 15 ulp, as docs/numerics.md derives; on the CPU those and their values
 *                64 ulp for f16, 0.0078 of one of storage, and 112 for bf16, 0.0017; in lrpe 4 more
 *   size         of a sum: what its rounding errors are relative to, however small it is itself. The larger of its magnitude
 *                and the root of the sum of its terms' squares. Float32's errors of single terms are independent, and so is
 *                what the additions round off, each relative to the sum so far: they all come to a few 2^-24 of the root.
 *                What is common to the terms comes to as much of the magnitude. 1e-6 is 17 of 2^-24
 *   by row       softmax, alone or in lrpe: 1e-6 (f64: 1e-14) of the largest term in the softmax's row; forward that is
 *                the largest output, backward the largest of o g and of o times the size of sum(o g). bf16 forward on the CPU:
 *                1e-5, at most 0.0026 ulp of storage
 *   shares       a softmax of a given lse: y counts |x - lse| times itself where that is above 1, as its exponent is off by as much;
 *                below the smallest normal number it may be 0. delta: as grad_theta, of the sizes of its terms y g, each that of
 *                the smallest normal number at least
 *   attention    tpa_decode: 1e-6 (f64: 1e-14) of the largest size of an output of the (batch, token, head); f16 and bf16:
 *                2 ulp of the storage type there. The terms of an output are its keys'; tests/oracle/tpa.c has what a sum
 *                of ranks counts for in them. A key's weight is as far off as its score: a score whose size is above 1
 *                multiplies the term by that size
 *   grad_theta   1e-6 (f64: 1e-14) of the sum of the sizes of its terms, |p| |c| (|y| + what y's bound is relative to) times
 *                the gradients of the two features. A term has the errors of y and of the gradient of y, a few 2^-24 of those; the
 *                sum is one of doubles. The smallest normal number is added to both factors, below which 1e-6 of it is 8 of the
 *                smallest number
 *   norm         qk_norm_rope: 1e-6 (f64: 1e-14) of the largest term of the element: of the products of the rotation and, in the
 *                gradient, of g' and of x' times the size of mean(g' x'), times r. The mean of squares is a sum of positive terms,
 *                over the features of up to all heads: no rounding of it is that large unless it is added up in one long row
 *   merge        attention_merge and its gradients, but for lse: 1e-6 (f64: 1e-14) of the sum of its terms by magnitude, each times the
 *                difference of the two lse that its weight comes of, where that is above 1
 *   weights      grad_wq and grad_wk: as grad_theta, of the sum of the sizes of g x'
 *   room         round_between: a norm's result y is rounded to T as the oracle rounds it, unless a number within 1e-6 of y is
 *                rounded to another number of T. Then either will do: the rotation is of their mean, and the result may be as far
 *                off as half their distance takes it, times the cosine or the sine. This is one element in 2700 of bf16, one in 340
 *                of f16
 *   copies       values in a cache, and what no token's slot names: the very value, with its sign, or its rounding to float8
 *   lse          1e-6 (f64: 1e-14) of the largest of 1, the largest score (in attention_merge: lse of a share), the logarithm of the sum and, in tpa_decode, the
 *                mean of the sizes of the scores by their weights, as d lse = sum of weight d score
 *   storage      f16 and bf16 (but attention): the result must be what rounding, to nearest even, makes of a number within
 *                the bounds above: half an ulp of the storage type more. Past its largest number that is infinity
 *
 * NaN must be NaN, and infinity the same infinity. Where an infinity was turned by an angle, or met a factor below
 * the normal range, which of inf and NaN comes out hangs on whether that factor is 0: either will do, nothing
 * finite. float8 has no infinity, and its largest number instead. */
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
    double term_ulps;      /* by term */
    double relative;       /* by the others, but attention's of 16 bits */
    double room;           /* of the element, as the oracle has it */
    double rotation_units; /* of 2^-24: what a rotation may be off by besides the phase's promise */
} check_bound;

/* `args`: the inputs that a call has; NULL: none that changes a bound. */
check_bound check_bound_of(const copes_op *op, const oracle_args *args, int slot, check_type type, DLDevice device);

check_verdict check_compare(check_bound bound, check_type type, double value, double term, double turn, double got);

#endif
