/* Workers of a region take every task once, in whatever order they come, and then none. */
#include "backends/openmp/team.h"
#include "tests/suite.h"

enum { WORKERS = 9, TASKS = 40 };

/* All by one worker, as if the others slept. */
static void expect_each_once(int workers, int64_t tasks)
{
    atomic_llong next = 0;
    const copes_worker worker = {.index = workers - 1, .count = workers, .next = &next};
    int taken[TASKS] = {0};
    for (int64_t i = 0; i < tasks; i++) {
        const int64_t task = copes_next_task(&worker, tasks);
        ck_assert(task >= 0 && task < tasks);
        taken[task]++;
    }
    for (int64_t i = 0; i < tasks; i++)
        ck_assert_int_eq(taken[i], 1);
    for (int i = 0; i < 2 * WORKERS; i++)
        ck_assert_int_eq(copes_next_task(&worker, tasks), tasks);
}

START_TEST(each_is_taken_once)
{
    for (int workers = 1; workers <= WORKERS; workers++)
        for (int64_t tasks = 0; tasks <= TASKS; tasks++)
            expect_each_once(workers, tasks);
}
END_TEST

/* Two that are taken at the same time lie in the shares of two workers. */
START_TEST(neighbours_are_not_taken_together)
{
    atomic_llong next = 0;
    const copes_worker worker = {.count = 2, .next = &next};
    for (int64_t i = 0; i < TASKS / 2; i++) {
        ck_assert_int_eq(copes_next_task(&worker, TASKS), i);
        ck_assert_int_eq(copes_next_task(&worker, TASKS), TASKS / 2 + i);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tasks");
    TCase *tests = tcase_create("tasks");
    tcase_add_test(tests, each_is_taken_once);
    tcase_add_test(tests, neighbours_are_not_taken_together);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
