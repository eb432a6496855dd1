/* common/phase.h against the oracle's angles, which test_oracle_phase.c holds to big integers: every function's phase is within
 * 2^-60 turn, or, where it has 32 bits, 2^-31. */
#include "common/phase.h"

#include "tests/harness/random.h"
#include "tests/oracle/oracle.h"
#include "tests/suite.h"

#include <float.h>
#include <math.h>

static const long double two_pi = 6.283185307179586476925286766559005768L;

static const int64_t edges[] = {0,
                                1,
                                -1,
                                2,
                                1000003,
                                INT32_MAX,
                                -(int64_t)INT32_MAX,
                                INT32_MIN,
                                INT64_C(1) << 31,
                                -(INT64_C(1) << 31) - 1,
                                (INT64_C(1) << 53) + 1,
                                -(INT64_C(1) << 62),
                                INT64_MAX,
                                INT64_MIN};
static const float floats[] = {0,          1,        -0.5F,    0x1.921fb6p+1F, 1e-4F,           0x1p-149F,
                               -0x1p-127F, FLT_MIN,  -FLT_MIN, 0x1.fffffep-1F, 0x1p23F,         0x1.fffffep62F,
                               -0x1p63F,   0x1p127F, FLT_MAX,  -FLT_MAX,       0x1.fffffep-125F};
enum { EDGES = sizeof edges / sizeof *edges, FLOATS = sizeof floats / sizeof *floats, RANDOM = 200000 };

static long double turns_between(uint64_t phase, long double angle)
{
    const long double error = fabsl(ldexpl((long double)phase, -64) - angle / two_pi);
    return fabsl(error - rintl(error));
}

static void expect_integer(int64_t p, float theta)
{
    const long double angle = oracle_angle(p, theta);
    long double error = turns_between(copes_phase_exactly(p, theta), angle);
    ck_assert_msg(error < 0x1p-60L, "exactly: p %lld, theta %a: %Lg turn", (long long)p, (double)theta, error);
    if (p < -INT32_MAX || p > INT32_MAX)
        return;
    const copes_step step = copes_phase_step(theta);
    error = turns_between(copes_phase(step, p), angle);
    ck_assert_msg(error < 0x1p-60L, "p %lld, theta %a: %Lg turn", (long long)p, (double)theta, error);
    const uint32_t top = copes_phase_top((uint32_t)(step.high >> 32), (uint32_t)step.high, (int32_t)p);
    error = turns_between((uint64_t)top << 32, angle);
    ck_assert_msg(error < 0x1p-31L, "top: p %lld, theta %a: %Lg turn", (long long)p, (double)theta, error);
}

static void expect_product(float p, float theta)
{
    const long double error = turns_between(copes_phase_product(p, theta), oracle_angle_of_float(p, theta));
    ck_assert_msg(error < 0x1p-60L, "product: p %a, theta %a: %Lg turn", (double)p, (double)theta, error);
}

/* Of any size: as many of each number of bits. */
static int64_t any_integer(uint64_t *state)
{
    const int shift = (int)check_below(state, 64);
    return (int64_t)check_random(state) >> shift;
}

START_TEST(edges_agree)
{
    for (int j = 0; j < FLOATS; j++) {
        for (int i = 0; i < EDGES; i++)
            expect_integer(edges[i], floats[j]);
        for (int i = 0; i < FLOATS; i++)
            expect_product(floats[i], floats[j]);
    }
}
END_TEST

START_TEST(every_exponent_agrees)
{
    for (int exponent = -149; exponent < 128; exponent++)
        for (int other = -149; other < 128; other++) {
            expect_product(ldexpf(1.7F, exponent), -ldexpf(1.9999999F, other));
            expect_integer(INT64_MAX >> (other + 149) % 63, ldexpf(1.3F, exponent));
        }
}
END_TEST

START_TEST(random_ones_agree)
{
    uint64_t state = 1;
    for (int i = 0; i < RANDOM; i++) {
        expect_integer(any_integer(&state), check_random_float(&state));
        expect_integer(any_integer(&state), (float)(8 * check_uniform(&state) - 4));
        expect_product(check_random_float(&state), check_random_float(&state));
        expect_product((float)(2e5 * check_uniform(&state) - 1e5), (float)(8 * check_uniform(&state) - 4));
    }
}
END_TEST

START_TEST(poison_shows_what_is_not_finite)
{
    for (int i = 0; i < FLOATS; i++)
        ck_assert(copes_phase_poison(floats[i]) == 0);
    ck_assert(isnan(copes_phase_poison(INFINITY)) && isnan(copes_phase_poison(-INFINITY)));
    ck_assert(isnan(copes_phase_poison(NAN)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("phase");
    TCase *tests = tcase_create("phase");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, edges_agree);
    tcase_add_test(tests, every_exponent_agrees);
    tcase_add_test(tests, random_ones_agree);
    tcase_add_test(tests, poison_shows_what_is_not_finite);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
