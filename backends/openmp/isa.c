/* Which level this processor runs, of those that the build has. */
#include "backends/openmp/isa.h"

#include "backends/openmp/kernels.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef COPES_CPU_SVE256
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

static const char *const names[COPES_ISAS] = {"baseline", "avx2", "avx512", "avx512bf16", "sve256"};

const char *copes_isa_name(copes_isa isa)
{
    return names[isa];
}

#ifdef COPES_CPU_SVE256
/* Code for one length of registers runs with no other. */
static bool has_sve256(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_SVE) != 0 && (getauxval(AT_HWCAP2) & HWCAP2_SVEBF16) != 0 &&
           (prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK) == 32;
}
#endif

static bool available(copes_isa isa)
{
    if (copes_cpu_kernels_of(isa, COPES_F32) == NULL) /* not in the build */
        return false;
#ifdef __x86_64__
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    switch (isa) {
    case COPES_ISA_AVX2: return avx2;
    case COPES_ISA_AVX512: return avx512;
    case COPES_ISA_AVX512BF16: return avx512 && __builtin_cpu_supports("avx512bf16");
    default: return true;
    }
#elif defined(COPES_CPU_SVE256)
    return isa == COPES_ISA_BASELINE || has_sve256();
#else
    return isa == COPES_ISA_BASELINE;
#endif
}

copes_status copes_isa_choose(copes_isa *isa)
{
    const char *asked = getenv("COPES_CPU_ISA");
    *isa = COPES_ISA_BASELINE;
    if (asked == NULL || asked[0] == '\0') {
        for (int i = 0; i < COPES_ISAS; i++)
            if (available((copes_isa)i))
                *isa = (copes_isa)i;
        return COPES_OK;
    }
    for (int i = 0; i < COPES_ISAS; i++)
        if (strcmp(asked, names[i]) == 0) {
            *isa = (copes_isa)i;
            if (available(*isa))
                return COPES_OK;
            return copes_fail(COPES_ERROR_ATTRIBUTE,
                              "COPES_CPU_ISA is %s, which the processor or the build lacks; "
                              "it must be a level that both have",
                              asked);
        }
    return copes_fail(COPES_ERROR_ATTRIBUTE,
                      "COPES_CPU_ISA is %s; it must be baseline, avx2, avx512, avx512bf16 or sve256, or not set",
                      asked);
}
