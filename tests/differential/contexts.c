/* The contexts of a trial, one for each level and number of threads. */
#include "tests/differential/trial.h"

#include <stdio.h>
#include <stdlib.h>

const char *const trial_levels[TRIAL_LEVELS] = {"baseline", "avx2", "avx512", "avx512bf16"};
const int32_t trial_teams[TRIAL_TEAMS] = {1, 2, 3, 7};

static bool open_one(trial_contexts *contexts, int level, int team)
{
    const copes_context_options options = {.threads = trial_teams[team]};
    const copes_status status = copes_context_create((DLDevice){kDLCPU, 0}, &options, &contexts->at[level][team]);
    if (status == COPES_OK || (level > 0 && status == COPES_ERROR_ATTRIBUTE)) /* the processor lacks the level */
        return true;
    printf("FAILED: copes_context_create at %s: %s\n", trial_levels[level], copes_last_error());
    return false;
}

bool trial_open(trial_contexts *contexts)
{
    bool good = true;
    *contexts = (trial_contexts){.at = {{NULL}}};
    for (int level = 0; level < TRIAL_LEVELS; level++) {
        setenv("COPES_CPU_ISA", trial_levels[level], 1);
        for (int team = 0; team < TRIAL_TEAMS; team++)
            good = good && open_one(contexts, level, team);
    }
    unsetenv("COPES_CPU_ISA");
    return good;
}

void trial_close(trial_contexts *contexts)
{
    for (int level = 0; level < TRIAL_LEVELS; level++)
        for (int team = 0; team < TRIAL_TEAMS; team++)
            copes_context_destroy(contexts->at[level][team]);
}
