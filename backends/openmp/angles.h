/* Sines and cosines of angles, for a token's heads or a head's tokens: exact phases in integers, then polynomials. The
 * turns per position are found once a thread; each token then costs a multiplication and two polynomials an angle,
 * shared by every batch entry, and by every head where theta has one row. */
#ifndef COPES_BACKENDS_OPENMP_ANGLES_H
#define COPES_BACKENDS_OPENMP_ANGLES_H

#include "backends/openmp/rows.h"
#include "common/half.h"
#include "common/phase.h"
#include "common/problem.h"
#include "common/size.h"

/* Turns per position of `heads` heads from `first` on, or of one for all where theta has one row, and rows of sines and
 * cosines that are made of them. Rows are `stride` long: K rounded up to whole pairs of vectors. Sines and cosines stand
 * in the order of the features that they turn: split as load_split has them, or plain for interleaved pairs, whose evens
 * and odds share an angle. */
typedef struct angles {
    int64_t first, heads, rows, count, stride;
    bool split;
    phase_word *high; /* turns per position: a phase's unit, and the 32 bits below it */
    uint32_t *low;
    phase_word *phase;
    real *cosine, *sine;
    bool finite; /* no theta of these heads is inf or NaN */
} angles;

/* The bytes that the arrays take; -1 as common/size.h has it. */
static inline int64_t angles_bytes(int64_t heads, int64_t rows, int64_t k)
{
    return copes_multiply(whole_pairs(k), rows * (int64_t)(2 * sizeof(real)) +
                                              heads * (int64_t)(2 * sizeof(phase_word) + sizeof(uint32_t)));
}

static inline float theta_at(const copes_lrpe_problem *problem, int64_t head, int64_t e)
{
    const int64_t at = head * problem->theta.stride[0] + e * problem->theta.stride[1];
    const char *base = problem->theta.data;
    return copes_load_narrow(problem->theta_dtype, base + at * copes_dtype_size(problem->theta_dtype));
}

static inline void angles_set_step(angles *a, int64_t at, float theta)
{
    const copes_step step = copes_phase_step(theta);
#ifdef COPES_TYPE_F64
    a->high[at] = step.high;
    a->low[at] = step.low;
#else
    a->high[at] = (uint32_t)(step.high >> 32);
    a->low[at] = (uint32_t)step.high;
#endif
    a->finite = a->finite && isfinite(theta);
}

/* Lays the arrays out in `memory`, of angles_bytes, and finds the turns per position of `heads` heads from `first` on. */
static void angles_open(angles *a, const copes_lrpe_problem *problem, int64_t first, int64_t heads, int64_t rows,
                        void *memory)
{
    const int64_t stride = whole_pairs(problem->k);
    *a = (angles){.first = first, .heads = heads, .rows = rows, .count = problem->k, .stride = stride, .finite = true};
    a->split = problem->variant == COPES_LRPE_COSINE || problem->pairing == COPES_LRPE_HALF;
    a->cosine = memory;
    a->sine = a->cosine + rows * stride;
    a->high = (phase_word *)(a->sine + rows * stride);
    a->phase = a->high + heads * stride;
    a->low = (uint32_t *)(a->phase + heads * stride);
    memset(a->high, 0, (size_t)(heads * stride) * (2 * sizeof(phase_word) + sizeof(uint32_t)));
    for (int64_t head = 0; head < heads; head++)
        for (int j = 0; j < problem->grid_rank; j++) {
            const copes_segment *segment = &problem->segment[j];
            for (int64_t i = segment->begin; i < segment->end; i++)
                angles_set_step(a, head * stride + i,
                                theta_at(problem, first + head, segment->theta_begin + i - segment->begin));
        }
}

/* phase = p step, for the angles begin .. end - 1 of all heads' rows. */
static inline void angles_multiply(const angles *a, int64_t begin, int64_t end, int64_t p)
{
    const phase_word *high = a->high, factor = (phase_word)p;
    const uint32_t *low = a->low;
    phase_word *phase = a->phase;
#ifdef COPES_TYPE_F64
    for (int64_t i = begin; i < end; i++)
        phase[i] = factor * high[i] + (uint64_t)(p * (int64_t)low[i] >> 32);
#else
    const uint32_t borrow = p < 0 ? UINT32_MAX : 0; /* the factor is p + 2^32 then */
    for (int64_t i = begin; i < end; i++)
        phase[i] = factor * high[i] + (uint32_t)((uint64_t)factor * low[i] >> 32) - (low[i] & borrow);
#endif
}

/* Where theta is not finite nothing is known of the angle. */
static void angles_poison(const angles *a, const copes_lrpe_problem *problem, int64_t head, int64_t row)
{
    for (int j = 0; j < problem->grid_rank; j++) {
        const copes_segment *segment = &problem->segment[j];
        for (int64_t i = segment->begin; i < segment->end; i++)
            if (!isfinite(theta_at(problem, a->first + head, segment->theta_begin + i - segment->begin))) {
                const int64_t at = row * a->stride + (a->split ? split_place(i) : i);
                a->cosine[at] = a->sine[at] = NAN;
            }
    }
}

/* Positions of a token in the dimensions of the grid; false for one of the prefix or suffix. */
static inline bool find_positions(const copes_lrpe_problem *problem, int64_t token, int64_t position[COPES_MAX_GRID])
{
    int64_t rest = token - problem->prefix;
    if (rest < 0 || rest >= problem->length)
        return false;
    for (int j = problem->grid_rank - 1; j >= 0; j--) {
        position[j] = problem->offset[j] + rest % problem->grid[j];
        rest /= problem->grid[j];
    }
    return true;
}

/* Makes `count` rows from `row` on: the sines and cosines of a token, 0 .. N - 1, for as many heads from `head` on. */
static void angles_make(const angles *a, const copes_lrpe_problem *problem, int64_t token, int64_t head, int64_t count,
                        int64_t row)
{
    const int64_t from = head * a->stride, to = row * a->stride, length = count * a->stride;
    int64_t position[COPES_MAX_GRID];
    if (!find_positions(problem, token, position)) {
        for (int64_t i = 0; i < length; i += LANES) {
            store_real(a->cosine + to + i, vset(1));
            store_real(a->sine + to + i, vset(0));
        }
        return;
    }
    if (problem->grid_rank == 1) /* all rows at once: an angle past the segment has a step of 0 */
        angles_multiply(a, from, from + length, position[0]);
    for (int64_t i = 0; i < count && problem->grid_rank > 1; i++)
        for (int j = 0; j < problem->grid_rank; j++)
            angles_multiply(a, from + i * a->stride + problem->segment[j].begin,
                            from + i * a->stride + problem->segment[j].end, position[j]);
    for (int64_t i = 0; i < length; i += PAIR) {
        const sincos low = vsincos(load_phase(a->phase + from + i)),
                     high = vsincos(load_phase(a->phase + from + i + LANES));
        const vpair cosine = {low.cosine, high.cosine}, sine = {low.sine, high.sine};
        store_real_pair(a->cosine + to + i, a->split ? split_of(cosine) : cosine);
        store_real_pair(a->sine + to + i, a->split ? split_of(sine) : sine);
    }
    for (int64_t i = 0; i < count && !a->finite; i++)
        angles_poison(a, problem, head + i, row + i);
}

#endif
