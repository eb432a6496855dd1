/* A consumer warp of tpa_mma: 16 heads, a stage at a time. For each rank, scores gain the query times bk, times ak,
 * and outputs gain the weights times av, times bv. So neither keys nor values are formed. Scores of a lane become
 * weights of the same lane (product.h has the registers). Lanes exchange only the maximum of a row, and only while
 * it grows. Weights of 16-bit storage are rounded to it, which costs less accuracy than rounding the output does. */
#ifndef COPES_BACKENDS_CUDA_TPA_MMA_WARP_H
#define COPES_BACKENDS_CUDA_TPA_MMA_WARP_H

#include "backends/cuda/tpa/mma/product.h"
#include "backends/cuda/tpa/weights.h"

namespace COPES_GPU::tpa::mma
{

/* The outputs so far of a warp's 16 heads, and the state of their rows. */
template <typename T, int WIDTH> struct warp_outputs {
    typedef tensor_product<T, WIDTH> product;
    typename product::outputs o;
    row_weights<T, quad_rows<2>> weights; /* of heads g and g + 8 */

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++)
            o[i / 4][i % 4] = 0;
        weights.clear();
    }

    __device__ __forceinline__ void shrink(const float (&by)[2])
    {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++)
            o[i / 4][i % 4] *= by[i % 4 / 2];
    }
};

/* Computes the scores of a stage. `count` of its keys exist; scores of the others are -infinity. */
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
        if constexpr (slices_of_query<T>(true) > slices_of_query<T>(false))
            if (q.slices > 2)
                product::multiply_keys_by_rest(dot, w, q, rows);
        product::multiply_keys(dot, w, q, rows);
        product::coefficients(k, w, stage, rk, r);
#pragma unroll
        for (int i = 0; i < scores; i++) {
            const float x = is_f16<T> ? dot[i / 4][i % 4] * q.descale[i % 4 / 2] : dot[i / 4][i % 4];
            s[i / 4][i % 4] = fmaf(x, k[i / 4][i % 4], s[i / 4][i % 4]);
        }
    }
    if (count < product::TILES * 8)
#pragma unroll
        for (int i = 0; i < scores; i++)
            if (i / 4 * 8 + 2 * w.t + i % 2 >= count)
                s[i / 4][i % 4] = -INFINITY;
}

/* Attends with a warp's heads to a stage. */
template <typename T, int WIDTH>
DEVICE void attend(const copes_tpa_problem &problem, const stage_ring &ring, uint32_t stage, int count,
                   const warp_place &w, const warp_query<T, WIDTH> &q, warp_outputs<T, WIDTH> &out)
{
    typedef tensor_product<T, WIDTH> product;
    constexpr int scores = product::TILES * 4, bytes = product::TILES * 8 * product::ROW;
    const int rv = (int)problem.rv;
    typename product::scores s, v;
    score_stage<T, WIDTH>(s, problem, ring, stage, count, w, q);
    float by[2];
    if (out.weights.raise(s, by))
        out.shrink(by);
    if constexpr (is_f16<T>)
        if (out.weights.make_room(product::largest_coefficient(w, stage + ring.av, rv), by))
            out.shrink(by);
    out.weights.exponentiate(s, problem.weight_scale);
    for (int r = 0; r < rv; r++) {
        product::coefficients(v, w, stage + ring.av, rv, r);
#pragma unroll
        for (int i = 0; i < scores; i++)
            v[i / 4][i % 4] *= s[i / 4][i % 4];
        product::multiply_values(out.o, w, v, stage + ring.bv + r * bytes);
    }
}

} // namespace COPES_GPU::tpa::mma

#endif
