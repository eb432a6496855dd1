/* Finding an element of an act problem: offsets in its tensors from an index over some of its dimensions. */
#ifndef COPES_BACKENDS_GPU_ACT_STRIDES_H
#define COPES_BACKENDS_GPU_ACT_STRIDES_H

#include "backends/gpu/divide.h"
#include "backends/gpu/extremes.h"
#include "common/problem.h"

namespace COPES_GPU::act
{

/* The dimensions that an index counts, the last one fastest. A stride is that of one step, in elements. */
struct act_strides {
    int rank = 0;
    int64_t count = 1; /* the product of the lengths */
    int64_t length[COPES_MAX_RANK];
    divider lengths[COPES_MAX_RANK]; /* for a count of 31 bits */
    int64_t src[COPES_MAX_RANK], saved[COPES_MAX_RANK], dst[COPES_MAX_RANK], sums[COPES_MAX_RANK];

    /* Adds a dimension of the problem, of which a step takes `unit` elements. Dimensions that one step can count become one, as a
     * thread divides once less. */
    void add(const copes_act_problem &problem, int dimension, int unit)
    {
        const int64_t steps = problem.shape[dimension] / unit;
        if (steps == 1)
            return;
        count *= steps;
        const int64_t next[] = {problem.src.stride[dimension] * unit, problem.saved.stride[dimension] * unit,
                                problem.dst.stride[dimension] * unit, problem.sums.stride[dimension]};
        const int last = rank - 1;
        const bool goes_on = rank > 0 && src[last] == steps * next[0] && saved[last] == steps * next[1] &&
                             dst[last] == steps * next[2] && sums[last] == steps * next[3];
        const int here = goes_on ? last : rank++;
        length[here] = goes_on ? length[here] * steps : steps;
        lengths[here] = divider(lesser<int64_t>(length[here], INT32_MAX));
        src[here] = next[0];
        saved[here] = next[1];
        dst[here] = next[2];
        sums[here] = next[3];
    }
};

struct act_offsets {
    int64_t src, saved, dst, sums;
};

DEVICE act_offsets find_offsets(const act_strides &s, int64_t index)
{
    const bool near = s.count <= INT32_MAX;
    act_offsets at = {0, 0, 0, 0};
#pragma unroll 1 /* as a 64-bit division has many instructions */
    for (int i = s.rank - 1; i >= 0; i--) {
        const int64_t above = i == 0 ? 0 : near ? (uint32_t)index / s.lengths[i] : index / s.length[i];
        const int64_t here = index - above * s.length[i];
        index = above;
        at.src += here * s.src[i];
        at.saved += here * s.saved[i];
        at.dst += here * s.dst[i];
        at.sums += here * s.sums[i];
    }
    return at;
}

} // namespace COPES_GPU::act

#endif
