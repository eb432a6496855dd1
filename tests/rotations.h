/* The CPU backend's sines and cosines of tokens as plain functions, one for each instruction-set level and 16-bit type, so that a test
 * can hold them to their bound. */
#ifndef COPES_TESTS_ROTATIONS_H
#define COPES_TESTS_ROTATIONS_H

#include "common/problem.h"

/* Rows of K cosines and sines, in the order of the angles, of `count` tokens of head 0 in the order in which `tokens` has them. */
typedef void rotations_of(const copes_lrpe_problem *problem, const int64_t *tokens, int64_t count, float *cosine,
                          float *sine);

rotations_of copes_rotations_baseline_f16, copes_rotations_baseline_bf16, copes_rotations_avx2_f16,
    copes_rotations_avx2_bf16, copes_rotations_avx512_f16, copes_rotations_avx512_bf16, copes_rotations_sve256_f16,
    copes_rotations_sve256_bf16;

#endif
