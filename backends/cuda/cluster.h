/* What Hopper's fast paths need of PTX: clusters of blocks that read and write each other's shared memory, and copies from
 * memory to shared memory that pass the registers by. */
#ifndef COPES_BACKENDS_CUDA_CLUSTER_H
#define COPES_BACKENDS_CUDA_CLUSTER_H

#include "vendor.h"

namespace COPES_GPU {

/* The block's number in its cluster. */
DEVICE uint32_t cluster_rank()
{
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* What threads of the cluster wrote before is seen by all of them after. */
DEVICE void synchronize_cluster()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

DEVICE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Writes to the same place of another block's shared memory. */
DEVICE void write_remote(float *here, uint32_t rank, float value)
{
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(here)), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
}

/* Starts the copy of 8 or 16 bytes to shared memory. */
template <int BYTES> DEVICE void copy_ahead(uint32_t to, const void *from)
{
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
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

DEVICE void write_shared(uint32_t at, uint4 words)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(words.x), "r"(words.y), "r"(words.z),
                 "r"(words.w)
                 : "memory");
}

} // namespace COPES_GPU

#endif
