/* How tpa_decode's scores become weights, stage by stage, with the largest score so far for a reference. */
#ifndef COPES_BACKENDS_CUDA_TPA_WEIGHTS_H
#define COPES_BACKENDS_CUDA_TPA_WEIGHTS_H

#include "backends/cuda/tpa_parts.h"
#include "backends/gpu/tpa_query.h"

namespace COPES_GPU
{

/* Of a lane's rows: one, or two, which every four scores have two each of. The four lanes of a row hold different
 * keys. */
template <typename T, int ROWS> struct row_weights {
    static constexpr float SLACK = 8;
    float most[ROWS], sum[ROWS]; /* sums are of the lane's own keys */

    /* Weights are 2^(score - most + headroom), where `most` follows the largest score once that is SLACK past it. f16
     * has its largest number at 2^16 and few bits below 2^-14, so its weights start high, and sink where values are
     * large. */
    float headroom;

    static __device__ __forceinline__ constexpr int row_of(int i)
    {
        return ROWS == 2 ? i % 4 / 2 : 0;
    }

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
    template <int N> __device__ __forceinline__ bool raise(const float (&s)[N][4], float (&by)[ROWS])
    {
        float top[ROWS];
        bool past = false;
        for (int row = 0; row < ROWS; row++)
            top[row] = -INFINITY;
#pragma unroll
        for (int i = 0; i < N * 4; i++)
            top[row_of(i)] = fmaxf(top[row_of(i)], s[i / 4][i % 4]);
        for (int row = 0; row < ROWS; row++)
            past |= top[row] > most[row] + SLACK;
        if (!__any_sync(0xffffffffu, past))
            return false;
        for (int row = 0; row < ROWS; row++) {
            top[row] = fmaxf(top[row], most[row]);
            top[row] = fmaxf(top[row], shuffle_xor(top[row], 1));
            top[row] = fmaxf(top[row], shuffle_xor(top[row], 2));
            by[row] = exp2_term(most[row] - shift_of(top[row]));
            most[row] = top[row];
            sum[row] *= by[row];
        }
        return true;
    }

    /* Lowers the headroom until f16 holds the largest weight times these coefficients. */
    template <int N> __device__ __forceinline__ bool make_room(const float (&v)[N][4], float (&by)[ROWS])
    {
        float top = 0, factor = 1;
#pragma unroll
        for (int i = 0; i < N * 4; i++)
            top = fmaxf(top, fabsf(v[i / 4][i % 4]));
        while (__any_sync(0xffffffffu, headroom > -SLACK && top * exp2f(headroom + SLACK) > 0x1p15f)) {
            headroom -= 1;
            factor *= 0.5f;
        }
        for (int row = 0; row < ROWS; row++)
            sum[row] *= factor, by[row] = factor;
        return factor < 1;
    }

    /* Scores become weights. A stage's are summed by themselves, which keeps rounding errors few. */
    template <int N> __device__ __forceinline__ void exponentiate(float (&s)[N][4])
    {
        float shift[ROWS], part[ROWS];
        for (int row = 0; row < ROWS; row++)
            shift[row] = shift_of(most[row]) - headroom, part[row] = 0;
#pragma unroll
        for (int i = 0; i < N * 4; i++) {
            float &e = s[i / 4][i % 4];
            e = exp2_term(e - shift[row_of(i)]);
            part[row_of(i)] += e;
        }
        for (int row = 0; row < ROWS; row++)
            sum[row] += part[row];
    }
};

} // namespace COPES_GPU

#endif
