/* mbarriers: barriers in shared memory. A phase ends when all arrivals have come and, where bytes are expected, all
 * bytes. Then the next phase begins, with as many arrivals. Phases have parities 0, 1, 0, 1, .. A wait for a parity
 * returns while the current phase has the other parity. So a thread must pass its wait for a phase before the next
 * phase ends. The functions take the barrier's shared address. */
#ifndef COPES_BACKENDS_CUDA_PTX_MBARRIER_H
#define COPES_BACKENDS_CUDA_PTX_MBARRIER_H

#ifdef COPES_PORTABLE
#error "a file that includes this is compiled with exact_args: backends/cuda/meson.build"
#endif

#include "vendor.h"

namespace COPES_GPU::ptx
{

DEVICE void mbarrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* The same. The other blocks of the cluster and bulk copies see the barrier before all that the thread does next. */
DEVICE void mbarrier_init_cluster(uint32_t barrier, uint32_t arrivals)
{
    mbarrier_init(barrier, arrivals);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

DEVICE void mbarrier_arrive(uint32_t barrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}

/* Arrives. The phase then also waits for so many bytes of asynchronous copies. */
DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Arrives when all cp.async that the thread has started so far are complete. The arrival is one of those of
 * mbarrier_init. */
DEVICE void cp_async_mbarrier_arrive(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Has the phase of this parity ended? */
DEVICE bool mbarrier_try_wait(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
#if __CUDA_ARCH__ < 900 /* older devices have no wait that sleeps */
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
#else
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
#endif
    return done != 0;
}

/* The same. The thread then sees all that other blocks of the cluster wrote before they arrived: the multiprocessor
 * drops the global memory that its L1 cache holds. */
DEVICE bool mbarrier_try_wait_cluster(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
}

DEVICE void mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    while (!mbarrier_try_wait(barrier, parity))
        ;
}

DEVICE void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity)
{
    while (!mbarrier_try_wait_cluster(barrier, parity))
        ;
}

} // namespace COPES_GPU::ptx

#endif
