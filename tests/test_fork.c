/* After a fork, a child's calls give the parent's bits, though the parent's threads are not there: on the contexts that
 * the child has from the parent and on new ones, from the main thread and from another, and in a child's child. */
#include "tests/small_calls.h"
#include "tests/suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, SECONDS = 120 /* until a child is taken to wait for threads that are not there */ };

static const DLDevice cpu = {kDLCPU, 0};
static const DLDataType type = {kDLFloat, 32, 1};
static small_tensors wanted[2], made;

static copes_context *open_context(void)
{
    const copes_context_options options = {.threads = THREADS};
    copes_context *context = NULL;
    return copes_context_create(cpu, &options, &context) == COPES_OK ? context : NULL;
}

static const small_call *call_of(int i)
{
    return &small_calls[i == 0 ? 0 : small_call_count - 1];
}

static bool gives_wanted(copes_context *context)
{
    for (int i = 0; i < 2; i++) {
        small_call_fill(call_of(i), type, &made);
        if (context == NULL || !small_call_run(call_of(i), context, &made) || !small_call_same(&made, &wanted[i]))
            return false;
    }
    return true;
}

/* Exits with 0 where all is well, here and in a child of its own. */
static void be_child(copes_context *parents)
{
    signal(SIGALRM, SIG_DFL); /* Check's own handler would end this process's group */
    alarm(SECONDS);
    copes_context *own = open_context();
    bool well = gives_wanted(own) && gives_wanted(parents);
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        _exit(!gives_wanted(own));
    }
    well = well && child > 0 && waitpid(child, &status, 0) == child && status == 0;
    copes_context_destroy(own);
    copes_context_destroy(parents);
    _exit(!well);
}

/* Returns what waitpid says of the child, 0 where all is well with it and with the parent. */
static int run_and_fork(void)
{
    copes_context *context = open_context();
    if (!gives_wanted(context))
        return -1;
    const pid_t child = fork();
    if (child == 0)
        be_child(context);
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || !gives_wanted(context))
        status = -1;
    copes_context_destroy(context);
    return status;
}

static void *run_and_fork_in_thread(void *status)
{
    *(int *)status = run_and_fork();
    return NULL;
}

static void setup(void)
{
    copes_context *context = open_context();
    ck_assert_ptr_nonnull(context);
    for (int i = 0; i < 2; i++) {
        small_call_fill(call_of(i), type, &wanted[i]);
        ck_assert_msg(small_call_run(call_of(i), context, &wanted[i]), "%s", copes_last_error());
    }
    copes_context_destroy(context);
}

START_TEST(child_of_main_thread)
{
    ck_assert_int_eq(run_and_fork(), 0);
}
END_TEST

START_TEST(child_of_another_thread)
{
    pthread_t thread;
    int status = -1;
    ck_assert_int_eq(pthread_create(&thread, NULL, run_and_fork_in_thread, &status), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fork");
    TCase *tests = tcase_create("children");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, setup, NULL);
    tcase_add_test(tests, child_of_main_thread);
    tcase_add_test(tests, child_of_another_thread);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
