/* Rows along the innermost axis that neighbouring threads, the lanes, hold in registers: each lane has a few vectors. */
#ifndef COPES_BACKENDS_GPU_ACT_LANES_H
#define COPES_BACKENDS_GPU_ACT_LANES_H

#include "backends/gpu/act/strides.h"
#include "backends/gpu/names.h"
#include "backends/gpu/plan.h"
#include "backends/gpu/softmax.h"

namespace COPES_GPU::act
{

enum { THREADS = 128, MOST_LANES = 32 };

/* A lane's part of a row: P vectors, `lanes` apart. */
template <typename T, int P> struct row_part {
    static constexpr int V = vector_length<T>;
    float x[P][V];

    __device__ __forceinline__ void read(const T *row, int lane, int lanes, int units, float fill)
    {
        raw<T, V> words[P];
#pragma unroll
        for (int p = 0; p < P; p++)
            if (lane + p * lanes < units)
                words[p] = raw<T, V>::read(row + (lane + p * lanes) * V);
#pragma unroll
        for (int p = 0; p < P; p++) {
            if (lane + p * lanes < units)
                words[p].unpack(x[p]);
            else
                for (int i = 0; i < V; i++)
                    x[p][i] = fill;
        }
    }
    __device__ __forceinline__ void write(T *row, int lane, int lanes, int units) const
    {
#pragma unroll
        for (int p = 0; p < P; p++)
            if (lane + p * lanes < units)
                raw<T, V>::write(row + (lane + p * lanes) * V, x[p]);
    }
};

/* What a name says of a lane's vectors. */
inline constexpr variant_word vector_counts[] = {"2", "4"};

/* What a name says of the passes that a call has. */
inline constexpr variant_word passes_names[] = {"", "sums", "of_sums"};

/* Why lanes do not hold the rows of a problem; nullptr: they do. */
template <typename T> const char *refuse_lanes(const copes_act_problem &problem)
{
    constexpr int V = vector_length<T>;
    const int64_t length = problem.shape[problem.axis];
    if (problem.axis != problem.rank - 1)
        return "the axis is not the innermost in memory";
    if (length % V != 0 || length > 4 * MOST_LANES * V)
        return "a row is not whole vectors of 16 bytes, or more than 128 of them";
    if (!in_vectors<T>(problem.src, problem.shape, problem.rank) ||
        !in_vectors<T>(problem.saved, problem.shape, problem.rank) ||
        !in_vectors<T>(problem.dst, problem.shape, problem.rank))
        return "a tensor's rows are not aligned to 16 bytes";
    return nullptr;
}

} // namespace COPES_GPU::act

#endif
