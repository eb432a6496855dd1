/* 16 contexts on 16 threads at once, each with cases of its own: every one must get what it gets alone. */
#include "tests/harness/report.h"
#include "tests/suite.h"

#include <pthread.h>

enum { THREADS = 16, CASES = 24 };

typedef struct worker {
    pthread_t thread;
    int index;
    int failed;
    uint64_t hashes[CASES];
} worker;

/* Worker i's case j: neighbours share families, and cases differ. */
static check_case case_of(int index, int j)
{
    const check_family *family = &check_families[(size_t)(index + j) % check_family_count];
    return family->random(1000 + (uint64_t)index * CASES + (uint64_t)j);
}

static void *work(void *argument)
{
    worker *w = argument;
    DLDevice cpu = {kDLCPU, 0};
    copes_context_options options = {.threads = 1 + w->index % 3};
    copes_context *context;
    if (copes_context_create(cpu, &options, &context) != COPES_OK) {
        w->failed = 1;
        return NULL;
    }
    for (int j = 0; j < CASES; j++) {
        check_case c = case_of(w->index, j);
        check_result result = check_run(&c, context, cpu);
        if (result.failed) {
            char text[CHECK_CASE_TEXT];
            printf("FAILED %s: %s\n", check_case_text(&c, text), result.message);
        }
        w->failed += result.failed;
        w->hashes[j] = result.hash;
    }
    copes_context_destroy(context);
    return NULL;
}

/* The message of a failed call belongs to the thread that made it. */
static void *look_for_message(void *argument)
{
    int *quiet = argument;
    *quiet = copes_last_error()[0] == '\0';
    return NULL;
}

START_TEST(contexts_do_not_disturb_each_other)
{
    static worker together[THREADS], alone;
    for (int i = 0; i < THREADS; i++) {
        together[i].index = i;
        ck_assert_int_eq(pthread_create(&together[i].thread, NULL, work, &together[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(together[i].thread, NULL), 0);
        ck_assert_int_eq(together[i].failed, 0);
    }
    for (int i = 0; i < THREADS; i++) {
        alone = (worker){.index = i};
        work(&alone);
        for (int j = 0; j < CASES; j++) {
            ck_assert_msg(alone.hashes[j] == together[i].hashes[j], "other bits alone: context %d, case %d", i, j);
        }
    }
}
END_TEST

START_TEST(messages_stay_in_their_thread)
{
    pthread_t thread;
    int quiet = 0;
    ck_assert_int_eq(copes_infer(NULL, NULL), COPES_ERROR_NULL);
    ck_assert_int_ne(copes_last_error()[0], '\0');
    ck_assert_int_eq(pthread_create(&thread, NULL, look_for_message, &quiet), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(quiet, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("threads");
    TCase *tests = tcase_create("contexts");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, messages_stay_in_their_thread);
    tcase_add_test(tests, contexts_do_not_disturb_each_other);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
