/* COPES_TEST_EVERY=N in the environment: sanitizers and emulators run one case, or random try, in N. */
#ifndef COPES_TESTS_EVERY_H
#define COPES_TESTS_EVERY_H

#include <stdlib.h>

/* N; 1 where all of them run. */
static inline int tests_every(void)
{
    const char *text = getenv("COPES_TEST_EVERY");
    const int every = text == NULL ? 1 : atoi(text);
    return every > 1 ? every : 1;
}

#endif
