/* Sketches of lrpe's cases: what a case is before it has a variant, an activation, a type and a direction. */
#ifndef COPES_TESTS_HARNESS_SKETCH_LRPE_H
#define COPES_TESTS_HARNESS_SKETCH_LRPE_H

#include "tests/harness/case.h"

enum { FAR = INT32_MAX }; /* the largest position */

typedef struct sketch {
    int rank; /* of x; 0: 4 */
    int64_t b, h, d;
    int grid_rank; /* 0: only grid[0], as the length that is left */
    int64_t grid[COPES_MAX_GRID], offset[COPES_MAX_GRID];
    int64_t prefix, suffix, rotary_dim;
    bool interleaved, sections, shared; /* shared: theta has one row */
    int64_t width;                      /* of theta; 0: K; -m: the least that a grid of m dimensions takes */
    bool pad;                           /* with a width of 1: pad_theta, which other widths below K take anyway */
    check_type theta_type;
    check_angles angles;
    check_layout in, out;
    bool mixed, in_place, lse, large;
    check_fill fill;
    int position_rank, dimensions; /* positions in place of the grid, of which grid[0] is N */
    check_type position_type;
    check_positions positions;
    bool offsets, each; /* each: a theta for each dimension */
    bool only_last;     /* with sections: the last dimension has all angles */
    bool inverse, learns;
    double amplitude;
    int64_t rotary_begin;
} sketch;

/* A case of no activation, type and direction yet; and a random sketch. */
check_case check_draw_sketch(const sketch *s, copes_lrpe_variant variant);
sketch check_random_sketch(uint64_t *state);

typedef struct sketch_table {
    const sketch *at;
    size_t count;
} sketch_table;

/* Each is explained where it stands, in sketches_lrpe.c. */
extern const sketch_table sketches_on_grids, sketches_in_shares, sketches_with_positions, sketches_long,
    sketches_longest, sketches_shared_by_many, sketches_of_many_rows, sketches_learned, sketches_of_any_sharing;

#endif
