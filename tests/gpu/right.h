/* Cases of the check's tables, run through a context and compared with the oracle. */
#ifndef COPES_TESTS_GPU_RIGHT_H
#define COPES_TESTS_GPU_RIGHT_H

#include "tests/harness/run.h"

/* Some cases of a family, others for each turn, and one of those that many blocks share, whose reference takes seconds.
 * What fails ends the test; `where` is told then. */
void expect_right(const check_family *family, copes_context *context, int turn, const char *where);

#endif
