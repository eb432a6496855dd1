/* What a thread has under way of rows that it reads one after the other: the vectors of one row, in registers. */
#ifndef COPES_BACKENDS_HIP_AMD_READ_AHEAD_H
#define COPES_BACKENDS_HIP_AMD_READ_AHEAD_H

#include "vendor.h"

namespace COPES_GPU
{

/* A row of PARTS vectors of 16 or 8 bytes. CUDA's has several rows, in shared memory. */
template <int PARTS, int> struct read_ahead {
    static constexpr int DEPTH = 1;
    static constexpr int BYTES = 0;
    uint4 held[PARTS];

    __device__ __forceinline__ explicit read_ahead(char *)
    {
    }
    template <typename Vector> __device__ __forceinline__ void start(int, int part, const void *from, bool)
    {
        const Vector &vector = *static_cast<const Vector *>(from);
        if constexpr (sizeof(Vector) == sizeof(uint4))
            held[part] = vector;
        else
            held[part] = {vector.x, vector.y, 0, 0};
    }
    __device__ __forceinline__ void end_row()
    {
    }
    template <int = 1> __device__ __forceinline__ void wait()
    {
    }
    __device__ __forceinline__ void wait_for_all() const
    {
    }
    template <typename Vector> __device__ __forceinline__ Vector take(int, int part) const
    {
        if constexpr (sizeof(Vector) == sizeof(uint4))
            return held[part];
        else
            return {held[part].x, held[part].y};
    }
};

} // namespace COPES_GPU

#endif
