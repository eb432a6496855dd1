/* A trial: one case, its answer from the oracle, and the library run on it in many arrangements of memory, at every
 * instruction-set level and by several numbers of threads. */
#ifndef COPES_TESTS_DIFFERENTIAL_TRIAL_H
#define COPES_TESTS_DIFFERENTIAL_TRIAL_H

#include "tests/differential/view.h"
#include "tests/harness/run.h"
#include "tests/levels.h"

enum { TRIAL_TEAMS = 4, TRIAL_FAMILIES = 6, TRIAL_RIGHT = 8 };

extern const int32_t trial_teams[TRIAL_TEAMS]; /* numbers of threads */

/* A context of each level that the processor has, and number of threads; the others are NULL. */
typedef struct trial_contexts {
    copes_context *at[LEVELS][TRIAL_TEAMS];
} trial_contexts;

/* False, with a message on stdout, where a context cannot be had. */
bool trial_open(trial_contexts *contexts);
void trial_close(trial_contexts *contexts);

/* Calls of copes_run by family, direction, level, type and team. */
typedef struct trial_counts {
    int64_t runs[TRIAL_FAMILIES][2][LEVELS][CHECK_TYPES][TRIAL_TEAMS];
    int64_t all, cases;
} trial_counts;

/* What is under way; plain data, so that another process can tell of it when this one has died. */
typedef struct trial {
    check_case c;
    check_problem problem;
    uint64_t seed;
    trial_counts counts;
    int arrangement, level, team;
    unsigned char poison;
    bool with_lse;
    bool drawn; /* the views are the arrangement's */
    view in[COPES_MAX_INPUTS], out[COPES_MAX_OUTPUTS];
    copes_args args;
    arena_window workspace;
    size_t workspace_bytes;
    unsigned char *dense[COPES_MAX_INPUTS];   /* the inputs' elements, row-major */
    unsigned char *before[COPES_MAX_OUTPUTS]; /* likewise, of outputs that are updated; NULL: of others */
    size_t bytes;                             /* of all outputs' elements, one output after the other */
    unsigned char *got, *first;        /* the outputs of this run, and of the first in this arrangement and level */
    unsigned char *right[TRIAL_RIGHT]; /* outputs that were found right */
    int rights;
    bool failed;
    char message[CHECK_MESSAGE];
} trial;

/* Runs the case of a seed; false where it failed: `message` says how. */
bool trial_run(trial *t, const trial_contexts *contexts, uint64_t seed);

#endif
