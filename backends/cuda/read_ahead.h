/* What a thread has under way of rows that it reads one after the other: vectors of 16 bytes, in shared memory, where they take no
 * registers. Older architectures than 8.0 wait for each. */
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
    /* Starts to read a vector of a row. */
    __device__ __forceinline__ void start(int row, int part, const void *from)
    {
        char *const to = own + (row % ROWS * PARTS + part) * apart;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
        ptx::cp_async_16<false>(ptx::shared_address(to), from);
#else
        *reinterpret_cast<uint4 *>(to) = *static_cast<const uint4 *>(from);
#endif
    }
    /* Ends a row's vectors, whether it has any or not. */
    __device__ __forceinline__ void end_row()
    {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
        ptx::cp_async_commit();
#endif
    }
    /* Waits for the oldest of ROWS rows. */
    __device__ __forceinline__ void wait()
    {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
        ptx::cp_async_wait<ROWS - 1>();
#endif
    }
    __device__ __forceinline__ uint4 take(int row, int part) const
    {
        return *reinterpret_cast<const uint4 *>(own + (row % ROWS * PARTS + part) * apart);
    }
};

} // namespace COPES_GPU

#endif
