/* Runs one Check suite as a program of its own, which is what `meson test` starts. */
#ifndef COPES_TESTS_SUITE_H
#define COPES_TESTS_SUITE_H

#include <check.h>

/* The exit status: 0 where every test passed. In this process: one that is forked off runs everything on one thread. */
static inline int suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
