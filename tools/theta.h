/* The theta that `copes run --theta-base` makes. */
#ifndef COPES_TOOLS_THETA_H
#define COPES_TOOLS_THETA_H

#include <copes/copes.h>

/* The angles that a row of theta needs, for a call whose tensors but theta are there; 0 where the library is to say what is
 * wrong with them. */
int64_t theta_angles(const copes_op_info *info, const copes_op *op, const copes_args *args);

/* theta_i = base^(-i/E) of so many angles, by malloc; NULL without memory. */
float *theta_make(int64_t angles, double base);

#endif
