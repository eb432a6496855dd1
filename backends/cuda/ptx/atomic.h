/* Counters and sums in global memory that the blocks of a launch share. The names say how accesses are ordered. */
#ifndef COPES_BACKENDS_CUDA_PTX_ATOMIC_H
#define COPES_BACKENDS_CUDA_PTX_ATOMIC_H

#include "vendor.h"

namespace COPES_GPU::ptx
{

DEVICE void red_add_relaxed(uint64_t *sum, uint64_t value)
{
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(sum), "l"(value) : "memory");
}

/* A thread that acquires the sum sees all writes that this thread made before. */
DEVICE void red_increment_release(uint64_t *counter)
{
    asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(counter) : "memory");
}

DEVICE uint64_t ld_relaxed(const uint64_t *from)
{
    uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

DEVICE uint64_t ld_acquire(const uint64_t *from)
{
    uint64_t value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

} // namespace COPES_GPU::ptx

#endif
