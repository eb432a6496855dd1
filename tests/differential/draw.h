/* Cases by chance: small ones of every operator, with every attribute, and lengths beside those of vectors. */
#ifndef COPES_TESTS_DIFFERENTIAL_DRAW_H
#define COPES_TESTS_DIFFERENTIAL_DRAW_H

#include "tests/harness/case.h"

/* The case of a seed; `room` is about the most elements that a tensor should have, 0: drawn. */
check_case draw_case(uint64_t seed);
check_case draw_case_of(uint64_t seed, int64_t room);

/* What the operators' files fill in. */
void draw_act(check_case *c, int64_t room, uint64_t *state);
void draw_lrpe(check_case *c, int64_t room, uint64_t *state);
void draw_merge(check_case *c, int64_t room, uint64_t *state);
void draw_qk(check_case *c, int64_t room, uint64_t *state);
void draw_attention(check_case *c, int64_t room, uint64_t *state);
void draw_attention_fill(check_case *c, uint64_t *state); /* what the values are, once it is known which repeat */

/* True once in so many times. */
bool draw_chance(uint64_t *state, int64_t one_in);

/* From 1 to `most`, often beside a power of two. */
int64_t draw_length(uint64_t *state, int64_t most);

/* From `least` to `most`. */
int64_t draw_between(uint64_t *state, int64_t least, int64_t most);

#endif
