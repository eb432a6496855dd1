/* Named barriers: some warps of a block wait for each other. */
#ifndef COPES_BACKENDS_CUDA_PTX_BARRIER_H
#define COPES_BACKENDS_CUDA_PTX_BARRIER_H

#include "vendor.h"

namespace COPES_GPU::ptx
{

/*   barrier   who waits there
 *   0         all threads of the block: __syncthreads
 *   1         `threads` of them, whole warps: barrier_sync, barrier_arrive
 *   2, 3, ..  warpgroup 0, 1, ..: warpgroup_sync, warpgroup_any */

DEVICE void barrier_sync(int threads)
{
    asm volatile("barrier.sync 1, %0;" ::"r"(threads) : "memory");
}

/* Arrives without waiting. The threads of barrier_arrive and of barrier_sync add up to `threads`. */
DEVICE void barrier_arrive(int threads)
{
    asm volatile("barrier.arrive 1, %0;" ::"r"(threads) : "memory");
}

DEVICE void warpgroup_sync(int warpgroup)
{
    asm volatile("barrier.sync %0, 128;" ::"r"(2 + warpgroup) : "memory");
}

/* Waits likewise. True in all threads where the predicate holds for any of them. */
DEVICE bool warpgroup_any(int warpgroup, bool predicate)
{
    uint32_t any;
    asm volatile(
        "{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %1, 0;\n\t"
        "barrier.red.or.pred q, %2, 128, p;\n\tselp.u32 %0, 1, 0, q;\n\t}"
        : "=r"(any)
        : "r"((uint32_t)predicate), "r"(2 + warpgroup)
        : "memory");
    return any != 0;
}

} // namespace COPES_GPU::ptx

#endif
