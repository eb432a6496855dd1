/* attention_merge: the table of cases and random ones, at every instruction-set level and with 1, 2 and 7 threads. */
#include "tests/suite.h"
#include "tests/sweep.h"

START_TEST(attention_merge_within_bounds)
{
    ck_assert_int_eq(sweep("attention_merge", 1, 200), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("merge");
    TCase *tests = tcase_create("cases");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, attention_merge_within_bounds);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
