/* The caller's floating-point mode: with every rounding, with subnormal numbers flushed, and with exceptions that trap,
 * each kind of call gives the bits that it gives in the default mode, at every instruction-set level and with 1, 2 and 7
 * threads; and every thread has its mode back afterwards. */
#include "tests/levels.h"
#include "tests/small_calls.h"
#include "tests/suite.h"

#include <fenv.h>
#include <stdlib.h>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

enum { TEAMS = 3, TYPES = 4, MOST_THREADS = 7 };

static const int32_t teams[TEAMS] = {7, 2, 1};
static const DLDataType types[TYPES] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 64, 1}};

/* Modes as the processor's register has them, where it is known; else as the rounding alone. */
#if defined(__x86_64__)
enum { ROUND = 0x2000, FLUSH = 0x8000, ZEROS = 0x40, DEFAULT = 0x1f80, TRAPS = 0x1f80 };
static const unsigned modes[] = {DEFAULT,
                                 DEFAULT | ROUND,
                                 DEFAULT | 2 * ROUND,
                                 DEFAULT | 3 * ROUND,
                                 DEFAULT | FLUSH,
                                 DEFAULT | ZEROS,
                                 DEFAULT | 3 * ROUND | FLUSH | ZEROS,
                                 DEFAULT & ~TRAPS};

static unsigned read_mode(void)
{
    return _mm_getcsr() & ~0x3fu; /* without the exceptions that there were */
}

static void set_mode(unsigned mode)
{
    _mm_setcsr(mode);
}
#elif defined(__aarch64__)
enum { ROUND = 1 << 22, FLUSH = 1 << 24, FLUSH_HALVES = 1 << 19, QUIET_NANS = 1 << 25 };
static const unsigned modes[] = {0, ROUND, 2 * ROUND, 3 * ROUND, FLUSH, FLUSH_HALVES, 3 * ROUND | FLUSH | QUIET_NANS};

static unsigned read_mode(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
    return (unsigned)mode;
}

static void set_mode(unsigned mode)
{
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)mode) : "memory");
}
#else
static const unsigned modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};

static unsigned read_mode(void)
{
    return (unsigned)fegetround();
}

static void set_mode(unsigned mode)
{
    fesetround((int)mode);
}
#endif

enum { MODES = sizeof modes / sizeof modes[0] };

/* Sets the modes of the caller's thread and of those that OpenMP keeps for it. */
static void set_modes(unsigned mode)
{
#ifdef _OPENMP
#pragma omp parallel num_threads(MOST_THREADS)
#endif
    set_mode(mode);
    set_mode(mode);
}

static int threads_out_of_mode(unsigned mode)
{
    int count = read_mode() != mode;
#ifdef _OPENMP
#pragma omp parallel num_threads(MOST_THREADS) reduction(+ : count)
#endif
    count += read_mode() != mode;
    return count;
}

static void expect_same_bits(copes_context *context, const small_call *call, DLDataType type, const char *where)
{
    static small_tensors usual, odd;
    small_call_fill(call, type, &usual);
    ck_assert_msg(small_call_run(call, context, &usual), "%s: %s", call->name, copes_last_error());
    for (int i = 1; i < MODES; i++) {
        small_call_fill(call, type, &odd);
        set_modes(modes[i]);
        const bool ran = small_call_run(call, context, &odd);
        const int out_of_mode = threads_out_of_mode(modes[i]);
        set_modes(modes[0]);
        ck_assert_msg(ran, "%s: %s", call->name, copes_last_error());
        ck_assert_msg(out_of_mode == 0, "%s, %s: %d threads lost mode %x", call->name, where, out_of_mode, modes[i]);
        ck_assert_msg(small_call_same(&usual, &odd), "%s, %s, %d bits: other bits in mode %x", call->name, where,
                      type.bits, modes[i]);
    }
}

START_TEST(modes_change_no_bits)
{
    const int level = _i / TEAMS;
    copes_context *context;
    ck_assert_msg(open_level(level_names[level], teams[_i % TEAMS], &context), "%s", copes_last_error());
    if (context == NULL)
        return;
    for (int i = 0; i < small_call_count; i++)
        for (int j = 0; j < TYPES; j++)
            expect_same_bits(context, &small_calls[i], types[j], level_names[level]);
    copes_context_destroy(context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("float_mode");
    TCase *tests = tcase_create("modes");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, modes_change_no_bits, 0, LEVELS * TEAMS);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
