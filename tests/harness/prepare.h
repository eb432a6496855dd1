/* What the files that make a case's tensors share. A problem that is only described gets no values. */
#ifndef COPES_TESTS_HARNESS_PREPARE_H
#define COPES_TESTS_HARNESS_PREPARE_H

#include "tests/harness/run.h"

/* An input slot with room for its values; NULL where memory ran out. */
oracle_tensor *check_add_input(check_problem *p, int slot, check_type type, int rank, const int64_t *shape);

/* The others return 0, or -1 where memory ran out. */
int check_fill_input(check_problem *p, int slot, check_type type, int rank, const int64_t *shape, check_fill fill,
                     uint64_t *state);

/* theta of this slot, and in the two next ones positions or offsets, where the case has them. */
int check_fill_rotation(check_problem *p, int theta_slot, uint64_t *state);

/* An output of the oracle's shape. */
int check_add_output(check_problem *p, int slot, check_type type);

/* One that exists before the call, with values of any kind. */
int check_add_updated(check_problem *p, int slot, check_type type, int rank, const int64_t *shape, uint64_t *state);

/* prepare_NAME.c: all of a family's inputs, and of qk_norm_rope and attention_merge the outputs. */
int check_prepare_merge(check_problem *p, uint64_t *state);
int check_prepare_qk(check_problem *p, uint64_t *state);
int check_prepare_tpa(check_problem *p, uint64_t *state);

#endif
