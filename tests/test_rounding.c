/* Stores of f16 and bf16 round to nearest even, to the bit. Most results are known only to a few float32 ulp, which
 * hides ties; but a softmax's gradient for o = (a, 1) and grad_o = (b, 0) has the second element -a b, and float32
 * holds the product of two short numbers exactly. */
#include "tests/harness/buffer.h"
#include "tests/harness/random.h"
#include "tests/levels.h"
#include "tests/suite.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { COUNT = 100003 };

/* Significands of all kinds; exponents that make products from the subnormal numbers of the type to past its
 * largest. */
static void make_factors(check_type type, double *a, double *b)
{
    const check_type_info *info = check_type_of(type);
    const int low = info->exponent + info->digits - 2, high = type == CHECK_F16 ? 16 : 128;
    uint64_t state = 7;
    for (int i = 0; i < COUNT; i++) {
        const int both = low + (int)check_below(&state, high - low + 1), half = both / 2;
        a[i] = check_round(type, ldexp(1 + check_uniform(&state), half));
        b[i] = check_round(type, ldexp(1 + check_uniform(&state), both - half));
        b[i] = check_random(&state) & 1 ? b[i] : -b[i];
    }
}

/* Of (2, COUNT) elements, or their transpose: which way the softmax runs decides how a kernel walks. */
static void run_gradient(copes_context *context, check_type type, bool columns, const double *a, const double *b,
                         double *o)
{
    const DLDevice cpu = {kDLCPU, 0};
    const int64_t shape[] = {2, COUNT};
    const check_layout layout = columns ? CHECK_DENSE : CHECK_SWAPPED;
    double *values = calloc(2 * COUNT, sizeof *values);
    check_buffer saved, grad, out;
    uint64_t hash = 0;
    ck_assert_ptr_nonnull(values);
    ck_assert_int_eq(check_buffer_create(&saved, cpu, type, 2, shape, layout, 0), 0);
    ck_assert_int_eq(check_buffer_create(&grad, cpu, type, 2, shape, layout, 0), 0);
    ck_assert_int_eq(check_buffer_create(&out, cpu, type, 2, shape, layout, 0), 0);
    for (int i = 0; i < COUNT; i++) {
        values[i] = b[i];
    }
    ck_assert_int_eq(check_buffer_write(&grad, values), 0);
    for (int i = 0; i < COUNT; i++) {
        values[i] = a[i];
        values[COUNT + i] = 1;
    }
    ck_assert_int_eq(check_buffer_write(&saved, values), 0);
    const copes_op op = {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -2}};
    const copes_args args = {.act_backward = {.grad_o = &grad.tensor, .o = &saved.tensor, .grad_x = &out.tensor}};
    ck_assert_msg(copes_run(context, &op, &args, NULL, 0) == COPES_OK, "%s", copes_last_error());
    ck_assert_int_eq(check_buffer_read(&out, &hash), 0);
    check_buffer_values(&out, values);
    for (int i = 0; i < COUNT; i++) {
        o[i] = values[COUNT + i];
    }
    free(values);
    check_buffer_destroy(&saved);
    check_buffer_destroy(&grad);
    check_buffer_destroy(&out);
}

static void expect_rounded(check_type type, bool columns)
{
    static double a[COUNT], b[COUNT], o[COUNT];
    int ties = 0;
    make_factors(type, a, b);
    for (int level = 0; level < LEVELS; level++) {
        copes_context *context;
        ck_assert_msg(open_level(level_names[level], 0, &context), "%s", copes_last_error());
        if (context == NULL)
            continue;
        run_gradient(context, type, columns, a, b, o);
        copes_context_destroy(context);
        for (int i = 0; i < COUNT; i++) {
            const double exact = -a[i] * b[i], nearest = check_round(type, exact);
            ties += fabs(exact - nearest) == check_ulp(type, exact) / 2;
            ck_assert_msg(o[i] == nearest, "%s at %s: %a is stored as %a, not %a", check_type_of(type)->name,
                          level_names[level], exact, o[i], nearest);
        }
    }
    ck_assert_int_gt(ties, 20);
}

START_TEST(f16_to_nearest_even)
{
    expect_rounded(CHECK_F16, true);
    expect_rounded(CHECK_F16, false);
}
END_TEST

START_TEST(bf16_to_nearest_even)
{
    expect_rounded(CHECK_BF16, true);
    expect_rounded(CHECK_BF16, false);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rounding");
    TCase *tests = tcase_create("stores");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, f16_to_nearest_even);
    tcase_add_test(tests, bf16_to_nearest_even);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
