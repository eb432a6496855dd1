/* How tpa_decode's scores become weights, stage by stage (online softmax). The reference is the largest score so
 * far. */
#ifndef COPES_BACKENDS_CUDA_TPA_WEIGHTS_H
#define COPES_BACKENDS_CUDA_TPA_WEIGHTS_H

#include "backends/cuda/tpa/slices.h"
#include "backends/gpu/tpa/query.h"

namespace COPES_GPU::tpa
{

/* The rows of a lane where a quad (lanes 4 g to 4 g + 3) has different keys of the same rows. There are one or two
 * rows. Score i of four belongs to row i / 2 if there are two. */
template <int ROWS> struct quad_rows {
    static constexpr int COUNT = ROWS;

    static __device__ __forceinline__ constexpr int of(int i)
    {
        return ROWS == 2 ? i % 4 / 2 : 0;
    }

    /* Does it hold for any lane of the warp? */
    __device__ __forceinline__ bool any(bool holds) const
    {
        return __any_sync(0xffffffffu, holds);
    }

    /* Gives the lanes of each row the largest of their values. */
    __device__ __forceinline__ void raise(float (&top)[ROWS]) const
    {
        for (int row = 0; row < ROWS; row++) {
            top[row] = fmaxf(top[row], shuffle_xor(top[row], 1));
            top[row] = fmaxf(top[row], shuffle_xor(top[row], 2));
        }
    }
};

/* The state of a lane's rows. */
template <typename T, typename Rows> struct row_weights {
    static constexpr int ROWS = Rows::COUNT;
    static constexpr float SLACK = 8;
    float most[ROWS], sum[ROWS]; /* `sum`: of the lane's own keys */

    /* A weight is 2^(score - most + headroom). `most` follows the largest score once this is more than SLACK above
     * it. So most stages shrink nothing. f16 ends at 2^16 and has few bits below 2^-14, so its weights start high,
     * and make_room lowers them where values are large. */
    float headroom;

    __device__ __forceinline__ void clear()
    {
        for (int row = 0; row < ROWS; row++)
            most[row] = -INFINITY, sum[row] = 0;
        headroom = is_f16<T> ? 14 - SLACK : 0;
    }

    /* The state of a row, over the lane's own keys. */
    __device__ __forceinline__ row_state state(int row) const
    {
        return {most[row] - headroom, sum[row]};
    }

    /* Raises `most` to the largest new score, in all lanes of a row at once, if any lane has a score more than SLACK
     * above it. Returns whether it did. The caller must then multiply its outputs by the factors `by`. */
    template <int N>
    __device__ __forceinline__ bool raise(const float (&s)[N][4], float (&by)[ROWS], const Rows &rows = {})
    {
        float top[ROWS];
        bool past = false;
        for (int row = 0; row < ROWS; row++)
            top[row] = -INFINITY;
#pragma unroll
        for (int i = 0; i < N * 4; i++)
            top[Rows::of(i)] = fmaxf(top[Rows::of(i)], s[i / 4][i % 4]);
        for (int row = 0; row < ROWS; row++)
            past |= top[row] > most[row] + SLACK;
        if (!rows.any(past))
            return false;
        for (int row = 0; row < ROWS; row++)
            top[row] = fmaxf(top[row], most[row]);
        rows.raise(top);
        for (int row = 0; row < ROWS; row++) {
            by[row] = exp2_term(most[row] - shift_of(top[row]));
            most[row] = top[row];
            sum[row] *= by[row];
        }
        return true;
    }

    /* Lowers the headroom until f16 holds the largest weight times `top`, the lane's largest coefficient. Returns
     * whether it did, with factors as above. */
    __device__ __forceinline__ bool make_room(float top, float (&by)[ROWS])
    {
        float factor = 1;
        while (__any_sync(0xffffffffu, headroom > -SLACK && top * exp2f(headroom + SLACK) > 0x1p15f)) {
            headroom -= 1;
            factor *= 0.5f;
        }
        for (int row = 0; row < ROWS; row++)
            sum[row] *= factor, by[row] = factor;
        return factor < 1;
    }

    /* Turns scores into weights, times weight_scale of the problem, which f16 does not need. A stage's weights have a
     * sum of their own, which keeps rounding errors few. */
    template <int N> __device__ __forceinline__ void exponentiate(float (&s)[N][4], float weight_scale)
    {
        float shift[ROWS], part[ROWS];
        for (int row = 0; row < ROWS; row++)
            shift[row] = shift_of(most[row]) - headroom, part[row] = 0;
#pragma unroll
        for (int i = 0; i < N * 4; i++) {
            float &e = s[i / 4][i % 4];
            e = exp2_term(e - shift[Rows::of(i)]);
            part[Rows::of(i)] += e;
            e *= is_f16<T> ? 1 : weight_scale;
        }
        for (int row = 0; row < ROWS; row++)
            sum[row] += part[row];
    }
};

} // namespace COPES_GPU::tpa

#endif
