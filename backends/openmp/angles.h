/* Positions of tokens, and rows of sines and cosines that are made of them, for a token's heads or a head's tokens. */
#ifndef COPES_BACKENDS_OPENMP_ANGLES_H
#define COPES_BACKENDS_OPENMP_ANGLES_H

#include "backends/openmp/rows.h"
#include "backends/openmp/vmath_table.h"
#include "common/phase.h"
#include "common/problem.h"
#include "common/size.h"

/* A rotation may be made of two: by a multiple of SPAN positions near it, its anchor, and by the distance from there. It then depends on
 * the position alone, wherever a thread's tokens begin. */
enum { SPAN = 16 };

/* Are they? They are for 16-bit results of tokens along a line, if it is long enough to pay for what each distance needs. Theta's
 * gradient and delta are float32 results, which are held to more. */
static inline bool by_anchors(const copes_lrpe_problem *problem)
{
    const bool narrow =
        !FULL_WIDTH && problem->grad_theta.data == NULL && !(problem->backward && problem->passes == COPES_FIRST_PASS);
    return narrow && problem->grid_rank == 1 && problem->length >= 2 * SPAN;
}

/* Are lrpe's rotations products of the two? They are where tokens are counted. Elsewhere the two phases are added, which is exact. */
static inline bool by_products(const copes_lrpe_problem *problem)
{
    return by_anchors(problem) && problem->counted;
}

/* Turns per position of `heads` heads from `first` on, or of one for all where theta has one row, and rows of sines and
 * cosines that are made of them. Rows are `stride` long: K rounded up to whole pairs of vectors. Sines and cosines stand
 * in the order of the features that they turn: split as load_split has them, or plain for interleaved pairs, whose evens
 * and odds share an angle. A head has a row of steps, or one for each dimension where angles are sums over them. For products
 * a row for each head of its anchor follows, and then one for each head of the distances 1, 2 .. SPAN / 2. For sums of phases there
 * are rows of phases instead, in the order of sines and cosines: of each head's anchor, and of the distances 0, 1 .. SPAN - 1. */
typedef struct angles {
    int64_t first, heads, sets, rows, count, stride;
    bool split;
    phase_word *high; /* turns per position: a phase's unit, and the 32 bits below it */
    uint32_t *low;
    int32_t *whole; /* for float32 positions: the turns that are whole */
    phase_word *phase;
    int64_t *anchor;  /* the multiple of SPAN that each head's rotation or phases are of; else NULL */
    phase_word *near; /* for sums: phases of anchors and distances; else NULL */
    real *cosine, *sine;
    sincos_table table; /* of rotations that are `amplitude` long */
    real amplitude;
    bool finite; /* no theta of these heads is inf or NaN */
    bool small;  /* none has 2^30 turns per position */
} angles;

/* Rows of phases, one for each head, whose sums are the angles of a token. */
typedef struct phase_sums {
    const phase_word *anchor, *distance; /* NULL: there are none */
} phase_sums;

/* Rows of steps that a head has. */
static inline int64_t step_sets(const copes_lrpe_problem *problem)
{
    return problem->mixed ? problem->grid_rank : 1;
}

/* All rows of sines and cosines: `rows`, and those that products are made of. */
static inline int64_t all_rows(int64_t heads, int64_t rows, bool products)
{
    return rows + (products ? heads * (1 + SPAN / 2) : 0);
}

/* Rows of phases that sums are made of. */
static inline int64_t near_rows(const copes_lrpe_problem *problem, int64_t heads, bool products)
{
    return by_anchors(problem) && !products ? heads * (1 + SPAN) : 0;
}

/* The bytes that the arrays take; -1 as common/size.h has it. */
static inline int64_t angles_bytes(const copes_lrpe_problem *problem, int64_t heads, int64_t rows, bool products)
{
    const int64_t step = (int64_t)(sizeof(phase_word) + sizeof(uint32_t) + sizeof(int32_t));
    const int64_t angle = all_rows(heads, rows, products) * (int64_t)(2 * sizeof(real)) +
                          heads * step_sets(problem) * step +
                          (heads + near_rows(problem, heads, products)) * (int64_t)sizeof(phase_word);
    const int64_t anchors = by_anchors(problem) ? whole_pairs(heads) * (int64_t)sizeof(int64_t) : 0;
    return copes_add(copes_multiply(whole_pairs(problem->k), angle), anchors);
}

/* A token's position in a dimension: an integer, and what a float32 has beside it. */
typedef struct token_position {
    int64_t whole;
    float real; /* 0 where it is an integer that `whole` has taken in */
} token_position;

/* An integer and a float32, whose sum is one integer where it is one of 64 bits for sure. */
static inline token_position sum_position(int64_t whole, float number)
{
    const int64_t limit = INT64_C(1) << 62;
    if (fabsf(number) < 0x1p62f && truncf(number) == number && whole < limit && whole >= -limit)
        return (token_position){whole + (int64_t)number, 0};
    return (token_position){whole, number};
}

/* What the tensor of positions has for a token. */
static inline const char *position_data(const copes_lrpe_problem *problem, int64_t b, int64_t token, int j)
{
    const copes_view *view = &problem->positions;
    const int64_t at = j * view->stride[0] + b * view->stride[1] + token * view->stride[2];
    return (const char *)view->data + at * copes_dtype_size(problem->positions_dtype);
}

/* The sum of a place on a grid and what a tensor has there. */
static inline token_position position_at(const copes_lrpe_problem *problem, int64_t b, int64_t token, int j,
                                         int64_t place)
{
    const char *const at = position_data(problem, b, token, j);
    int64_t whole;
    int32_t narrow;
    float number;
    switch (problem->positions_dtype) {
    case COPES_I64: memcpy(&whole, at, sizeof whole); break;
    case COPES_I32:
        memcpy(&narrow, at, sizeof narrow);
        whole = narrow;
        break;
    default: memcpy(&number, at, sizeof number); return sum_position(place, number);
    }
    return (token_position){(int64_t)((uint64_t)whole + (uint64_t)place), 0};
}

/* Does a thread finish its tokens of a batch entry before it begins the next? Where several heads share a theta it does: memory is
 * then read and written in order, and the time to make angles again hides behind memory's. Where each head has a theta of its own,
 * angles take longer than memory, and batch entries share them. */
static inline bool entry_by_entry(const copes_lrpe_problem *problem)
{
    return problem->theta.stride[0] == 0 && problem->h > 1;
}

/* Does a batch entry have positions of its own? */
static inline bool entries_have_positions(const copes_lrpe_problem *problem)
{
    return problem->positions.data != NULL && problem->positions.stride[1] != 0;
}

/* Have tokens first .. end - 1 the same positions in `entries` batch entries from b on? */
static inline bool positions_agree(const copes_lrpe_problem *problem, int64_t b, int64_t entries, int64_t first,
                                   int64_t end)
{
    const size_t size = (size_t)copes_dtype_size(problem->positions_dtype);
    bool agree = true;
    for (int64_t entry = b + 1; entry < b + entries && entries_have_positions(problem); entry++)
        for (int j = 0; j < problem->grid_rank; j++)
            for (int64_t n = first; n < end && agree; n++)
                agree = memcmp(position_data(problem, b, n, j), position_data(problem, entry, n, j), size) == 0;
    return agree;
}

/* Positions of a token in all dimensions; false for one of the prefix or suffix. */
static inline bool find_positions(const copes_lrpe_problem *problem, int64_t b, int64_t token,
                                  token_position position[COPES_MAX_GRID])
{
    int64_t rest = token - problem->prefix;
    if (rest < 0 || rest >= problem->length)
        return false;
    for (int j = problem->grid_rank - 1; j >= 0; j--) {
        const bool divides = problem->counted && j > 0; /* dimension 0 has what the others leave */
        const int64_t here = divides ? rest % problem->grid[j] : rest;
        const int64_t place = problem->offset[j] + (problem->counted ? here : 0);
        position[j] =
            problem->positions.data != NULL ? position_at(problem, b, token, j, place) : (token_position){place, 0};
        rest = divides ? rest / problem->grid[j] : rest;
    }
    return true;
}

/* As a number, for the gradient of theta. */
static inline double position_value(token_position position)
{
    return (double)position.whole + (double)position.real;
}

/* Makes `length` rotations, from row `row` on. */
static ALWAYS_INLINE void add_phases(const angles *a, phase_sums sums, int64_t length, int64_t row)
{
    real *cosine = a->cosine + row * a->stride, *sine = a->sine + row * a->stride;
    const sincos_table table = a->table;
    for (int64_t i = 0; i < length; i += LANES) {
        const sincos turned = vsincos_of_table(table, load_phase(sums.anchor + i) + load_phase(sums.distance + i));
        store_real(cosine + i, turned.cosine);
        store_real(sine + i, turned.sine);
    }
}

/* angles_tmpl.c. Lays the arrays out in `memory`, of angles_bytes, and finds the turns per position of `heads` heads from `first`
 * on. */
void TEMPLATE(angles_open)(angles *a, const copes_lrpe_problem *problem, int64_t first, int64_t heads, int64_t rows,
                           bool products, void *memory);

/* Makes `count` rows from `row` on: the sines and cosines of a token, 0 .. N - 1, of a batch entry, for as many heads from
 * `head` on. Of products and sums all calls for a head must have the same count, as the anchors of all its rows are made at once. */
void TEMPLATE(angles_make)(const angles *a, const copes_lrpe_problem *problem, int64_t b, int64_t token, int64_t head,
                           int64_t count, int64_t row);

/* What angles_make would add up for these rows; nothing where it would make them in another way. */
phase_sums TEMPLATE(angles_sums)(const angles *a, const copes_lrpe_problem *problem, int64_t b, int64_t token,
                                 int64_t head, int64_t count);

#endif
