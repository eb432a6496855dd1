/* A warp's share of tpa_decode on tensor cores: 16 heads, a stage's keys at a time. Scores are the query times the rows
 * of bk, outputs gain the weights times the rows of bv, rank by rank, and coefficients scale the results where they
 * lie: a lane's scores are a lane's weights, so nothing crosses lanes but a row's maximum, and that only while it
 * grows. Weights of 16-bit storage are rounded to it, which costs less than rounding the output does. */
#ifndef COPES_BACKENDS_CUDA_TPA_WARP_H
#define COPES_BACKENDS_CUDA_TPA_WARP_H

#include "backends/cuda/tpa_product.h"

namespace COPES_GPU
{

/* What a warp has gathered of its 16 heads. */
template <typename T, int WIDTH> struct warp_outputs {
    typedef tensor_product<T, WIDTH> product;
    static constexpr int SCORES = product::TILES * 4;
    static constexpr float SLACK = 8;
    typename product::outputs o;
    float most[2], sum[2]; /* of heads g and g + 8; sums of the lane's own keys */

    /* Weights are 2^(score - most + headroom), where `most` follows the largest score once that is SLACK past it. f16
     * has its largest number at 2^16 and few bits below 2^-14, so its weights start high, and sink where values are
     * large. */
    float headroom;

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++)
            o[i / 4][i % 4] = 0;
        for (int half = 0; half < 2; half++)
            most[half] = -INFINITY, sum[half] = 0;
        headroom = is_half<T> ? 14 - SLACK : 0;
    }

    __device__ __forceinline__ void shrink(float low, float high)
    {
        sum[0] *= low, sum[1] *= high;
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++)
            o[i][0] *= low, o[i][1] *= low, o[i][2] *= high, o[i][3] *= high;
    }

    /* Raises the maxima to those of new scores, for all lanes of a row at once. */
    __device__ __forceinline__ void raise(const typename product::scores &s)
    {
        float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int i = 0; i < SCORES; i++)
            top[i % 4 / 2] = fmaxf(top[i % 4 / 2], s[i / 4][i % 4]);
        if (!__any_sync(0xffffffffu, top[0] > most[0] + SLACK || top[1] > most[1] + SLACK))
            return;
        float by[2];
        for (int half = 0; half < 2; half++) {
            top[half] = fmaxf(top[half], most[half]);
            top[half] = fmaxf(top[half], shuffle_xor(top[half], 1));
            top[half] = fmaxf(top[half], shuffle_xor(top[half], 2));
            by[half] = exp2_term(most[half] - shift_of(top[half]));
            most[half] = top[half];
        }
        shrink(by[0], by[1]);
    }

    /* Lowers the headroom until f16 holds the largest weight times these coefficients. */
    __device__ __forceinline__ void make_room(const typename product::scores &v)
    {
        float top = 0;
#pragma unroll
        for (int i = 0; i < SCORES; i++)
            top = fmaxf(top, fabsf(v[i / 4][i % 4]));
        while (__any_sync(0xffffffffu, headroom > -SLACK && top * exp2f(headroom + SLACK) > 0x1p15f)) {
            headroom -= 1;
            shrink(0.5f, 0.5f);
        }
    }

    /* Scores become weights. A stage's are summed by themselves, which keeps rounding errors few. */
    __device__ __forceinline__ void exponentiate(typename product::scores &s)
    {
        const float shift[2] = {shift_of(most[0]) - headroom, shift_of(most[1]) - headroom};
        float part[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < SCORES; i++) {
            float &e = s[i / 4][i % 4];
            e = exp2_term(e - shift[i % 4 / 2]);
            part[i % 4 / 2] += e;
        }
        for (int half = 0; half < 2; half++)
            sum[half] += part[half];
    }
};

/* Scores of a stage, of whose keys `count` exist. */
template <typename T, int WIDTH>
DEVICE void score_stage(typename tensor_product<T, WIDTH>::scores &s, const copes_tpa_problem &problem,
                        const stage_ring &ring, uint32_t stage, int count, const warp_place &w,
                        const warp_query<T, WIDTH> &q)
{
    typedef tensor_product<T, WIDTH> product;
    constexpr int scores = product::TILES * 4, bytes = product::TILES * 8 * product::ROW;
    const int rk = (int)problem.rk;
#pragma unroll
    for (int i = 0; i < scores; i++)
        s[i / 4][i % 4] = 0;
    for (int r = 0; r < rk; r++) {
        typename product::scores dot = {}, k;
        const uint32_t rows = stage + ring.bk + r * bytes;
        if constexpr (parts_of_query<T>(true) > parts_of_query<T>(false))
            if (q.parts > 2)
                product::multiply_keys_by_rest(dot, w, q, rows);
        product::multiply_keys(dot, w, q, rows);
        product::coefficients(k, w, stage, rk, r);
#pragma unroll
        for (int i = 0; i < scores; i++) {
            const float x = is_half<T> ? dot[i / 4][i % 4] * q.unit[i % 4 / 2] : dot[i / 4][i % 4];
            s[i / 4][i % 4] = fmaf(x, k[i / 4][i % 4], s[i / 4][i % 4]);
        }
    }
    if (count < product::TILES * 8)
#pragma unroll
        for (int i = 0; i < scores; i++)
            if (i / 4 * 8 + 2 * w.t + i % 2 >= count)
                s[i / 4][i % 4] = -INFINITY;
}

/* Attention of a warp's heads over a stage. */
template <typename T, int WIDTH>
DEVICE void attend(const copes_tpa_problem &problem, const stage_ring &ring, uint32_t stage, int count,
                   const warp_place &w, const warp_query<T, WIDTH> &q, warp_outputs<T, WIDTH> &out)
{
    typedef tensor_product<T, WIDTH> product;
    constexpr int scores = product::TILES * 4, bytes = product::TILES * 8 * product::ROW;
    const int rv = (int)problem.rv;
    typename product::scores s, v;
    score_stage<T, WIDTH>(s, problem, ring, stage, count, w, q);
    out.raise(s);
    for (int r = 0; is_half<T> && r < rv; r++) {
        product::coefficients(v, w, stage + ring.av, rv, r);
        out.make_room(v);
    }
    out.exponentiate(s);
    for (int r = 0; r < rv; r++) {
        product::coefficients(v, w, stage + ring.av, rv, r);
#pragma unroll
        for (int i = 0; i < scores; i++)
            v[i / 4][i % 4] *= s[i / 4][i % 4];
        product::multiply_values(out.o, w, v, stage + ring.bv + r * bytes);
    }
}

} // namespace COPES_GPU

#endif
