/* What the two halves of lrpe in common/ share: the sizes read off a call. */
#ifndef COPES_COMMON_LRPE_H
#define COPES_COMMON_LRPE_H

#include "common/family.h"

/* What theta may be, as messages say it. */
#define COPES_THETA_TYPES "float32, float16 or bfloat16, for the phase is exact for theta's float32 value"

typedef struct copes_lrpe_shape {
    int rank;           /* of x: 3 or 4 */
    int64_t b, n, h, d; /* of x */
    int64_t k, e;       /* angles of a head; features of theta */
    int64_t length;     /* tokens in the grid */
    int grid_rank;      /* at least 1 */
    int64_t grid[COPES_MAX_GRID];
    bool sectioned;
} copes_lrpe_shape;

/* Checks attributes and inputs, and reads the sizes off them. */
copes_status copes_lrpe_read(copes_call *call, copes_lrpe_shape *shape);

/* The softmax that the attributes ask for; COPES_NO_SOFTMAX also for an axis that lrpe does not take. */
copes_softmax_axis copes_lrpe_softmax_axis(const copes_lrpe_attributes *attributes);

#endif
