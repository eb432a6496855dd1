/* What the two halves of lrpe in common/ share. */
#ifndef COPES_COMMON_LRPE_H
#define COPES_COMMON_LRPE_H

#include "common/family.h"

/* What theta may be, as messages say it. */
#define COPES_THETA_TYPES "float32, float16 or bfloat16, for the phase is exact for theta's float32 value"

/* And positions. */
#define COPES_POSITION_TYPES "int32, int64 or float32"

/* The attributes of positions and angles, which every family that turns features has in its own struct. */
#define COPES_ROTATION_ATTRIBUTES(family)                                                                              \
    COPES_ATTRIBUTE("grid", COPES_ATTRIBUTE_INT64, COPES_MAX_GRID, 0, offsetof(copes_op, family.grid),                 \
                    offsetof(copes_op, family.grid_rank), NULL, "N - prefix - suffix",                                 \
                    "lengths of the position grid, the last one fastest"),                                             \
        COPES_ATTRIBUTE("offset", COPES_ATTRIBUTE_INT64, COPES_MAX_GRID, 0, offsetof(copes_op, family.offset), -1,     \
                        NULL, "0", "added to positions in each dimension: the position of a grid's first token"),      \
        COPES_ATTRIBUTE("prefix", COPES_ATTRIBUTE_INT64, 1, 0, offsetof(copes_op, family.prefix), -1, NULL, "0",       \
                        "tokens before the grid, which are not turned"),                                               \
        COPES_ATTRIBUTE("suffix", COPES_ATTRIBUTE_INT64, 1, 0, offsetof(copes_op, family.suffix), -1, NULL, "0",       \
                        "tokens after the grid, which are not turned"),                                                \
        COPES_ATTRIBUTE("sections", COPES_ATTRIBUTE_INT64, COPES_MAX_GRID, 0, offsetof(copes_op, family.sections), -1, \
                        NULL, "none", "angles of each grid dimension, summing to K"),                                  \
        COPES_ATTRIBUTE("rotary_dim", COPES_ATTRIBUTE_INT64, 1, 0, offsetof(copes_op, family.rotary_dim), -1, NULL,    \
                        "D - rotary_begin", "rotate: features that turn"),                                             \
        COPES_ATTRIBUTE("rotary_begin", COPES_ATTRIBUTE_INT64, 1, 0, offsetof(copes_op, family.rotary_begin), -1,      \
                        NULL, "0", "rotate: the first feature that turns"),                                            \
        COPES_ATTRIBUTE("amplitude", COPES_ATTRIBUTE_DOUBLE, 1, 0, offsetof(copes_op, family.amplitude), -1, NULL,     \
                        "1", "factor of features that turn"),                                                          \
        COPES_ATTRIBUTE("inverse", COPES_ATTRIBUTE_BOOL, 1, 0, offsetof(copes_op, family.inverse), -1, NULL, "0",      \
                        "turn by the opposite angles"),                                                                \
        COPES_ATTRIBUTE("pad_theta", COPES_ATTRIBUTE_BOOL, 1, 0, offsetof(copes_op, family.pad_theta), -1, NULL, "0",  \
                        "take a theta of fewer than K angles: those past E are 0")

/* Checks attributes and inputs, and reads the sizes off them into call->lrpe. */
copes_status copes_lrpe_read(copes_call *call);

/* lrpe_positions.c: where the tokens are, and how many angles turn with which dimension. */
copes_status copes_lrpe_check_positions(const copes_call *call, copes_lrpe_shape *shape);
copes_status copes_lrpe_check_theta(const copes_call *call, copes_lrpe_shape *shape);

/* lrpe_plan.c: the canonical problem of a checked call. */
void copes_lrpe_plan(const copes_call *call, copes_lrpe_problem *problem);

/* What lse and delta must be: a number for each column of the sequence. */
copes_spec copes_lrpe_columns(const copes_call *call);

/* The softmax that the attributes ask for; COPES_NO_SOFTMAX also for an axis that lrpe does not take. */
copes_softmax_axis copes_lrpe_softmax_axis(const copes_lrpe_attributes *attributes);

#endif
