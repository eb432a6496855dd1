/* The CPU backend's elementary functions as plain functions on arrays, one set for each instruction-set level and type,
 * so that a test can hold each of them to its bounds. */
#ifndef COPES_TESTS_VMATH_H
#define COPES_TESTS_VMATH_H

#include <stddef.h>

/* Arrays hold float, or double for f64 (for f16 and bf16 numbers of those types come in, and results that are not rounded to them go
 * out); phases are uint32_t, or uint64_t. Their length is a multiple of 16. exp_stored is for results that are stored. */
typedef struct vmath_functions {
    void (*exp)(const void *x, void *y, size_t count);
    void (*exp_term)(const void *x, void *y, size_t count);
    void (*exp_stored)(const void *x, void *y, size_t count);
    void (*exp_given)(const void *x, void *y, size_t count); /* of a softmax whose log sum exp is given, likewise */
    void (*sigmoid)(const void *x, void *y, size_t count);
    void (*silu)(const void *x, void *y, size_t count);
    void (*sigmoid_slope)(const void *x, void *y, size_t count);
    void (*silu_slope)(const void *x, void *y, size_t count);
    void (*sincos)(const void *phase, void *sine, void *cosine, size_t count);
    void (*sincos_of_table)(const void *phase, void *sine, void *cosine, size_t count);
    void (*rounded_twice)(const void *x, void *y, size_t count); /* x (2 - x) - 1 as a product and a difference */
} vmath_functions;

extern const vmath_functions copes_vmath_baseline_f32, copes_vmath_baseline_f16, copes_vmath_baseline_bf16,
    copes_vmath_baseline_f64;
extern const vmath_functions copes_vmath_avx2_f32, copes_vmath_avx2_f16, copes_vmath_avx2_bf16, copes_vmath_avx2_f64;
extern const vmath_functions copes_vmath_avx512_f32, copes_vmath_avx512_f16, copes_vmath_avx512_bf16,
    copes_vmath_avx512_f64;
extern const vmath_functions copes_vmath_sve256_f32, copes_vmath_sve256_f16, copes_vmath_sve256_bf16,
    copes_vmath_sve256_f64;

#endif
