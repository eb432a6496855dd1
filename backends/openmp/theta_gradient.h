/* The gradient of theta: sums over tokens of a position times the derivative by an angle. The sums are of doubles. They are made
 * in chunks of the tokens that hang on the problem alone, and are added in one order, so that their bits do not depend on the
 * threads. */
#ifndef COPES_BACKENDS_OPENMP_THETA_GRADIENT_H
#define COPES_BACKENDS_OPENMP_THETA_GRADIENT_H

#include "backends/openmp/encode.h"

/* Sums (chunks, H, sets, K); a set is a dimension where each has a theta of its own, else all dimensions share one. */
typedef struct theta_sums {
    double *at; /* NULL: nobody asks for them */
    int64_t chunks, heads, sets, k;
} theta_sums;

/* Without memory yet. */
static inline theta_sums theta_sums_of(const copes_lrpe_problem *problem, int64_t chunks)
{
    return (theta_sums){NULL, chunks, problem->h, step_sets(problem), problem->k};
}

static inline int64_t theta_sums_bytes(const theta_sums *sums)
{
    const int64_t rows = copes_multiply(copes_multiply(sums->chunks, sums->heads), sums->sets);
    return copes_multiply(copes_multiply(rows, sums->k), sizeof(double));
}

static inline double *theta_sums_at(const theta_sums *sums, int64_t chunk, int64_t head, int64_t set)
{
    return sums->at + ((chunk * sums->heads + head) * sums->sets + set) * sums->k;
}

static inline void theta_sums_clear(const theta_sums *sums, int64_t chunk, int64_t head)
{
    memset(theta_sums_at(sums, chunk, head, 0), 0, (size_t)(sums->sets * sums->k) * sizeof(double));
}

/* A row of the backward: the activation's value y and its gradient g, as reals, and the gradient of the result. */
typedef struct learned_row {
    const real *y, *g;
    const storage *grad_o;
    const real *cosine, *sine; /* the amplitude in them */
} learned_row;

/* The derivative by angle i. */
static inline double angle_derivative(const copes_lrpe_problem *problem, const row_layout *layout,
                                      const learned_row *row, int64_t i)
{
    if (problem->variant == COPES_LRPE_COSINE) {
        const int64_t at = split_place(i);
        const double along = load_scalar(row->grad_o + i), across = load_scalar(row->grad_o + problem->d + i);
        return (double)row->y[at] * (across * (double)row->cosine[at] - along * (double)row->sine[at]);
    }
    const bool half = problem->pairing == COPES_LRPE_HALF;
    const int64_t a = layout->at[1] + split_place(half ? i : 2 * i);
    const int64_t b = half ? layout->at[2] + split_place(i) : layout->at[1] + split_place(2 * i + 1);
    return (double)row->g[b] * (double)row->y[a] - (double)row->g[a] * (double)row->y[b];
}

/* Adds a row of token (b, n) to the sums of a head. */
static void theta_sums_add(const theta_sums *sums, const copes_lrpe_problem *problem, const row_layout *layout,
                           const learned_row *row, int64_t chunk, int64_t b, int64_t n, int64_t head)
{
    token_position position[COPES_MAX_GRID] = {{0, 0}};
    if (!find_positions(problem, b, n, position))
        return;
    for (int j = 0; j < problem->grid_rank; j++) {
        const double factor = problem->theta_sign * position_value(position[j]);
        double *const sum = theta_sums_at(sums, chunk, head, problem->mixed ? j : 0);
        for (int64_t i = problem->segment[j].begin; i < problem->segment[j].end; i++)
            sum[i] += factor * angle_derivative(problem, layout, row, i);
    }
}

/* All sums of one angle, over the heads first .. first + count - 1. */
static inline double angle_sum(const theta_sums *sums, int64_t first, int64_t count, int64_t set, int64_t i)
{
    double sum = 0;
    for (int64_t head = first; head < first + count; head++)
        for (int64_t chunk = 0; chunk < sums->chunks; chunk++)
            sum += theta_sums_at(sums, chunk, head, set)[i];
    return sum;
}

/* Column e of theta, whose angles turn with dimensions first .. end - 1. */
static double column_sum(const theta_sums *sums, const copes_lrpe_problem *problem, int64_t head, int64_t heads,
                         int first, int end, int64_t e)
{
    const int64_t set = problem->mixed ? first : 0;
    double sum = 0;
    for (int j = first; j < end; j++) {
        const copes_segment *segment = &problem->segment[j];
        const int64_t i = segment->begin + e - segment->theta_begin;
        if (problem->grad_theta.stride[1] == 0) /* one for all of them */
            for (int64_t all = segment->begin; all < segment->end; all++)
                sum += angle_sum(sums, head, heads, set, all);
        else if (i >= segment->begin && i < segment->end)
            sum += angle_sum(sums, head, heads, set, i);
    }
    return sum;
}

/* Adds everything up. A column that turns nothing has a gradient of 0. */
static void theta_sums_finish(const theta_sums *sums, const copes_lrpe_problem *problem)
{
    const copes_view *view = &problem->grad_theta;
    const bool shared = view->stride[0] == 0;
    for (int64_t row = 0; row < (shared ? 1 : problem->h); row++)
        for (int set = 0; set < (int)sums->sets; set++)
            for (int64_t e = 0; e < problem->e; e++) {
                real *const to =
                    (real *)view->data + row * view->stride[0] + e * view->stride[1] + set * view->stride[2];
                const real sum = (real)column_sum(sums, problem, row, shared ? problem->h : 1, set,
                                                  problem->mixed ? set + 1 : problem->grid_rank, e);
                memcpy((void *)to, &sum, sizeof sum); /* of any alignment */
            }
}

#endif
