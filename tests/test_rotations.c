/* Sines and cosines that the CPU makes for 16-bit results, by products of neighbours' or by sums of phases: their distance from the exact
 * ones, and that they depend on a position alone, at every level that is there. */
#include "tests/every.h"
#include "tests/harness/random.h"
#include "tests/levels.h"
#include "tests/oracle/oracle.h"
#include "tests/rotations.h"
#include "tests/suite.h"

#include <math.h>
#include <stdio.h>

enum { TOKENS = 80, ANGLES = 37, ROUNDS = 400, EDGES = 6 };

/* Of sine and cosine as a point of the plane, in units of 2^-24; docs/numerics.md derives the product's from the exact one's. */
static const double exact_bound = 1.75, bound = 5.75, amplitude_bound = 1;

typedef struct probe {
    const char *level, *type;
    rotations_of *rotations;
} probe;

static const probe probes[] = {
    {"baseline", "f16", copes_rotations_baseline_f16}, {"baseline", "bf16", copes_rotations_baseline_bf16},
#ifdef COPES_CPU_AVX2
    {"avx2", "f16", copes_rotations_avx2_f16},         {"avx2", "bf16", copes_rotations_avx2_bf16},
#endif
#ifdef COPES_CPU_AVX512
    {"avx512", "f16", copes_rotations_avx512_f16},     {"avx512", "bf16", copes_rotations_avx512_bf16},
#endif
#ifdef COPES_CPU_SVE256
    {"sve256", "f16", copes_rotations_sve256_f16},     {"sve256", "bf16", copes_rotations_sve256_bf16},
#endif
};
enum { PROBES = sizeof probes / sizeof probes[0] };

typedef struct line {
    float theta[ANGLES];
    int64_t tokens[TOKENS];
    float cosine[TOKENS * ANGLES], sine[TOKENS * ANGLES];
} line;

/* TOKENS tokens of one head on a line from `offset` on. */
static copes_lrpe_problem problem_of(line *l, int64_t offset, float amplitude)
{
    return (copes_lrpe_problem){.variant = COPES_LRPE_COSINE,
                                .theta_dtype = COPES_F32,
                                .b = 1,
                                .n = TOKENS,
                                .h = 1,
                                .d = ANGLES,
                                .e = ANGLES,
                                .k = ANGLES,
                                .amplitude = amplitude,
                                .amplitude_as_double = (double)amplitude,
                                .theta_sign = 1,
                                .counted = true,
                                .length = TOKENS,
                                .grid_rank = 1,
                                .grid = {TOKENS},
                                .offset = {offset},
                                .segment = {{0, ANGLES, 0}},
                                .theta = {.data = l->theta, .stride = {0, 1, 0}}};
}

static void draw_line(line *l, uint64_t *seed)
{
    for (int i = 0; i < ANGLES; i++)
        l->theta[i] = (float)ldexp(check_uniform(seed) - 0.5, 12 - (int)check_below(seed, 40));
    for (int i = 0; i < TOKENS; i++)
        l->tokens[i] = i;
}

/* Of any size, and at the ends of what 32 bits and 62 bits hold. */
static int64_t draw_offset(int round, uint64_t *seed)
{
    static const int64_t edges[] =
        {0, -40, INT32_MAX - 40, INT32_MIN - INT64_C(40), (INT64_C(1) << 62) - 40, -(INT64_C(1) << 62) - 40};
    if (round < (int)(sizeof edges / sizeof *edges))
        return edges[round];
    return (int64_t)check_random(seed) >> (1 + check_below(seed, 62));
}

static void make(const probe *p, line *l, int64_t offset, float amplitude)
{
    const copes_lrpe_problem problem = problem_of(l, offset, amplitude);
    p->rotations(&problem, l->tokens, TOKENS, l->cosine, l->sine);
}

/* The same at positions of a tensor, which are offset, offset + 1 .. in int64, or in float32, which holds integers up to 2^24. */
static void make_at_positions(const probe *p, line *l, int64_t offset, float amplitude, bool real)
{
    int64_t whole[TOKENS];
    float number[TOKENS];
    copes_lrpe_problem problem = problem_of(l, 0, amplitude);
    for (int i = 0; i < TOKENS; i++)
        number[i] = (float)(whole[i] = offset + i);
    problem.counted = false;
    problem.positions_dtype = real ? COPES_F32 : COPES_I64;
    problem.positions = (copes_view){.data = real ? (void *)number : whole, .stride = {0, 0, 1}};
    p->rotations(&problem, l->tokens, TOKENS, l->cosine, l->sine);
}

/* Holds all of a line to its bounds, positions that are no anchors to `between`; the worst distance, in units of 2^-24 of the amplitude. */
static double hold(const probe *p, const line *l, int64_t offset, float amplitude, double between)
{
    double worst = 0;
    for (int i = 0; i < TOKENS * ANGLES; i++) {
        const int64_t at = offset + l->tokens[i / ANGLES];
        const long double angle = oracle_angle(at, l->theta[i % ANGLES]);
        const double error = (double)hypotl((long double)l->cosine[i] - (long double)amplitude * cosl(angle),
                                            (long double)l->sine[i] - (long double)amplitude * sinl(angle)) /
                             (double)amplitude * 0x1p24;
        const double most = (at % 16 == 0 ? exact_bound : between) + (amplitude == 1 ? 0 : amplitude_bound);
        ck_assert_msg(error <= most, "%s %s: %g units of 2^-24 at %lld, theta %a; the bound is %g", p->level, p->type,
                      error, (long long)at, (double)l->theta[i % ANGLES], most);
        worst = fmax(worst, error);
    }
    return worst;
}

/* Lines on a grid, or given as positions of a tensor, without an amplitude and with one. */
static void hold_lines(const probe *p, bool given, uint64_t seed, double between)
{
    static line l;
    double worst[2] = {0, 0};
    if (!level_runs(p->level))
        return;
    for (int round = 0; round < EDGES + ROUNDS / tests_every(); round++) {
        const bool real = given && round >= EDGES && round % 2 == 0;
        const int64_t offset = real ? (int64_t)check_below(&seed, 1 << 23) : draw_offset(round, &seed);
        draw_line(&l, &seed);
        for (int i = 0; i < 2; i++) {
            const float amplitude = i == 0 ? 1 : 1.4F;
            if (given)
                make_at_positions(p, &l, offset, amplitude, real);
            else
                make(p, &l, offset, amplitude);
            worst[i] = fmax(worst[i], hold(p, &l, offset, amplitude, between));
        }
    }
    printf("%-8s %-4s %s: %.3f units of 2^-24, with an amplitude %.3f\n", p->level, p->type,
           given ? "positions" : "a grid", worst[0], worst[1]);
}

START_TEST(products_are_close)
{
    hold_lines(&probes[_i], false, 3, bound);
}
END_TEST

START_TEST(positions_of_a_tensor_turn_exactly)
{
    hold_lines(&probes[_i], true, 6, exact_bound);
}
END_TEST

/* Whichever token comes first, and in any order. */
START_TEST(rotations_depend_on_positions_alone)
{
    static line l, other;
    const probe *p = &probes[_i];
    uint64_t seed = 4;
    if (!level_runs(p->level))
        return;
    for (int given = 0; given < 2; given++) {
        draw_line(&l, &seed);
        other = l;
        for (int i = 0; i < TOKENS; i++)
            other.tokens[i] = i * 33 % TOKENS;
        if (given) {
            make_at_positions(p, &l, 1000, 1, false);
            make_at_positions(p, &other, 1000 - 7, 1, true);
        } else {
            make(p, &l, 1000, 1);
            make(p, &other, 1000 - 7, 1);
        }
        for (int i = 0; i < TOKENS; i++)
            for (int64_t k = 0, at = other.tokens[i] - 7; at >= 0 && k < ANGLES; k++)
                ck_assert(l.cosine[at * ANGLES + k] == other.cosine[i * ANGLES + k] &&
                          l.sine[at * ANGLES + k] == other.sine[i * ANGLES + k]);
    }
}
END_TEST

START_TEST(thetas_that_are_not_finite_show)
{
    static line l;
    const probe *p = &probes[_i];
    uint64_t seed = 5;
    if (!level_runs(p->level))
        return;
    draw_line(&l, &seed);
    l.theta[3] = INFINITY;
    l.theta[30] = NAN;
    for (int given = 0; given < 2; given++) {
        if (given)
            make_at_positions(p, &l, 5, 1, false);
        else
            make(p, &l, 5, 1);
        for (int i = 0; i < TOKENS * ANGLES; i++) {
            const int wanted = i % ANGLES == 3 || i % ANGLES == 30;
            ck_assert(!isnan(l.cosine[i]) == !wanted && !isnan(l.sine[i]) == !wanted);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rotations");
    TCase *tests = tcase_create("rotations");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, products_are_close, 0, PROBES);
    tcase_add_loop_test(tests, rotations_depend_on_positions_alone, 0, PROBES);
    tcase_add_loop_test(tests, positions_of_a_tensor_turn_exactly, 0, PROBES);
    tcase_add_loop_test(tests, thetas_that_are_not_finite_show, 0, PROBES);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
