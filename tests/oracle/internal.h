/* Shared by the oracle's files: the activations and their gradients on arrays in extended precision. */
#ifndef COPES_TESTS_ORACLE_INTERNAL_H
#define COPES_TESTS_ORACLE_INTERNAL_H

#include "tests/oracle/oracle.h"

typedef long double real;

/* A value with the sizes that its error is judged by. */
typedef struct oracle_number {
    real value, term, turn;
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

/* A size as it is stored: finite where it is. */
double oracle_size(real size);

void oracle_store(const oracle_number *numbers, oracle_tensor *out);

int oracle_run_act(const copes_op *op, const oracle_args *args);
int oracle_run_lrpe(const copes_op *op, const oracle_args *args);
int oracle_run_tpa(const copes_op *op, const oracle_args *args);

void oracle_infer_lrpe(const copes_op *op, const oracle_args *args, int slot, oracle_tensor *out);
void oracle_infer_tpa(const oracle_args *args, int slot, oracle_tensor *out);

/* The larger; NaN where either is. */
static inline real oracle_larger(real a, real b)
{
    return a > b || a != a ? a : b;
}

#endif
