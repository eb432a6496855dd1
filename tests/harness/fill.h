/* Values for the tensors of a case. */
#ifndef COPES_TESTS_HARNESS_FILL_H
#define COPES_TESTS_HARNESS_FILL_H

#include "tests/harness/case.h"
#include "tests/oracle/oracle.h"

/* Fills a tensor with numbers of the type; along the axes whose bit is in `repeats` all entries are the same. */
void check_fill_values(oracle_tensor *tensor, check_type type, check_fill fill, unsigned repeats, uint64_t *state);
void check_fill_angles(oracle_tensor *theta, check_type type, check_angles angles, unsigned repeats, uint64_t *state);

void check_fill_positions(oracle_tensor *tensor, check_type type, check_positions positions, unsigned repeats,
                          uint64_t *state);

/* Finite numbers of the type by their bits, whose sizes are spread evenly. */
void check_fill_finite(oracle_tensor *tensor, check_type type, uint64_t *state);

/* Cache lengths from below 0 to past M, the ends of int32 among them. */
void check_fill_lengths(oracle_tensor *lengths, int64_t m, uint64_t *state);

#endif
