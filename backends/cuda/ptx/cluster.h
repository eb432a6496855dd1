/* Clusters of blocks: a block's rank, barriers, and the shared memory of other blocks. Before compute capability 9.0
 * each block is a cluster of its own. */
#ifndef COPES_BACKENDS_CUDA_PTX_CLUSTER_H
#define COPES_BACKENDS_CUDA_PTX_CLUSTER_H

#include "vendor.h"

#ifdef COPES_PORTABLE
#error "a file that includes this is compiled with exact_args: backends/cuda/meson.build"
#endif

#define _CG_LIMIT_INCLUDED_DEPENDENCIES /* else it brings libcu++, which takes 2 s a file to read */
#include <cooperative_groups.h>

namespace COPES_GPU::ptx
{

/* The block's number in its cluster. */
DEVICE uint32_t cluster_rank()
{
    uint32_t rank = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

/* Waits for all threads of the cluster: an arrival and a wait. */
DEVICE void cluster_sync()
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

/* The same for a cluster whose size is known at run time, which may be 1. */
DEVICE void cluster_sync(int blocks)
{
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) {
        __syncwarp(); /* the barrier's instructions take whole warps */
        cluster_sync();
        return;
    }
#endif
    __syncthreads();
}

/* The two halves of a cluster barrier that orders no memory. It lets a block wait until no other block uses its shared
 * memory. Each thread calls cluster_arrive_relaxed and cluster_wait alternately, whole warps at a time. */
DEVICE void cluster_arrive_relaxed(int blocks)
{
#if __CUDA_ARCH__ >= 900
    __syncwarp();
    if (blocks > 1)
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

DEVICE void cluster_wait(int blocks)
{
#if __CUDA_ARCH__ >= 900
    __syncwarp();
    if (blocks > 1)
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

/* Waits for all threads of a cooperative launch. */
DEVICE void grid_sync()
{
    cooperative_groups::this_grid().sync();
}

/* The address in block `rank` of an object that this block has at `here`, in its own shared memory. */
template <typename Value> DEVICE Value *map_to_rank(Value *here, uint32_t rank)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    Value *there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(rank));
    return there;
#else
    return here;
#endif
}

/* The same for 32-bit shared addresses. */
DEVICE uint32_t mapa(uint32_t here, uint32_t rank)
{
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    return there;
}

/* Writes to the shared memory of block `rank`, and counts the bytes at its mbarrier. Both addresses are those of
 * this block. */
DEVICE void st_async(uint32_t to, uint32_t barrier, uint32_t rank, float2 values)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     mapa(to, rank)),
                 "f"(values.x), "f"(values.y), "r"(mapa(barrier, rank))
                 : "memory");
}

DEVICE void st_async(uint32_t to, uint32_t barrier, uint32_t rank, float value)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(mapa(to, rank)),
                 "f"(value), "r"(mapa(barrier, rank))
                 : "memory");
}

} // namespace COPES_GPU::ptx

#endif
