/* Instruction-set levels of the CPU, each a superset of those of its architecture before it. */
#ifndef COPES_BACKENDS_OPENMP_ISA_H
#define COPES_BACKENDS_OPENMP_ISA_H

#include <copes/copes.h>

typedef enum copes_isa {
    COPES_ISA_BASELINE, /* the architecture's own: SSE2, NEON .. */
    COPES_ISA_AVX2,     /* with FMA and F16C */
    COPES_ISA_AVX512,   /* F, BW, DQ and VL */
    COPES_ISA_AVX512BF16,
    COPES_ISA_SVE256, /* registers of 256 bits, with the conversions of bfloat16 */
    COPES_ISAS
} copes_isa;

/* "baseline", "avx2", "avx512", "avx512bf16", "sve256". */
const char *copes_isa_name(copes_isa isa);

/* The best level that the processor and the build have, or the one that COPES_CPU_ISA in the environment names.
 * Errors: ATTRIBUTE, for a name that is unknown or a level that is not there. */
copes_status copes_isa_choose(copes_isa *isa);

#endif
