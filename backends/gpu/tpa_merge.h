/* Partial outputs of tpa_decode in the workspace, and the kernel that merges them: what every kernel that cuts the
 * cache into parts of a fixed length shares. */
#ifndef COPES_BACKENDS_GPU_TPA_MERGE_H
#define COPES_BACKENDS_GPU_TPA_MERGE_H

#include "backends/gpu/kernels.h"
#include "backends/gpu/tpa_query.h"

namespace COPES_GPU
{

/* The cache in `parts` parts of `part` keys. */
struct cache_cut {
    int64_t parts, part;
};

/* A partial: largest score, sum, E outputs. Those of a row, that is query token and head, are neighbours. */
DEVICE float *partial_at(const copes_tpa_problem &problem, const cache_cut &cut, float *partials, int64_t row,
                         int64_t part)
{
    return partials + (row * cut.parts + part) * (problem.e + 2);
}

inline size_t partials_bytes(const copes_tpa_problem &problem, const cache_cut &cut)
{
    const int64_t partials = cut.parts > 1 ? problem.b * problem.n * problem.h * cut.parts : 0;
    return (size_t)(partials * (problem.e + 2)) * sizeof(float);
}

/* May a problem be cut into parts? */
bool can_merge(const copes_tpa_problem &problem);

template <typename T>
copes_status merge_partials(const queue &to, const copes_tpa_problem &problem, const cache_cut &cut, float *partials);

} // namespace COPES_GPU

#endif
