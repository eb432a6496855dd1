/* The oracle's angle reduction against one by big integers: pi by Machin's formula, and p theta modulo 2 pi by long
 * division, bit by bit. Positions are integers of 64 bits, or float32 numbers. */
#include "tests/harness/random.h"
#include "tests/oracle/oracle.h"
#include "tests/suite.h"

#include <float.h>
#include <math.h>
#include <stdint.h>

#define BOUND 2e-18L /* radians: 2^-61 turn */

enum { LIMBS = 14, FRACTION = 32 * (LIMBS - 1) }; /* one limb before the point, little end first */

typedef struct number {
    uint32_t limb[LIMBS];
} number;

static number add(number a, number b)
{
    uint64_t carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        carry += (uint64_t)a.limb[i] + b.limb[i];
        a.limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return a;
}

static number subtract(number a, number b)
{
    int64_t borrow = 0;
    for (int i = 0; i < LIMBS; i++) {
        borrow += (int64_t)a.limb[i] - b.limb[i];
        a.limb[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    return a;
}

static number divide(number a, uint32_t by)
{
    uint64_t rest = 0;
    for (int i = LIMBS - 1; i >= 0; i--) {
        rest = rest << 32 | a.limb[i];
        a.limb[i] = (uint32_t)(rest / by);
        rest %= by;
    }
    return a;
}

static int less(number a, number b)
{
    for (int i = LIMBS - 1; i >= 0; i--) {
        if (a.limb[i] != b.limb[i]) {
            return a.limb[i] < b.limb[i];
        }
    }
    return 0;
}

static number arctangent_of_inverse(uint32_t x)
{
    number power = {{0}}, sum = {{0}}, zero = {{0}};
    power.limb[LIMBS - 1] = 1;
    power = divide(power, x);
    for (uint32_t k = 1; less(zero, power); k += 2) {
        sum = k % 4 == 1 ? add(sum, divide(power, k)) : subtract(sum, divide(power, k));
        power = divide(divide(power, x), x);
    }
    return sum;
}

static number two_pi(void)
{
    number a = arctangent_of_inverse(5), b = arctangent_of_inverse(239);
    a = add(a, a);
    number pi_quarter = subtract(add(a, a), b), half = add(pi_quarter, pi_quarter), pi = add(half, half);
    return add(pi, pi);
}

static long double to_long_double(number a)
{
    long double sum = 0;
    for (int i = 0; i < LIMBS; i++) {
        sum += ldexpl((long double)a.limb[i], 32 * i - FRACTION);
    }
    return sum;
}

__extension__ typedef unsigned __int128 wide;

/* magnitude 2^exponent modulo 2 pi, from -pi to pi. */
static long double reduce(wide magnitude, int exponent, number turn)
{
    const int shift = exponent + FRACTION;
    number rest = {{0}};
    for (int i = 127 + shift; i >= 0; i--) {
        rest = add(rest, rest);
        rest.limb[0] |= i >= shift ? (uint32_t)(magnitude >> (i - shift) & 1) : 0;
        if (!less(rest, turn)) {
            rest = subtract(rest, turn);
        }
    }
    int past_half = less(turn, add(rest, rest));
    return past_half ? -to_long_double(subtract(turn, rest)) : to_long_double(rest);
}

/* The magnitude of a value as an integer of 24 bits times 2^exponent. */
static uint64_t magnitude_of(float value, int *exponent)
{
    const double part = frexp(fabs((double)value), exponent);
    *exponent -= 24;
    return (uint64_t)ldexp(part, 24);
}

/* p theta modulo 2 pi, from -pi to pi. */
static long double reference_angle(int64_t p, float theta, number turn)
{
    int exponent;
    const uint64_t integer = magnitude_of(theta, &exponent), size = p < 0 ? 0 - (uint64_t)p : (uint64_t)p;
    const long double angle = reduce((wide)integer * size, exponent, turn);
    return (p < 0) != (theta < 0) ? -angle : angle;
}

static long double reference_angle_of_float(float p, float theta, number turn)
{
    int exponent, more;
    const uint64_t integer = magnitude_of(theta, &exponent), size = magnitude_of(p, &more);
    const long double angle = reduce((wide)integer * size, exponent + more, turn);
    return (p < 0) != (theta < 0) ? -angle : angle;
}

static uint64_t random_bits(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 32;
}

static long double between(long double angle, long double wanted, number turn)
{
    const long double error = fabsl(angle - wanted);
    return fminl(error, fabsl(error - to_long_double(turn)));
}

static void expect_angle(int64_t p, float theta, number turn)
{
    const long double error = between(oracle_angle(p, theta), reference_angle(p, theta, turn), turn);
    ck_assert_msg(error < BOUND, "p %lld theta %a: off by %Lg rad", (long long)p, (double)theta, error);
}

static void expect_angle_of_float(float p, float theta, number turn)
{
    const long double error = between(oracle_angle_of_float(p, theta), reference_angle_of_float(p, theta, turn), turn);
    ck_assert_msg(error < BOUND, "p %a theta %a: off by %Lg rad", (double)p, (double)theta, error);
}

START_TEST(known_digits_of_pi)
{
    number turn = two_pi();
    ck_assert_uint_eq(turn.limb[LIMBS - 1], 6);
    ck_assert_uint_eq(turn.limb[LIMBS - 2], 0x487ed511U); /* 2 pi is 6.487ed511 0b4611a6 in base 16 */
    ck_assert_uint_eq(turn.limb[LIMBS - 3], 0x0b4611a6U);
}
END_TEST

START_TEST(angles_at_any_position)
{
    number turn = two_pi();
    uint64_t state = 1;
    static const int64_t edges[] = {0,
                                    1,
                                    -1,
                                    2,
                                    32767,
                                    1000003,
                                    INT32_MAX,
                                    -(int64_t)INT32_MAX,
                                    1 << 30,
                                    INT64_C(1) << 31,
                                    -(INT64_C(1) << 31) - 1,
                                    (INT64_C(1) << 53) + 1,
                                    INT64_C(1) << 62,
                                    INT64_MAX,
                                    -INT64_MAX,
                                    INT64_MIN};
    static const float thetas[] = {1.0F,    0x1.921fb6p+1F, 0x1.921fb4p+2F, 1e-4F,    -0.1F,
                                   FLT_MAX, FLT_MIN,        0x1p-149F,      0x1p127F, 0x1.fffffep-1F};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        for (size_t j = 0; j < sizeof thetas / sizeof *thetas; j++) {
            expect_angle(edges[i], thetas[j], turn);
        }
    }
    for (int i = 0; i < 4000; i++) {
        int64_t p = (int64_t)(random_bits(&state) >> 1 >> random_bits(&state) % 31);
        float theta =
            ldexpf(1 + (float)(random_bits(&state) & 0x7fffff) * 0x1p-23F, (int)(random_bits(&state) % 60) - 40);
        expect_angle(random_bits(&state) & 1 ? p : -p, i % 3 == 0 ? -theta : theta, turn);
        expect_angle((int64_t)(random_bits(&state) << 32 | random_bits(&state)), check_random_float(&state), turn);
    }
    for (int exponent = -149; exponent < 128; exponent++) {
        expect_angle(INT32_MAX, ldexpf(1.999F, exponent), turn);
        expect_angle(INT64_MAX, ldexpf(1.999F, exponent), turn);
    }
}
END_TEST

START_TEST(angles_at_float_positions)
{
    number turn = two_pi();
    uint64_t state = 2;
    static const float edges[] = {0,       1,       -0.5F,    0x1p-149F,     -0x1.fffffep-127F,
                                  FLT_MIN, FLT_MAX, -FLT_MAX, 0x1.fffffep62F};
    const size_t count = sizeof edges / sizeof *edges;
    for (size_t i = 0; i < count * count; i++) {
        expect_angle_of_float(edges[i / count], edges[i % count], turn);
    }
    for (int i = 0; i < 4000; i++) {
        expect_angle_of_float(check_random_float(&state), check_random_float(&state), turn);
        expect_angle_of_float((float)random_bits(&state) * 0x1p-16F, (float)random_bits(&state) * 0x1p-32F, turn);
    }
}
END_TEST

START_TEST(small_angles_are_the_product)
{
    ck_assert(oracle_angle(3, 0.1F) == 3 * (long double)0.1F);
    ck_assert(oracle_angle(-7, 0x1p-140F) == -0x7p-140L);
    ck_assert(oracle_angle(0, 5.0F) == 0);
    ck_assert(isnan(oracle_angle(1, INFINITY)) && isnan(oracle_angle(0, NAN)));
    ck_assert(oracle_angle_of_float(-0.25F, 0.75F) == -0.1875L);
    ck_assert(oracle_angle_of_float(0x1p-149F, 0x1p-149F) == 0x1p-298L);
    ck_assert(isnan(oracle_angle_of_float(INFINITY, 0)) && isnan(oracle_angle_of_float(NAN, 1)));
    ck_assert(isnan(oracle_angle_of_float(0, NAN)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oracle phase");
    TCase *tests = tcase_create("phase");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, known_digits_of_pi);
    tcase_add_test(tests, angles_at_any_position);
    tcase_add_test(tests, angles_at_float_positions);
    tcase_add_test(tests, small_angles_are_the_product);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
