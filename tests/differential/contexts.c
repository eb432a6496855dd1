/* The contexts of a trial, one for each level and number of threads. */
#include "tests/differential/trial.h"

#include <stdio.h>

const int32_t trial_teams[TRIAL_TEAMS] = {1, 2, 3, 7};

static bool open_one(trial_contexts *contexts, int level, int team)
{
    if (open_level(level_names[level], trial_teams[team], &contexts->at[level][team]))
        return true;
    printf("FAILED: copes_context_create at %s: %s\n", level_names[level], copes_last_error());
    return false;
}

bool trial_open(trial_contexts *contexts)
{
    bool good = true;
    *contexts = (trial_contexts){.at = {{NULL}}};
    for (int level = 0; level < LEVELS; level++)
        for (int team = 0; team < TRIAL_TEAMS; team++)
            good = good && open_one(contexts, level, team);
    return good;
}

void trial_close(trial_contexts *contexts)
{
    for (int level = 0; level < LEVELS; level++)
        for (int team = 0; team < TRIAL_TEAMS; team++)
            copes_context_destroy(contexts->at[level][team]);
}
