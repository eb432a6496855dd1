/* How tpa_decode's scores become weights, stage by stage, with the largest score so far for a reference. */
#ifndef COPES_BACKENDS_CUDA_TPA_WEIGHTS_H
#define COPES_BACKENDS_CUDA_TPA_WEIGHTS_H

#include "backends/cuda/tpa/parts.h"
#include "backends/gpu/tpa/query.h"

namespace COPES_GPU::tpa
{

/* The rows of a lane, where four lanes hold different keys of the same rows: one, or two, which every four scores have two
 * each of. */
template <int ROWS> struct quad_rows {
    static constexpr int COUNT = ROWS;

    static __device__ __forceinline__ constexpr int of(int i)
    {
        return ROWS == 2 ? i % 4 / 2 : 0;
    }

    /* Does it hold for any lane of those that go on together? */
    __device__ __forceinline__ bool any(bool what) const
    {
        return __any_sync(0xffffffffu, what);
    }

    /* Brings each row its largest. */
    __device__ __forceinline__ void raise(float (&top)[ROWS]) const
    {
        for (int row = 0; row < ROWS; row++) {
            top[row] = fmaxf(top[row], shuffle_xor(top[row], 1));
            top[row] = fmaxf(top[row], shuffle_xor(top[row], 2));
        }
    }
};

/* Of a lane's rows. */
template <typename T, typename Rows> struct row_weights {
    static constexpr int ROWS = Rows::COUNT;
    static constexpr float SLACK = 8;
    float most[ROWS], sum[ROWS]; /* sums are of the lane's own keys */

    /* Weights are 2^(score - most + headroom), where `most` follows the largest score once that is SLACK past it. f16
     * has its largest number at 2^16 and few bits below 2^-14, so its weights start high, and sink where values are
     * large. */
    float headroom;

    __device__ __forceinline__ void clear()
    {
        for (int row = 0; row < ROWS; row++)
            most[row] = -INFINITY, sum[row] = 0;
        headroom = is_half<T> ? 14 - SLACK : 0;
    }

    /* A lane's part of its rows' states. */
    __device__ __forceinline__ row_state state(int row) const
    {
        return {most[row] - headroom, sum[row]};
    }

    /* Raises the maxima to those of new scores, for all lanes of a row at once, where that is worth it: what was
     * gathered before is then to shrink by the factors. */
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

    /* Lowers the headroom until f16 holds the largest weight times the lane's largest coefficient. */
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

    /* Scores become weights, in a unit that float16 has no use for. A stage's are summed by themselves, which keeps
     * rounding errors few. */
    template <int N> __device__ __forceinline__ void exponentiate(float (&s)[N][4], float unit)
    {
        float shift[ROWS], part[ROWS];
        for (int row = 0; row < ROWS; row++)
            shift[row] = shift_of(most[row]) - headroom, part[row] = 0;
#pragma unroll
        for (int i = 0; i < N * 4; i++) {
            float &e = s[i / 4][i % 4];
            e = exp2_term(e - shift[Rows::of(i)]);
            part[Rows::of(i)] += e;
            e *= is_half<T> ? 1 : unit;
        }
        for (int row = 0; row < ROWS; row++)
            sum[row] += part[row];
    }
};

} // namespace COPES_GPU::tpa

#endif
