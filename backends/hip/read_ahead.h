/* What a thread has under way of rows that it reads one after the other: the vectors of one row, in registers. */
#ifndef COPES_BACKENDS_HIP_READ_AHEAD_H
#define COPES_BACKENDS_HIP_READ_AHEAD_H

#include "vendor.h"

namespace COPES_GPU
{

/* A row of PARTS vectors of 16 bytes. CUDA's has several rows, in shared memory. */
template <int PARTS, int> struct read_ahead {
    static constexpr int DEPTH = 1;
    static constexpr int BYTES = 0;
    uint4 held[PARTS];

    __device__ __forceinline__ explicit read_ahead(char *)
    {
    }
    __device__ __forceinline__ void start(int, int part, const void *from)
    {
        held[part] = *static_cast<const uint4 *>(from);
    }
    __device__ __forceinline__ void end_row()
    {
    }
    __device__ __forceinline__ void wait()
    {
    }
    __device__ __forceinline__ uint4 take(int, int part) const
    {
        return held[part];
    }
};

} // namespace COPES_GPU

#endif
