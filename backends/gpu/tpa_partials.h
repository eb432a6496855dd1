/* Partial outputs of tpa_decode in the workspace, which every kernel leaves there that cuts the cache into parts. */
#ifndef COPES_BACKENDS_GPU_TPA_PARTIALS_H
#define COPES_BACKENDS_GPU_TPA_PARTIALS_H

#include "backends/gpu/divide.h"
#include "backends/gpu/tpa_query.h"

namespace COPES_GPU
{

inline constexpr int MERGED_FEATURES = 16; /* of a row, merged at a time */

/* The cache in `parts` parts of `part` keys. */
struct cache_cut {
    int64_t parts, part;
};

inline int64_t chunks_of_row(const copes_tpa_problem &problem)
{
    return problem.e < 1 ? 1 : (problem.e + MERGED_FEATURES - 1) / MERGED_FEATURES;
}

/* May a problem be cut into parts? One that has too many rows to be numbered in chunks has rows enough without. */
inline bool can_merge(const copes_tpa_problem &problem)
{
    return problem.e < INT32_MAX &&
           (double)problem.b * (double)problem.n * (double)problem.h * (double)chunks_of_row(problem) < 0x1p31;
}

/* Those of a row, that is a query token's head, are neighbours: the sums of its features, in whole vectors of four; after
 * all sums there are the states. */
struct partial_outputs {
    float *sums; /* nullptr: there are none, rows are finished where they are computed */
    bool merged; /* in the launch that leaves them, when all of its blocks have met */
    uint32_t parts, rows;
    divider by_chunk, by_head, by_token; /* of what is merged: 16 features, of a head, of a query token */

    partial_outputs() = default;
    partial_outputs(bool meets, const copes_tpa_problem &problem, const cache_cut &cut, void *workspace)
        : partial_outputs()
    {
        if (cut.parts == 1)
            return;
        sums = static_cast<float *>(workspace);
        merged = meets;
        parts = (uint32_t)cut.parts;
        rows = (uint32_t)(problem.b * problem.n * problem.h);
        by_chunk = divider(chunks_of_row(problem));
        by_head = divider(problem.h);
        by_token = divider(problem.n);
    }

    /* Floats. */
    __host__ __device__ static int64_t length(const copes_tpa_problem &problem)
    {
        return (problem.e + 3) / 4 * 4;
    }
    __device__ __forceinline__ float *sums_at(const copes_tpa_problem &problem, int64_t row, int64_t part) const
    {
        return sums + (row * parts + part) * length(problem);
    }
    __device__ __forceinline__ row_state *state_at(const copes_tpa_problem &problem, int64_t row, int64_t part) const
    {
        return reinterpret_cast<row_state *>(sums_at(problem, rows, 0)) + row * parts + part;
    }
};

inline size_t partials_bytes(const copes_tpa_problem &problem, const cache_cut &cut)
{
    const size_t of_part = (size_t)partial_outputs::length(problem) * sizeof(float) + sizeof(row_state);
    return cut.parts > 1 ? (size_t)(problem.b * problem.n * problem.h * cut.parts) * of_part : 0;
}

} // namespace COPES_GPU

#endif
