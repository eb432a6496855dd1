/* Gradients of sigmoid and silu in 16 bits, for every argument beside gradients of every size, on each device that is
 * there: how far off the arithmetic was, and whether that is within the bound. The rounding at the end hides nearly all of
 * it: only a result that is not the exact value's rounding shows that it was off, by no less than the distance to the number
 * where that rounding begins. The worst is printed. */
#include "memory/memory.h"
#include "tests/every.h"
#include "tests/harness/run.h"
#include "tests/suite.h"

#include <math.h>
#include <stdio.h>

static const check_type types[] = {CHECK_F16, CHECK_BF16};
static const copes_act acts[] = {COPES_ACT_SIGMOID, COPES_ACT_SILU};

/* The neighbour of a 16-bit number that is larger in magnitude, or smaller. */
static double neighbour(check_type type, double number, bool larger)
{
    uint16_t bits;
    check_encode(type, number, &bits);
    bits = (uint16_t)(larger ? bits + 1 : bits - 1);
    return check_decode(type, &bits);
}

/* The least that the arithmetic was off by, in ulps of float32 at the largest term. */
static double least_error(check_type type, double value, double term, double got)
{
    if (!isfinite(value) || isnan(got) || got == check_round(type, value))
        return 0;
    const bool below = fabs(got) < fabs(value);
    const double last = check_type_of(type)->most, inner = below ? got : neighbour(type, got, false);
    const double step = fabs(inner) == last ? check_ulp(type, last) : fabs(neighbour(type, inner, true) - inner);
    return fabs(fabs(inner) + step / 2 - fabs(value)) / check_ulp(CHECK_F32, term);
}

static check_case case_of(check_type type, copes_act act, uint64_t seed)
{
    check_case c = {.family = "act", .type = type, .rank = 2, .shape = {8, 1 << 16}, .seed = seed};
    c.op.kind = COPES_ACT_BACKWARD;
    c.op.act.act = act;
    c.fill = CHECK_EVERY;
    c.any_gradient = true;
    return c;
}

/* The worst of one case. */
static double worst_error(const check_case *c, copes_context *context, DLDevice device)
{
    check_problem problem;
    check_values got = {{NULL}};
    double worst = 0;
    ck_assert_int_eq(check_prepare(&problem, c), 0);
    const check_result result = check_execute_keeping(&problem, context, device, &got);
    ck_assert_msg(!result.failed, "%s", result.message);
    const oracle_tensor *wanted = problem.args.out[COPES_FIRST_OUT];
    for (int64_t i = 0; i < oracle_count(wanted); i++)
        worst = fmax(worst, least_error(c->type, wanted->value[i], wanted->term[i], got.out[COPES_FIRST_OUT][i]));
    check_values_free(&got);
    check_problem_free(&problem);
    return worst;
}

static void hold_slopes(copes_context *context, const char *name, DLDevice device)
{
    enum { SEEDS = 10 };
    for (int i = 0; i < 4; i++) {
        const check_type type = types[i / 2];
        double worst = 0;
        check_case c = case_of(type, acts[i % 2], 1);
        for (; c.seed <= SEEDS; c.seed += (uint64_t)tests_every())
            worst = fmax(worst, worst_error(&c, context, device));
        const double bound = check_bound_of(&c.op, NULL, COPES_FIRST_OUT, type, device).term_ulps;
        printf("%-4s %-4s %-7s off by %.3f ulp of float32 or more; the bound is %g\n", name, check_type_of(type)->name,
               acts[i % 2] == COPES_ACT_SILU ? "silu" : "sigmoid", worst, bound);
        ck_assert_msg(worst <= bound, "%s: %.3f ulp past a bound of %g", name, worst, bound);
    }
}

START_TEST(slopes_are_close_beside_every_gradient)
{
    for (size_t i = 0; i < copes_backend_count(); i++) {
        const copes_backend_info *backend = copes_backend_at(i);
        const DLDevice device = {backend->device_type, 0};
        copes_context *context;
        if (copes_device_count(backend->device_type) == 0 || device_memory_of(backend->device_type) == NULL)
            continue;
        ck_assert_msg(copes_context_create(device, NULL, &context) == COPES_OK, "%s", copes_last_error());
        hold_slopes(context, backend->name, device);
        copes_context_destroy(context);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slopes");
    TCase *tests = tcase_create("slopes");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, slopes_are_close_beside_every_gradient);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* a device does not live on in a child */
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
