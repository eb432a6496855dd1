/* The CPU backend's exp, logistic function, sine and cosine against long double, at every instruction-set level that is
 * there: a scan over all magnitudes, the edges of each range, and the values that no error in ulps describes. */
#include "tests/every.h"
#include "tests/harness/random.h"
#include "tests/harness/type.h"
#include "tests/levels.h"
#include "tests/suite.h"
#include "tests/vmath.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 4096 };

/* In ulps. Of every third float, 11 in all are past 1 for exp and exp_term, the worst 1.013. Half an ulp of that is its
 * last rounding; silu has that once too, but its ulps can be half the size of the exponential's. The sines of double are
 * better where products and sums fuse, which is every level but baseline. */
static const double exp_bound = 1.05, silu_bound = 1.5, sincos_bound = 1.5, wide_sincos_bound = 1.1;

/* In units of 2^-24 of sine or cosine: what 1.5 ulp come to just above a power of two. */
static const double table_bound = 3;

typedef struct probe {
    const char *level;
    int is_double;
    const vmath_functions *functions;
} probe;

static const probe probes[] = {
    {"baseline", 0, &copes_vmath_baseline_f32}, {"baseline", 1, &copes_vmath_baseline_f64},
#ifdef COPES_CPU_AVX2
    {"avx2", 0, &copes_vmath_avx2_f32},         {"avx2", 1, &copes_vmath_avx2_f64},
#endif
#ifdef COPES_CPU_AVX512
    {"avx512", 0, &copes_vmath_avx512_f32},     {"avx512", 1, &copes_vmath_avx512_f64},
#endif
#ifdef COPES_CPU_SVE256
    {"sve256", 0, &copes_vmath_sve256_f32},     {"sve256", 1, &copes_vmath_sve256_f64},
#endif
};
enum { PROBES = sizeof probes / sizeof probes[0] };

/* A batch of arguments or results, of either width. */
typedef union values {
    float f[BATCH];
    double d[BATCH];
    uint32_t word[BATCH];
    uint64_t long_word[BATCH];
} values;

static int count_batches(void)
{
    const int batches = 256 / tests_every();
    return batches > 0 ? batches : 1;
}

static double get(const probe *p, const values *v, int i)
{
    return p->is_double ? v->d[i] : (double)v->f[i];
}

static void set(const probe *p, values *v, int i, double x)
{
    if (p->is_double)
        v->d[i] = x;
    else
        v->f[i] = (float)x;
}

/* The distance from the exact value in units of the last place that the type has there. */
static double ulps(const probe *p, double got, long double exact)
{
    const int digits = p->is_double ? DBL_MANT_DIG : FLT_MANT_DIG, least = p->is_double ? DBL_MIN_EXP : FLT_MIN_EXP;
    int exponent;
    frexpl(exact, &exponent);
    if (exact == 0 || exponent < least)
        exponent = least;
    return (double)(fabsl((long double)got - exact) / ldexpl(1, exponent - digits));
}

static void hold(const probe *p, const char *name, const char *unit, double worst, double at, double bound)
{
    printf("%-8s %s %-8s %.3f %s at %a\n", p->level, p->is_double ? "f64" : "f32", name, worst, unit, at);
    ck_assert_msg(worst <= bound, "%s: %s of %s is %g %s off at %a; the bound is %g", p->level, name,
                  p->is_double ? "f64" : "f32", worst, unit, at, bound);
}

/* Arguments from `low` to `high`, half of them spread evenly and half over all magnitudes. */
static void draw(const probe *p, values *x, uint64_t *seed, double low, double high)
{
    for (int i = 0; i < BATCH; i++) {
        double value = low + (high - low) * check_uniform(seed);
        if (i % 2 != 0)
            value = ldexp(value, -(int)check_below(seed, 40));
        set(p, x, i, value);
    }
}

static long double exact_sigmoid(long double x)
{
    const long double e = expl(-fabsl(x));
    return (x < 0 ? e : 1) / (1 + e);
}

static long double exact_silu(long double x)
{
    return x * exact_sigmoid(x);
}

static void scan(const probe *p, const char *name, void (*function)(const void *, void *, size_t),
                 long double (*exact)(long double), double low, double high, double bound)
{
    static values x, y;
    uint64_t seed = 1;
    double worst = 0, at = 0;
    const int batches = count_batches();
    for (int batch = 0; batch < batches; batch++) {
        draw(p, &x, &seed, low, high);
        set(p, &x, 0, low);
        set(p, &x, 1, high);
        function(&x, &y, BATCH);
        for (int i = 0; i < BATCH; i++) {
            const double error = ulps(p, get(p, &y, i), exact((long double)get(p, &x, i)));
            if (!(error <= worst)) {
                worst = error;
                at = get(p, &x, i);
            }
        }
    }
    hold(p, name, "ulp", worst, at, bound);
}

/* A level's functions for 16-bit results. */
typedef struct half_probe {
    probe probe;
    check_type type;
} half_probe;

static const half_probe half_probes[] = {
    {{"baseline", 0, &copes_vmath_baseline_f16}, CHECK_F16}, {{"baseline", 0, &copes_vmath_baseline_bf16}, CHECK_BF16},
#ifdef COPES_CPU_AVX2
    {{"avx2", 0, &copes_vmath_avx2_f16}, CHECK_F16},         {{"avx2", 0, &copes_vmath_avx2_bf16}, CHECK_BF16},
#endif
#ifdef COPES_CPU_AVX512
    {{"avx512", 0, &copes_vmath_avx512_f16}, CHECK_F16},     {{"avx512", 0, &copes_vmath_avx512_bf16}, CHECK_BF16},
#endif
#ifdef COPES_CPU_SVE256
    {{"sve256", 0, &copes_vmath_sve256_f16}, CHECK_F16},     {{"sve256", 0, &copes_vmath_sve256_bf16}, CHECK_BF16},
#endif
};
enum { HALF_PROBES = sizeof half_probes / sizeof half_probes[0] };

/* Below the normal range results are 0: a softmax's terms beside one of 1. */
static long double exact_term(long double x)
{
    return x < -87 ? 0 : expl(x);
}

static long double exact_sigmoid_slope(long double x)
{
    const long double e = expl(-fabsl(x));
    return e / ((1 + e) * (1 + e));
}

/* Its largest term is what errors are relative to where the sum cancels. */
static long double exact_silu_slope(long double x)
{
    return exact_sigmoid(x) + x * exact_sigmoid_slope(x);
}

static long double silu_slope_term(long double x)
{
    return fmaxl(exact_sigmoid(x), fmaxl(fabsl(x * exact_sigmoid_slope(x)), fabsl(exact_silu_slope(x))));
}

/* A function of every number of the type from `low` to `high`, to `bound` ulp of float32 at the value or its term. */
static void scan_half(const half_probe *h, const char *name, void (*function)(const void *, void *, size_t),
                      long double (*exact)(long double), long double (*term)(long double), double low, double high,
                      double bound)
{
    static values x, y;
    double worst = 0, at = 0;
    for (uint32_t first = 0; first < 1 << 16; first += BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            const uint16_t bits = (uint16_t)(first + i);
            const double number = check_decode(h->type, &bits);
            x.f[i] = number >= low && number <= high ? (float)number : 0;
        }
        function(&x, &y, BATCH);
        for (int i = 0; i < BATCH; i++) {
            const long double wanted = exact(x.f[i]), size = term == NULL ? fabsl(wanted) : term(x.f[i]);
            const double error = (double)(fabsl(y.f[i] - wanted) / check_ulp(CHECK_F32, (double)size));
            if (!(error <= worst)) {
                worst = error;
                at = x.f[i];
            }
        }
    }
    printf("%-8s %-4s %-13s %.3f ulp of float32 at %a\n", h->probe.level, check_type_of(h->type)->name, name, worst,
           at);
    ck_assert_msg(worst <= bound, "%s: %s for %s is %g ulp of float32 off at %a; the bound is %g", h->probe.level, name,
                  check_type_of(h->type)->name, worst, at, bound);
}

/* In ulps of float32, of which one of float16 is 8192 and one of bfloat16 65536. See docs/numerics.md. */
START_TEST(half_is_close_at_every_argument)
{
    const half_probe *h = &half_probes[_i];
    const vmath_functions *f = h->probe.functions;
    const double stored = h->type == CHECK_F16 ? 60 : 104, near = h->type == CHECK_F16 ? 16 : 64;
    const double most = h->type == CHECK_F16 ? 12 : 88; /* float16's largest number is e^11.1 */
    if (!level_runs(h->probe.level))
        return;
    scan_half(h, "exp_term", f->exp_term, exact_term, NULL, -87, 0, 4);
    scan_half(h, "exp_stored", f->exp_stored, exact_term, NULL, -87, 0, stored);
    scan_half(h, "exp_given", f->exp_given, expl, NULL, -INFINITY, most, stored);
    scan_half(h, "sigmoid", f->sigmoid, exact_sigmoid, NULL, -INFINITY, INFINITY, stored);
    scan_half(h, "silu", f->silu, exact_silu, NULL, -FLT_MAX, FLT_MAX, stored);
    scan_half(h, "sigmoid slope", f->sigmoid_slope, exact_sigmoid_slope, NULL, -INFINITY, INFINITY, stored);
    scan_half(h, "silu slope", f->silu_slope, exact_silu_slope, silu_slope_term, -FLT_MAX, FLT_MAX, stored);
    /* Where float16 has more than its last bit for them. */
    scan_half(h, "sigmoid", f->sigmoid, exact_sigmoid, NULL, -16, 16, near);
    scan_half(h, "silu", f->silu, exact_silu, NULL, -16, 16, near);
    scan_half(h, "sigmoid slope", f->sigmoid_slope, exact_sigmoid_slope, NULL, -16, 16, near);
    scan_half(h, "silu slope", f->silu_slope, exact_silu_slope, silu_slope_term, -16, 16, near);
}
END_TEST

START_TEST(exp_is_close_everywhere)
{
    const probe *p = &probes[_i];
    if (!level_runs(p->level))
        return;
    /* To the last finite result above, and below past the last denormal one. */
    const double last = p->is_double ? 0x1.62e42fefa39efp+9 : 0x1.62e42ep+6;
    scan(p, "exp", p->functions->exp, expl, p->is_double ? -750 : -110, last, exp_bound);
}
END_TEST

START_TEST(exp_term_is_close_where_it_is_normal)
{
    const probe *p = &probes[_i];
    if (!level_runs(p->level))
        return;
    scan(p, "exp_term", p->functions->exp_term, expl, p->is_double ? -708 : -87, 0, exp_bound);
}
END_TEST

START_TEST(logistic_is_close_everywhere)
{
    const probe *p = &probes[_i];
    if (!level_runs(p->level))
        return;
    scan(p, "sigmoid", p->functions->sigmoid, exact_sigmoid, p->is_double ? -750 : -110, 100, exp_bound);
    scan(p, "silu", p->functions->silu, exact_silu, p->is_double ? -760 : -120, 100, silu_bound);
    scan(p, "silu", p->functions->silu, exact_silu, -9, 9, silu_bound);
}
END_TEST

/* Asserts function(x) to be exactly `wanted`, or a NaN where that is one. */
static void expect(const probe *p, void (*function)(const void *, void *, size_t), double x, double wanted)
{
    values in, out;
    for (int i = 0; i < 16; i++)
        set(p, &in, i, x);
    function(&in, &out, 16);
    for (int i = 0; i < 16; i++) {
        const double got = get(p, &out, i);
        ck_assert_msg(isnan(wanted) ? isnan(got) : got == wanted, "%s %s: exp(%a) is %a, not %a", p->level,
                      p->is_double ? "f64" : "f32", x, got, wanted);
    }
}

START_TEST(exp_knows_its_ends)
{
    const probe *p = &probes[_i];
    if (!level_runs(p->level))
        return;
    void (*const both[2])(const void *, void *, size_t) = {p->functions->exp, p->functions->exp_term};
    for (int i = 0; i < 2; i++) {
        expect(p, both[i], 0, 1);
        expect(p, both[i], -0.0, 1);
        expect(p, both[i], -INFINITY, 0);
        expect(p, both[i], -1e30, 0);
        expect(p, both[i], p->is_double ? -DBL_MAX : -(double)FLT_MAX, 0);
        expect(p, both[i], (double)NAN, (double)NAN);
        expect(p, both[i], -(double)NAN, (double)NAN);
    }
    expect(p, both[0], (double)INFINITY, (double)INFINITY);
    expect(p, both[0], 1e30, (double)INFINITY);
    expect(p, both[0], p->is_double ? 0x1.62e42fefa39f0p+9 : 0x1.62e430p+6, (double)INFINITY);
    expect(p, both[1], p->is_double ? -708.5 : -87.5, 0); /* denormal: a term that counts for nothing */
}
END_TEST

/* Phase i of the scan: the ends of the 32nds of a turn and their neighbours first, then random ones, which among them
 * come near a quarter at every distance. */
static uint64_t draw_phase(const probe *p, int64_t i, uint64_t *seed)
{
    const int bits = p->is_double ? 64 : 32;
    if (i < 32 * 64)
        return ((uint64_t)(i / 64) << (bits - 5)) + (uint64_t)(i % 64) - 32;
    const uint64_t word = check_random(seed) >> (64 - bits);
    if (i % 2 == 0)
        return word;
    const uint64_t near = word >> check_below(seed, bits);
    return (check_random(seed) << (bits - 2)) + (i % 4 == 1 ? near : 0 - near);
}

/* sin and cos of a phase from its nearest quarter turn, which is exact. */
static void exact_sincos(const probe *p, uint64_t phase, long double *sine, long double *cosine)
{
    const int shift = p->is_double ? 0 : 32;
    const uint64_t word = phase << shift, quarter = (word + (UINT64_C(1) << 61)) >> 62;
    const long double turn = ldexpl((long double)(int64_t)(word - (quarter << 62)), -64);
    const long double angle = turn * 6.283185307179586476925286766559005768L, s = sinl(angle), c = cosl(angle);
    const long double sines[4] = {s, c, -s, -c}, cosines[4] = {c, -s, -c, s};
    *sine = sines[quarter & 3];
    *cosine = cosines[quarter & 3];
}

/* What sines and cosines are called, and are held to. */
typedef struct measure {
    const char *sine, *cosine, *unit;
    double (*error)(const probe *p, double got, long double exact);
    double bound;
} measure;

static void scan_sincos(const probe *p, void (*function)(const void *, void *, void *, size_t), measure m)
{
    static values phase, sine, cosine;
    uint64_t seed = 2;
    double worst[2] = {0, 0}, at[2] = {0, 0};
    const int batches = count_batches();
    for (int64_t batch = 0; batch < batches; batch++) {
        for (int i = 0; i < BATCH; i++) {
            const uint64_t drawn = draw_phase(p, batch * BATCH + i, &seed);
            if (p->is_double)
                phase.long_word[i] = drawn;
            else
                phase.word[i] = (uint32_t)drawn;
        }
        function(&phase, &sine, &cosine, BATCH);
        for (int i = 0; i < BATCH; i++) {
            const uint64_t drawn = p->is_double ? phase.long_word[i] : phase.word[i];
            long double exact[2];
            exact_sincos(p, drawn, &exact[0], &exact[1]);
            const double errors[2] = {m.error(p, get(p, &sine, i), exact[0]), m.error(p, get(p, &cosine, i), exact[1])};
            for (int j = 0; j < 2; j++)
                if (!(errors[j] <= worst[j])) {
                    worst[j] = errors[j];
                    at[j] = (double)drawn;
                }
        }
    }
    hold(p, m.sine, m.unit, worst[0], at[0], m.bound);
    hold(p, m.cosine, m.unit, worst[1], at[1], m.bound);
}

START_TEST(sincos_is_close_everywhere)
{
    const probe *p = &probes[_i];
    const double bound = p->is_double && strcmp(p->level, "baseline") != 0 ? wide_sincos_bound : sincos_bound;
    if (level_runs(p->level))
        scan_sincos(p, p->functions->sincos, (measure){"sine", "cosine", "ulp", ulps, bound});
}
END_TEST

/* In units of 2^-24 of the exact value. */
static double units(const probe *p, double got, long double exact)
{
    (void)p;
    return exact == 0 ? got != 0 ? INFINITY : 0 : (double)(fabsl((long double)got - exact) / fabsl(exact) * 0x1p24L);
}

START_TEST(sincos_of_table_is_close_everywhere)
{
    const half_probe *h = &half_probes[_i];
    if (level_runs(h->probe.level))
        scan_sincos(&h->probe, h->probe.functions->sincos_of_table,
                    (measure){"sine of a table", "cosine of a table", "units of 2^-24", units, table_bound});
}
END_TEST

/* For x = 1 + d the product is 1 - d d, and 1 once it is rounded. */
START_TEST(compiler_fuses_nothing_by_itself)
{
    const probe *p = &probes[_i];
    if (!level_runs(p->level))
        return;
    expect(p, p->functions->rounded_twice, 1 + (p->is_double ? 0x1p-28 : 0x1p-13), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("vmath");
    TCase *tests = tcase_create("vmath");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, exp_is_close_everywhere, 0, PROBES);
    tcase_add_loop_test(tests, exp_term_is_close_where_it_is_normal, 0, PROBES);
    tcase_add_loop_test(tests, logistic_is_close_everywhere, 0, PROBES);
    tcase_add_loop_test(tests, half_is_close_at_every_argument, 0, HALF_PROBES);
    tcase_add_loop_test(tests, exp_knows_its_ends, 0, PROBES);
    tcase_add_loop_test(tests, sincos_is_close_everywhere, 0, PROBES);
    tcase_add_loop_test(tests, sincos_of_table_is_close_everywhere, 0, HALF_PROBES);
    tcase_add_loop_test(tests, compiler_fuses_nothing_by_itself, 0, PROBES);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
