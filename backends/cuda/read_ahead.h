/* What a thread has under way of rows that it reads one after the other: vectors of 16 or 8 bytes, in shared memory, where they take
 * no registers. Older architectures than 8.0 wait for each. */
#ifndef COPES_BACKENDS_CUDA_READ_AHEAD_H
#define COPES_BACKENDS_CUDA_READ_AHEAD_H

#include "backends/cuda/ptx/copies.h"
#include "backends/cuda/ptx/memory.h"

namespace COPES_GPU
{

/* ROWS of PARTS vectors each. */
template <int PARTS, int ROWS> struct read_ahead {
    static constexpr int DEPTH = ROWS;
    static constexpr int BYTES = PARTS * ROWS * 16; /* of a thread */
    char *own;
    int apart; /* bytes from a vector of the thread's to its next one */

    /* `memory`: BYTES for each thread of the block, aligned to 16. */
    __device__ __forceinline__ explicit read_ahead(char *memory)
        : own(memory + (threadIdx.y * blockDim.x + threadIdx.x) * 16), apart((int)(blockDim.x * blockDim.y) * 16)
    {
    }
    /* Starts to read a vector of a row. `again`: another vector lies in the same 32 bytes, which the L1 cache then keeps. */
    template <typename Vector> __device__ __forceinline__ void start(int row, int part, const void *from, bool again)
    {
        char *const to = own + (row % ROWS * PARTS + part) * apart;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
        if constexpr (sizeof(Vector) == 8)
            ptx::cp_async_8(ptx::shared_address(to), from);
        else if (again)
            ptx::cp_async_16_by_l1(ptx::shared_address(to), from);
        else
            ptx::cp_async_16<false>(ptx::shared_address(to), from);
#else
        *reinterpret_cast<Vector *>(to) = *static_cast<const Vector *>(from);
#endif
    }
    /* Ends a row's vectors, whether it has any or not. */
    __device__ __forceinline__ void end_row()
    {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
        ptx::cp_async_commit();
#endif
    }
    /* Waits for the oldest COUNT of ROWS rows. */
    template <int COUNT = 1> __device__ __forceinline__ void wait()
    {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
        ptx::cp_async_wait<ROWS - COUNT>();
#endif
    }
    /* Waits for all. */
    __device__ __forceinline__ void wait_for_all() const
    {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
        ptx::cp_async_wait<0>();
#endif
    }
    template <typename Vector> __device__ __forceinline__ Vector take(int row, int part) const
    {
        return *reinterpret_cast<const Vector *>(own + (row % ROWS * PARTS + part) * apart);
    }
};

} // namespace COPES_GPU

#endif
