/* lrpe_rotate and lrpe_cosine: the table of cases and random ones, at every instruction-set level and with 1, 2 and 7
 * threads. */
#include "tests/suite.h"
#include "tests/sweep.h"

START_TEST(lrpe_rotate_within_bounds)
{
    ck_assert_int_eq(sweep("lrpe_rotate", 1, 100), 0);
}
END_TEST

START_TEST(lrpe_cosine_within_bounds)
{
    ck_assert_int_eq(sweep("lrpe_cosine", 1, 100), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lrpe");
    TCase *tests = tcase_create("cases");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, lrpe_rotate_within_bounds);
    tcase_add_test(tests, lrpe_cosine_within_bounds);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
