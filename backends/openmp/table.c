/* From a level and a type to the kernels compiled for them. A level LEVEL that the build has is a macro, COPES_CPU_LEVEL. */
#include "backends/openmp/table.h"

#define KERNELS_OF(level)                                                                                              \
    {[COPES_F32] = &copes_kernels_##level##_f32,                                                                       \
     [COPES_F16] = &copes_kernels_##level##_f16,                                                                       \
     [COPES_BF16] = &copes_kernels_##level##_bf16,                                                                     \
     [COPES_F64] = &copes_kernels_##level##_f64}

static const copes_cpu_kernels *const tables[COPES_ISAS][COPES_DTYPES] = {
    [COPES_ISA_BASELINE] = KERNELS_OF(baseline),
#ifdef COPES_CPU_AVX2
    [COPES_ISA_AVX2] = KERNELS_OF(avx2),
#endif
#ifdef COPES_CPU_AVX512
    [COPES_ISA_AVX512] = KERNELS_OF(avx512),
#endif
#ifdef COPES_CPU_AVX512BF16
    [COPES_ISA_AVX512BF16] = {[COPES_F32] = &copes_kernels_avx512_f32,
                              [COPES_F16] = &copes_kernels_avx512_f16,
                              [COPES_BF16] = &copes_kernels_avx512bf16_bf16,
                              [COPES_F64] = &copes_kernels_avx512_f64},
#endif
#ifdef COPES_CPU_SVE256
    [COPES_ISA_SVE256] = KERNELS_OF(sve256),
#endif
};

const copes_cpu_kernels *copes_cpu_kernels_of(copes_isa isa, copes_dtype dtype)
{
    return tables[isa][dtype];
}
