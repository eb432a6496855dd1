/* Asynchronous copies to shared memory: cp.async of 4 or 16 bytes a thread, and bulk copies that one thread starts. */
#ifndef COPES_BACKENDS_CUDA_PTX_COPIES_H
#define COPES_BACKENDS_CUDA_PTX_COPIES_H

#include "backends/cuda/ptx/cluster.h"

#include <cuda.h>

namespace COPES_GPU::ptx
{

/* ---- cp.async: completed by cp_async_wait or cp_async_mbarrier_arrive -------------------------------------------- */

/* PREFETCH_128: the L2 cache gets the aligned 128 bytes around at once. It pays where other blocks ask for the rest. */
template <bool PREFETCH_128> DEVICE void cp_async_16(uint32_t to, const void *from)
{
    if constexpr (PREFETCH_128)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* Those past the L1 cache; this one by way of it, where the same 32 bytes are read again. */
DEVICE void cp_async_16_by_l1(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* Copies the first `bytes` (0 to 16) of 16 bytes. The others become 0. */
DEVICE void cp_async_16_zfill(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

DEVICE void cp_async_8(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}

DEVICE void cp_async_4(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

/* Ends a group of the thread's copies. */
DEVICE void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until all but the thread's NEWEST groups have arrived. */
template <int NEWEST> DEVICE void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(NEWEST) : "memory");
}

/* ---- cp.async.bulk: each counts its bytes at an mbarrier when they arrive
 * ------------------------------------------- */

/* `bytes`: a multiple of 16. */
DEVICE void cp_async_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* From shared memory to the shared memory of block `rank`. The bytes count at the mbarrier of block `rank`. `to` and
 * `barrier` are addresses of this block. `bytes`: a multiple of 16. */
DEVICE void cp_async_bulk_to_rank(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier, uint32_t rank)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     mapa(to, rank)),
                 "r"(from), "r"(bytes), "r"(mapa(barrier, rank))
                 : "memory");
}

DEVICE void prefetch_tensormap(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* The first element of a box in a tensor, the innermost axis first. */
struct tensor_coordinates {
    int w, x, y, z;
};

/* Copies a box of a tensor. Elements outside the tensor are zeros. */
DEVICE void cp_async_bulk_tensor(uint32_t to, const CUtensorMap *map, const tensor_coordinates &at, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
        "l"(map), "r"(at.w), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier)
        : "memory");
}

/* Orders this thread's earlier accesses to shared memory before later ones by bulk copies and tensor cores. */
DEVICE void fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

} // namespace COPES_GPU::ptx

#endif
