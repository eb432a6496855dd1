/* All cases of a family on the CPU, at every instruction-set level that the machine has and with 1, 2 and 7 threads. */
#ifndef COPES_TESTS_SWEEP_H
#define COPES_TESTS_SWEEP_H

#include <stdint.h>

/* Runs the table, then `cases` random ones from `seed` on, and prints what fails and a table of errors. Returns the
 * number of failures: results past the bounds, or other bits with another number of threads. */
int64_t sweep(const char *family, uint64_t seed, int64_t cases);

#endif
