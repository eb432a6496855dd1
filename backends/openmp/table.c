/* From a level and a type to the kernels compiled for them: the build's first COPES_CPU_ISAS levels. */
#include "backends/openmp/table.h"

static const copes_cpu_kernels *const tables[COPES_ISAS][COPES_DTYPES] = {
    [COPES_ISA_BASELINE] = {[COPES_F32] = &copes_kernels_baseline_f32,
                            [COPES_F16] = &copes_kernels_baseline_f16,
                            [COPES_BF16] = &copes_kernels_baseline_bf16,
                            [COPES_F64] = &copes_kernels_baseline_f64},
#if COPES_CPU_ISAS > 1
    [COPES_ISA_AVX2] = {[COPES_F32] = &copes_kernels_avx2_f32,
                        [COPES_F16] = &copes_kernels_avx2_f16,
                        [COPES_BF16] = &copes_kernels_avx2_bf16,
                        [COPES_F64] = &copes_kernels_avx2_f64},
#endif
#if COPES_CPU_ISAS > 2
    [COPES_ISA_AVX512] = {[COPES_F32] = &copes_kernels_avx512_f32,
                          [COPES_F16] = &copes_kernels_avx512_f16,
                          [COPES_BF16] = &copes_kernels_avx512_bf16,
                          [COPES_F64] = &copes_kernels_avx512_f64},
#endif
#if COPES_CPU_ISAS > 3
    [COPES_ISA_AVX512BF16] = {[COPES_F32] = &copes_kernels_avx512_f32,
                              [COPES_F16] = &copes_kernels_avx512_f16,
                              [COPES_BF16] = &copes_kernels_avx512bf16_bf16,
                              [COPES_F64] = &copes_kernels_avx512_f64},
#endif
};

const copes_cpu_kernels *copes_cpu_kernels_of(copes_isa isa, copes_dtype dtype)
{
    return tables[isa][dtype];
}
