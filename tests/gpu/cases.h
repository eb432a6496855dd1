/* The test cases of test_gpu that have files of their own. */
#ifndef COPES_TESTS_GPU_CASES_H
#define COPES_TESTS_GPU_CASES_H

#include <check.h>

TCase *caller_tests(void);
TCase *large_tests(void);
TCase *part_tests(void);
TCase *refused_tests(void);

#endif
