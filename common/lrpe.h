/* What the two halves of lrpe in common/ share. */
#ifndef COPES_COMMON_LRPE_H
#define COPES_COMMON_LRPE_H

#include "common/family.h"

/* What theta may be, as messages say it. */
#define COPES_THETA_TYPES "float32, float16 or bfloat16, for the phase is exact for theta's float32 value"

/* Checks attributes and inputs, and reads the sizes off them into call->lrpe. */
copes_status copes_lrpe_read(copes_call *call);

/* The softmax that the attributes ask for; COPES_NO_SOFTMAX also for an axis that lrpe does not take. */
copes_softmax_axis copes_lrpe_softmax_axis(const copes_lrpe_attributes *attributes);

#endif
