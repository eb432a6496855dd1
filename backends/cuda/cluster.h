/* What Hopper's fast paths need of PTX: clusters of blocks that write to each other's shared memory, and copies from
 * memory to shared memory that pass the registers by. */
#ifndef COPES_BACKENDS_CUDA_CLUSTER_H
#define COPES_BACKENDS_CUDA_CLUSTER_H

#include "vendor.h"

#include <cooperative_groups.h>

namespace COPES_GPU
{

/* The block's number in its cluster; where there are no clusters each block is one. */
DEVICE uint32_t cluster_rank()
{
    uint32_t rank = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

/* Waits for all threads of the cluster. */
DEVICE void synchronize_cluster()
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

/* Waits for all threads of the launch, which has to ask for it. */
DEVICE void synchronize_grid()
{
    cooperative_groups::this_grid().sync();
}

/* What lies at a place of shared memory, in the cluster's block of a rank. */
template <typename Value> DEVICE Value *in_cluster(Value *here, uint32_t rank)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    Value *there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(rank));
    return there;
#else
    return here;
#endif
}

DEVICE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* A barrier in shared memory that so many arrivals complete, and, if it was told to expect any, so many bytes of
 * mail. */
DEVICE void open_mailbox(uint32_t mailbox, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(mailbox),
                 "r"(arrivals)
                 : "memory");
}

/* Tells the block's other threads that what this one wrote is there. */
DEVICE void arrive(uint32_t mailbox)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(mailbox) : "memory");
}

/* The same once those bytes have come, too. */
DEVICE void expect_mail(uint32_t mailbox, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(mailbox), "r"(bytes) : "memory");
}

/* Is the mailbox's round of a parity complete? What came is seen then: of this block, or of all of the cluster, for
 * which the multiprocessor drops what its cache has of memory. */
template <bool CLUSTER> DEVICE bool look_for_mail(uint32_t mailbox, uint32_t parity)
{
    uint32_t done;
    if constexpr (CLUSTER)
        asm volatile(
            "{\n\t.reg .pred p;\n\t"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, p;\n\t}"
            : "=r"(done)
            : "r"(mailbox), "r"(parity)
            : "memory");
    else
        asm volatile(
            "{\n\t.reg .pred p;\n\t"
            "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, p;\n\t}"
            : "=r"(done)
            : "r"(mailbox), "r"(parity)
            : "memory");
    return done != 0;
}

/* Waits for mail of the cluster, or for arrivals of the block. */
DEVICE void wait_for_mail(uint32_t mailbox, uint32_t parity)
{
    while (!look_for_mail<true>(mailbox, parity))
        ;
}

DEVICE void wait_for_block(uint32_t mailbox, uint32_t parity)
{
    while (!look_for_mail<false>(mailbox, parity))
        ;
}

/* An address of this block's shared memory, in the block of a rank. */
DEVICE uint32_t in_rank(uint32_t here, uint32_t rank)
{
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    return there;
}

/* Writes to the shared memory of another block, at the address that `to` has here, and tells its mailbox. */
DEVICE void send(uint32_t to, uint32_t mailbox, uint32_t rank, float2 values)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     in_rank(to, rank)),
                 "f"(values.x), "f"(values.y), "r"(in_rank(mailbox, rank))
                 : "memory");
}

DEVICE void send(uint32_t to, uint32_t mailbox, uint32_t rank, float value)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     in_rank(to, rank)),
                 "f"(value), "r"(in_rank(mailbox, rank))
                 : "memory");
}

/* Starts the copy of 16 bytes to shared memory. AROUND: the 128 bytes that they are of come to the L2 cache at once, as
 * other blocks are to ask for the rest. */
template <bool AROUND> DEVICE void copy_ahead(uint32_t to, const void *from)
{
    if constexpr (AROUND)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* Ends a group of the thread's copies. */
DEVICE void end_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until all but the thread's newest groups have arrived. */
template <int NEWEST> DEVICE void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(NEWEST) : "memory");
}

DEVICE uint4 read_shared(uint32_t at)
{
    uint4 words;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(at));
    return words;
}

/* Two halves of 8 bytes. */
DEVICE uint4 read_shared(uint32_t first, uint32_t second)
{
    uint4 words;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "r"(first));
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words.z), "=r"(words.w) : "r"(second));
    return words;
}

DEVICE void write_shared(uint32_t at, uint4 words)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(words.x), "r"(words.y), "r"(words.z),
                 "r"(words.w)
                 : "memory");
}

/* Writes to memory where `there`, here and below with no branch for a warp to wait at. */
DEVICE void write_if(bool there, void *to, uint4 words)
{
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t"
        "@p st.global.v4.u32 [%0], {%1, %2, %3, %4};\n\t}" ::"l"(to),
        "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w), "r"((uint32_t)there)
        : "memory");
}

DEVICE void write_if(bool there, void *to, uint32_t first, uint32_t second)
{
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t"
        "@p st.global.v2.u32 [%0], {%1, %2};\n\t}" ::"l"(to),
        "r"(first), "r"(second), "r"((uint32_t)there)
        : "memory");
}

} // namespace COPES_GPU

#endif
