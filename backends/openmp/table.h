/* The tables that a build makes, one for each level that it has and type. */
#ifndef COPES_BACKENDS_OPENMP_TABLE_H
#define COPES_BACKENDS_OPENMP_TABLE_H

#include "backends/openmp/kernels.h"

extern const copes_cpu_kernels copes_kernels_baseline_f32, copes_kernels_baseline_f16, copes_kernels_baseline_bf16,
    copes_kernels_baseline_f64;
extern const copes_cpu_kernels copes_kernels_avx2_f32, copes_kernels_avx2_f16, copes_kernels_avx2_bf16,
    copes_kernels_avx2_f64;
extern const copes_cpu_kernels copes_kernels_avx512_f32, copes_kernels_avx512_f16, copes_kernels_avx512_bf16,
    copes_kernels_avx512_f64;
extern const copes_cpu_kernels copes_kernels_sve256_f32, copes_kernels_sve256_f16, copes_kernels_sve256_bf16,
    copes_kernels_sve256_f64;
extern const copes_cpu_kernels copes_kernels_avx512bf16_bf16; /* the level adds nothing to the other types */

#endif
