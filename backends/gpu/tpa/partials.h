/* The partial outputs of tpa_decode in the workspace. Every kernel that cuts the cache into parts leaves its parts'
 * sums and states there. */
#ifndef COPES_BACKENDS_GPU_TPA_PARTIALS_H
#define COPES_BACKENDS_GPU_TPA_PARTIALS_H

#include "backends/gpu/divide.h"
#include "backends/gpu/tpa/query.h"

#include "common/size.h"

namespace COPES_GPU::tpa
{

inline constexpr int MERGED_FEATURES = 16; /* features of a row that one team merges */

/* The keys of a query token in `parts` parts of `part` keys. */
struct cache_cut {
    int64_t parts, part;
};

inline int64_t chunks_of_row(const copes_tpa_problem &problem)
{
    return problem.e < 1 ? 1 : (problem.e + MERGED_FEATURES - 1) / MERGED_FEATURES;
}

/* May a problem be cut into parts? Chunks of rows must have numbers of 32 bits. A problem with more rows has enough
 * of them without parts. */
inline bool can_merge(const copes_tpa_problem &problem)
{
    return problem.e < INT32_MAX &&
           (double)problem.b * (double)problem.n * (double)problem.h * (double)chunks_of_row(problem) < 0x1p31;
}

/* The workspace: rows (a query token's head each) x parts x length() sums, and after all sums rows x parts states. */
struct partial_outputs {
    float *sums; /* nullptr: there are no parts, and kernels finish rows themselves */
    bool merged; /* the launch that leaves them also merges them */
    uint32_t parts, rows;
    divider by_chunk; /* divides by the chunks of a row */
    divider by_head;  /* by the heads of a query token */
    divider by_token; /* by the query tokens of a batch entry */

    partial_outputs() = default;
    partial_outputs(bool cooperative, const copes_tpa_problem &problem, const cache_cut &cut, void *workspace)
        : partial_outputs()
    {
        if (cut.parts == 1)
            return;
        sums = static_cast<float *>(workspace);
        merged = cooperative;
        parts = (uint32_t)cut.parts;
        rows = (uint32_t)(problem.b * problem.n * problem.h);
        by_chunk = divider(chunks_of_row(problem));
        by_head = divider(problem.h);
        by_token = divider(problem.n);
    }

    /* Sums of a row, in whole vectors of four. */
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

/* Bytes of the workspace. It is -1 if they do not fit 63 bits, or the number of a part does not fit 31. */
inline int64_t partials_bytes(const copes_tpa_problem &problem, const cache_cut &cut)
{
    if (cut.parts == 1)
        return 0;
    const int64_t of_part = partial_outputs::length(problem) * (int64_t)sizeof(float) + (int64_t)sizeof(row_state);
    const int64_t parts = copes_multiply(problem.b * problem.n * problem.h, cut.parts);
    return cut.parts > INT32_MAX ? -1 : copes_multiply(parts, of_part);
}

} // namespace COPES_GPU::tpa

#endif
