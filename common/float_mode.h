/* The floating-point mode that copes computes in, whatever its caller's is: rounding to nearest, subnormal numbers kept,
 * and exceptions masked. Each thread has a mode of its own, and one that is made inherits its maker's.
 *
 * A compiler may move arithmetic across these functions: what is to run in the mode must be behind a call that it does
 * not see through, as through a pointer to a function. */
#ifndef COPES_COMMON_FLOAT_MODE_H
#define COPES_COMMON_FLOAT_MODE_H

#if defined(__x86_64__)

#include <xmmintrin.h>

typedef unsigned copes_float_mode;

static inline copes_float_mode copes_float_mode_enter(void)
{
    enum { DEFAULT_MODE = 0x1f80 };
    const copes_float_mode callers = _mm_getcsr();
    _mm_setcsr(DEFAULT_MODE);
    return callers;
}

static inline void copes_float_mode_leave(copes_float_mode callers)
{
    _mm_setcsr(callers);
}

#elif defined(__aarch64__)

#include <stdint.h>

typedef uint64_t copes_float_mode;

static inline void copes_float_mode_leave(copes_float_mode callers)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(callers) : "memory");
}

static inline copes_float_mode copes_float_mode_enter(void)
{
    copes_float_mode callers;
    __asm__ volatile("mrs %0, fpcr" : "=r"(callers)::"memory");
    copes_float_mode_leave(0);
    return callers;
}

#else

#include <fenv.h>

typedef fenv_t copes_float_mode;

static inline copes_float_mode copes_float_mode_enter(void)
{
    copes_float_mode callers;
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    return callers;
}

static inline void copes_float_mode_leave(copes_float_mode callers)
{
    fesetenv(&callers);
}

#endif

#endif
