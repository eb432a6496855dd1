/* copes_explain and copes_variants: what a call says of itself, before it runs. */
#include "tests/small_calls.h"
#include "tests/suite.h"

#include <stdlib.h>
#include <string.h>

static const DLDevice cpu = {kDLCPU, 0};

static small_tensors tensors;

static copes_status explain(copes_context *context, const copes_op *op, char *text, size_t size)
{
    return copes_explain(context, op, &tensors.args, text, size);
}

static copes_context *open_cpu(void)
{
    copes_context *context;
    ck_assert_int_eq(copes_context_create(cpu, NULL, &context), COPES_OK);
    return context;
}

/* Is the variant that the text's first line names on the list? */
static int is_listed(const char *text)
{
    const size_t count = copes_variants(kDLCPU, NULL, 0);
    const char **names = calloc(count, sizeof *names);
    int found = 0;
    ck_assert_uint_eq(copes_variants(kDLCPU, names, count), count);
    ck_assert_int_eq(strncmp(text, "variant: ", 9), 0);
    for (size_t i = 0; i < count; i++)
        found += strlen(names[i]) == strcspn(text + 9, "\n") && strncmp(names[i], text + 9, strlen(names[i])) == 0;
    free(names);
    return found == 1;
}

START_TEST(every_call_names_a_variant)
{
    copes_context *context = open_cpu();
    static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 64, 1}};
    for (int i = 0; i < small_call_count; i++)
        for (int type = 0; type < 4; type++) {
            char text[512];
            small_call_fill(&small_calls[i], types[type], &tensors);
            ck_assert_int_eq(explain(context, &small_calls[i].op, text, sizeof text), COPES_OK);
            ck_assert_msg(is_listed(text), "%s: %s", small_calls[i].name, text);
            ck_assert_ptr_nonnull(strstr(text, "\nworkspace: "));
        }
    copes_context_destroy(context);
}
END_TEST

START_TEST(text_is_cut)
{
    copes_context *context = open_cpu();
    char whole[512], text[16];
    small_call_fill(&small_calls[0], (DLDataType){kDLFloat, 32, 1}, &tensors);
    ck_assert_int_eq(explain(context, &small_calls[0].op, whole, sizeof whole), COPES_OK);
    memset(text, 'x', sizeof text);
    ck_assert_int_eq(explain(context, &small_calls[0].op, text, 8), COPES_OK);
    ck_assert_uint_eq(strlen(text), 7);
    ck_assert_int_eq(strncmp(text, whole, 7), 0);
    ck_assert_int_eq(text[8], 'x');
    copes_context_destroy(context);
}
END_TEST

START_TEST(refusals)
{
    copes_context *context = open_cpu();
    const copes_op *op = &small_calls[0].op;
    char text[64] = "kept";
    small_call_fill(&small_calls[0], (DLDataType){kDLFloat, 32, 1}, &tensors);
    ck_assert_int_eq(explain(context, op, NULL, 9), COPES_ERROR_NULL);
    ck_assert_str_eq(copes_last_error(), "text is NULL or has no room; it must take some lines");
    ck_assert_int_eq(explain(context, op, text, 0), COPES_ERROR_NULL);
    ck_assert_int_eq(explain(NULL, op, text, sizeof text), COPES_ERROR_NULL);
    ck_assert_int_eq(explain(context, NULL, text, sizeof text), COPES_ERROR_NULL);
    ck_assert_str_eq(text, "kept");
    ck_assert_uint_eq(copes_variants(kDLMetal, NULL, 0), 0);
    copes_context_destroy(context);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("explain");
    tcase_add_test(tests, every_call_names_a_variant);
    tcase_add_test(tests, text_is_cut);
    tcase_add_test(tests, refusals);
    Suite *suite = suite_create("explain");
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
