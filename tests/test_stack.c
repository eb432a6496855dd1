/* Threads with little stack: the cases on a thread of 32 or 40 KiB to 8 MiB whose guard no frame can step over, with OpenMP's
 * threads of the same size, at every instruction-set level and with 1, 2 and 7 of them. OMP_STACKSIZE, in KiB, says the
 * size, since OpenMP reads it before main. */
#include "tests/suite.h"
#include "tests/sweep.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static const size_t guard = (size_t)1 << 20;
static const char *const families[] = {"act",        "lrpe_rotate",  "lrpe_cosine",
                                       "tpa_decode", "qk_norm_rope", "attention_merge"};

typedef struct errand {
    const char *family;
    int64_t failed;
} errand;

static void *sweep_family(void *argument)
{
    errand *of = argument;
    of->failed = sweep(of->family, 1, 100);
    return NULL;
}

START_TEST(threads_with_little_stack)
{
    const char *size = getenv("OMP_STACKSIZE");
    ck_assert_msg(size != NULL, "OMP_STACKSIZE is not set; it must be the KiB of a thread's stack");
    const long least = sysconf(_SC_THREAD_STACK_MIN), bytes = atol(size) << 10;
    errand of = {.family = families[_i], .failed = -1};
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    ck_assert_int_eq(pthread_attr_setstacksize(&attributes, (size_t)(bytes > least ? bytes : least)), 0);
    ck_assert_int_eq(pthread_attr_setguardsize(&attributes, guard), 0);
    ck_assert_int_eq(pthread_create(&thread, &attributes, sweep_family, &of), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    ck_assert_int_eq(of.failed, 0);
}
END_TEST

int main(void)
{
    setenv("COPES_TEST_EVERY", "8", 0); /* all of them run elsewhere */
    Suite *suite = suite_create("stack");
    TCase *tests = tcase_create("sizes");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, threads_with_little_stack, 0, sizeof families / sizeof families[0]);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
