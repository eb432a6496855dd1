/* Numbers to float8_e4m3fn, as common/float8.h has it. Compute capability 8.9 and newer have an instruction for two at a time. */
#ifndef COPES_BACKENDS_CUDA_FLOAT8_H
#define COPES_BACKENDS_CUDA_FLOAT8_H

#include "vendor.h"

#include "common/float8.h"

#ifdef COPES_PORTABLE
#error "a file that includes this is compiled with exact_args: backends/cuda/meson.build"
#endif

namespace COPES_GPU
{

/* Four of them, the first in the lowest byte. */
DEVICE uint32_t pack_float8(const float (&x)[4])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(x[1]), "f"(x[0]));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(x[3]), "f"(x[2]));
    return (uint32_t)high << 16 | low;
#else
    return copes_float8_word(x);
#endif
}

} // namespace COPES_GPU

#endif
