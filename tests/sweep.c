/* The sweep: the oracle is asked once for a batch of cases, then every context runs the batch. */
#include "tests/sweep.h"

#include "tests/every.h"
#include "tests/harness/report.h"
#include "tests/levels.h"

#include <stdlib.h>
#include <string.h>

enum { TEAMS = 3, BATCH = 64, HUGE_CASE = 1 << 19 };

static const int32_t teams[TEAMS] = {1, 2, 7};
static const DLDevice cpu = {kDLCPU, 0};

typedef struct plan {
    copes_context *contexts[LEVELS][TEAMS]; /* NULL where the processor lacks the level */
    check_report report[LEVELS];
    int64_t failed;
} plan;

static void open_contexts(plan *p)
{
    for (int level = 0; level < LEVELS; level++) {
        for (int team = 0; team < TEAMS; team++) {
            if (!open_level(level_names[level], teams[team], &p->contexts[level][team])) {
                printf("FAILED copes_context_create at %s: %s\n", level_names[level], copes_last_error());
                p->failed++;
            }
        }
    }
}

/* One context of the level on the whole batch; with the first team the bits are noted, with the others compared. */
static void run_batch(plan *p, int level, int team, check_problem *problems, size_t count, uint64_t *hashes)
{
    for (size_t i = 0; i < count; i++) {
        check_result result = check_execute(&problems[i], p->contexts[level][team], cpu);
        if (team == 0) {
            hashes[i] = result.hash;
            check_report_add(&p->report[level], &problems[i].c, &result, stdout);
        } else if (result.failed || result.hash != hashes[i]) {
            char text[CHECK_CASE_TEXT];
            printf("FAILED at %s with %d threads: %s: %s\n", level_names[level], (int)teams[team],
                   check_case_text(&problems[i].c, text), result.failed ? result.message : "other bits");
            p->failed++;
        }
    }
}

static void sweep_batch(plan *p, const check_case *cases, size_t count)
{
    check_problem *problems = calloc(count, sizeof *problems);
    uint64_t hashes[BATCH];
    for (size_t i = 0; i < count && problems != NULL; i++) {
        p->failed += check_prepare(&problems[i], &cases[i]) != 0;
    }
    for (int level = 0; level < LEVELS && problems != NULL; level++) {
        for (int team = 0; team < TEAMS && p->contexts[level][team] != NULL; team++) {
            run_batch(p, level, team, problems, count, hashes);
        }
    }
    for (size_t i = 0; i < count && problems != NULL; i++) {
        check_problem_free(&problems[i]);
    }
    p->failed += problems == NULL;
    free(problems);
}

static int64_t element_count(const check_case *c)
{
    int64_t count = 1;
    for (int i = 0; i < c->rank; i++) {
        count *= c->shape[i];
    }
    return count;
}

/* One case in tests_every(), and then no huge ones: they are for rare roundings, and smaller ones are shared between
 * threads, too. None that are for GPUs. */
static void thin_out(case_list *list)
{
    const size_t step = (size_t)tests_every();
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i += step) {
        if (!list->cases[i].large && (step == 1 || element_count(&list->cases[i]) < HUGE_CASE)) {
            list->cases[kept++] = list->cases[i];
        }
    }
    list->count = kept;
}

static void list_cases(case_list *list, const char *family, uint64_t seed, int64_t cases)
{
    for (size_t f = 0; f < check_family_count; f++) {
        if (strcmp(check_families[f].name, family) == 0) {
            check_families[f].table(list);
            for (int64_t i = 0; i < cases; i++) {
                check_case random = check_families[f].random(seed + (uint64_t)i);
                case_list_add(list, &random);
            }
        }
    }
}

static int64_t close_and_count(plan *p)
{
    int64_t failed = p->failed;
    for (int level = 0; level < LEVELS; level++) {
        if (p->contexts[level][0] != NULL) {
            printf("level %s\n", level_names[level]);
            check_report_print(&p->report[level], false, stdout);
        }
        failed += p->report[level].failed;
        for (int team = 0; team < TEAMS; team++) {
            copes_context_destroy(p->contexts[level][team]);
        }
    }
    return failed;
}

int64_t sweep(const char *family, uint64_t seed, int64_t cases)
{
    case_list list = {.cases = NULL};
    plan *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return 1;
    }
    open_contexts(p);
    list_cases(&list, family, seed, cases);
    thin_out(&list);
    p->failed += list.count == 0;
    for (size_t i = 0; i < list.count; i += BATCH) {
        sweep_batch(p, list.cases + i, list.count - i < BATCH ? list.count - i : BATCH);
    }
    case_list_free(&list);
    int64_t failed = close_and_count(p);
    free(p);
    return failed;
}
