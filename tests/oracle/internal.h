/* Shared by the oracle's files: the activations and their gradients on arrays in extended precision. */
#ifndef COPES_TESTS_ORACLE_INTERNAL_H
#define COPES_TESTS_ORACLE_INTERNAL_H

#include "tests/oracle/oracle.h"

typedef long double real;

/* A value with the sizes that its error is judged by. */
typedef struct oracle_number {
    real value, term, turn, room;
} oracle_number;

/* A tensor seen as (outer, length, inner) around one axis. */
typedef struct oracle_axis {
    int64_t outer, length, inner;
} oracle_axis;

/* y = act(x) of every element, with the largest term; softmax runs along the axis, and term is then its row's
 * largest. */
void oracle_activate(copes_act act, oracle_axis axis, const double *x, oracle_number *y);

/* g = g * d act / dx in place, at x; elementwise activations only. */
void oracle_gradient(copes_act act, int64_t count, real tiny, const double *x, oracle_number *g);

/* g = y (g - sum(y g)) in place, along the axis; term becomes the row's largest. */
void oracle_softmax_gradient(oracle_axis axis, const oracle_number *y, oracle_number *g);

/* A softmax in shares, whose sums have the axis's length 1: the log sum exp of x and, for a y with terms of its own, the sum of
 * y g; y = e^(x - lse), whose term is y times its exponent's size; and g = y (g - delta) in place. */
void oracle_lse(oracle_axis axis, const double *x, oracle_number *lse);
void oracle_delta(oracle_axis axis, real tiny, const oracle_number *y, const oracle_number *g, oracle_number *delta);
void oracle_softmax_of_lse(oracle_axis axis, real tiny, const double *x, const double *lse, oracle_number *y);
void oracle_gradient_of_delta(oracle_axis axis, const oracle_number *y, const double *delta, oracle_number *g);

/* What turns the heads of a tensor (B, N, heads, features). */
typedef struct oracle_rotation {
    copes_lrpe_attributes op;
    const oracle_tensor *theta, *positions, *offsets;
    int positions_are_real; /* float32 */
    int64_t b, n;
    int64_t angles; /* K */
    int by_row;     /* a term is the largest of its row already */
    real tiny;      /* oracle_args has it */
} oracle_rotation;

/* A token's position in a dimension: an integer, and a float32 to be added to it. */
typedef struct oracle_position {
    int64_t whole;
    float real;
    int inside; /* 0: of the prefix or suffix */
} oracle_position;

/* Dimensions of positions. */
int oracle_dimensions(const oracle_rotation *r);
oracle_position oracle_position_of(const oracle_rotation *r, int64_t b, int64_t token, int j);

/* Where in theta the factor of angle i by dimension j is; -1: there is none. */
int64_t oracle_theta_place(const oracle_rotation *r, int64_t head, int64_t i, int j);
real oracle_angle_at(const oracle_rotation *r, int64_t b, int64_t token, int64_t head, int64_t i);
real oracle_amplitude(const oracle_rotation *r);

/* The amplitude times a cos - b sin, with b's sign folded into sin. Below the smallest normal number a and b have the ulp of that,
 * which the amplitude multiplies. */
oracle_number oracle_turned(const oracle_rotation *r, oracle_number a, real cosine, oracle_number b, real sine);

/* Rotates a head in place; `direction` is 1, or -1 for the transpose. */
void oracle_rotate_head(const oracle_rotation *r, int64_t b, int64_t token, int64_t head, real direction,
                        oracle_number *y);

/* A size as it is stored: finite where it is. */
double oracle_size(real size);

void oracle_store(const oracle_number *numbers, oracle_tensor *out);

int oracle_run_act(const copes_op *op, const oracle_args *args);
int oracle_run_lrpe(const copes_op *op, const oracle_args *args);
int oracle_run_tpa(const copes_op *op, const oracle_args *args);
int oracle_run_qk(const copes_op *op, const oracle_args *args);
int oracle_run_merge(const copes_op *op, const oracle_args *args);

void oracle_infer_lrpe(const copes_op *op, const oracle_args *args, int slot, oracle_tensor *out);
void oracle_infer_tpa(const oracle_args *args, int slot, oracle_tensor *out);
void oracle_infer_qk(const copes_op *op, const oracle_args *args, int slot, oracle_tensor *out);
void oracle_infer_merge(const copes_op *op, const oracle_args *args, int slot, oracle_tensor *out);

/* The larger; NaN where either is. */
static inline real oracle_larger(real a, real b)
{
    return a > b || a != a ? a : b;
}

#endif
