/* What the two halves of lrpe in common/ share. */
#ifndef COPES_COMMON_LRPE_H
#define COPES_COMMON_LRPE_H

#include "common/family.h"

/* What theta may be, as messages say it. */
#define COPES_THETA_TYPES "float32, float16 or bfloat16, for the phase is exact for theta's float32 value"

/* And positions. */
#define COPES_POSITION_TYPES "int32, int64 or float32"

/* Checks attributes and inputs, and reads the sizes off them into call->lrpe. */
copes_status copes_lrpe_read(copes_call *call);

/* lrpe_positions.c: where the tokens are, and how many angles turn with which dimension. */
copes_status copes_lrpe_check_positions(const copes_call *call, copes_lrpe_shape *shape);
copes_status copes_lrpe_check_theta(const copes_call *call, copes_lrpe_shape *shape);

/* The softmax that the attributes ask for; COPES_NO_SOFTMAX also for an axis that lrpe does not take. */
copes_softmax_axis copes_lrpe_softmax_axis(const copes_lrpe_attributes *attributes);

#endif
