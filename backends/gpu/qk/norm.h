/* RMSNorm of a block's rows: the weights, and the sums over a row or over all heads of a token. */
#ifndef COPES_BACKENDS_GPU_QK_NORM_H
#define COPES_BACKENDS_GPU_QK_NORM_H

#include "backends/gpu/qk/rows.h"
#include "backends/gpu/reduce.h"

namespace COPES_GPU::qk
{

/* Reads weights that all heads have, of q and then of k, into shared memory. */
template <typename T> DEVICE void read_shared_weights(const row_arguments &all, float *to)
{
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), threads = (int)(blockDim.x * blockDim.y);
    for (int i = thread; i < 2 * all.d; i += threads) {
        const int keys = i >= all.d;
        const norm_weights weights = side_of(read_again(all), keys).weights;
        if (weights.data == nullptr || weights.row != 0)
            continue;
        const int at = i - (keys != 0 ? all.d : 0);
        to[i] = all.weight_offset + (weights.narrow ? read_scalar(static_cast<const T *>(weights.data) + at)
                                                    : static_cast<const float *>(weights.data)[at]);
    }
}

template <int V> DEVICE void read_floats(const float *from, float (&to)[V])
{
#pragma unroll
    for (int i = 0; i < V; i += 4)
        raw<f32, 4>::read(from + i).unpack(reinterpret_cast<float(&)[4]>(to[i]));
}

/* The weights of a unit's features, which are in shared memory where all heads have the same. */
template <typename T, int V>
DEVICE void find_weights(const row_arguments &all, const row_place &row, const lrpe::unit_places &at,
                         const float *shared, float (&w)[2][V])
{
    const norm_weights weights = side_of(all, row.keys).weights;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int place = row.place.head * weights.row + at.plain[i];
        if (weights.row == 0) {
            read_floats(shared + (row.keys ? all.d : 0) + at.plain[i], w[i]);
            continue;
        }
        if (weights.narrow)
            raw<T, V>::read(static_cast<const T *>(weights.data) + place).unpack(w[i]);
        else
            read_floats(static_cast<const float *>(weights.data) + place, w[i]);
#pragma unroll
        for (int j = 0; j < V; j++)
            w[i][j] += all.weight_offset;
    }
}

/* The sum of a unit's products a b, of features that there are. */
template <int V> DEVICE float sum_of_unit(const lrpe::unit_places &at, const float (&a)[2][V], const float (&b)[2][V])
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2 * V; i++)
        sum = at.there && (i < V || at.second) ? fmaf(a[i / V][i % V], b[i / V][i % V], sum) : sum;
    return sum;
}

/* Sums over rows that meet in shared memory: COUNT numbers for each row of the block and each warp of a row. */
template <int COUNT> struct row_sums {
    float *memory;
    int parts; /* warps of a row */

    __device__ __forceinline__ void put(int row, int part, const float (&sum)[COUNT]) const
    {
        for (int i = 0; i < COUNT; i++)
            memory[(row * parts + part) * COUNT + i] = sum[i];
    }
    /* The sums behind a row: its own, or those of all heads of its side and token. */
    __device__ __forceinline__ void get(const row_arguments &all, const row_place &row, int share,
                                        float (&sum)[COUNT]) const
    {
        const int own = (int)threadIdx.y + share * (int)blockDim.y;
        const int first = !all.over_heads ? own : row.token * all.rows + (row.keys ? all.side[0].heads : 0);
        const int count = !all.over_heads ? 1 : side_of(all, row.keys).heads;
        for (int i = 0; i < COUNT; i++)
            sum[i] = sum_of((row.live ? first : 0) * parts, count * parts, i);
    }

  private:
    /* Of `count` of them. What additions lose counts where there are many; an infinity has lost nothing. */
    __device__ __forceinline__ float sum_of(int first, int count, int i) const
    {
        float plain = 0;
        long_sum exact;
        for (int at = first; at < first + count; at++) {
            plain += memory[at * COUNT + i];
            exact.add(memory[at * COUNT + i]);
        }
        return isfinite(plain) ? exact.sum : plain;
    }
};

/* Sums over a row, of which this thread has `sum`: of all of its lanes or, in shared memory, of those of a warp. */
template <norm NORM, int COUNT> DEVICE void sum_lanes(const row_sums<COUNT> &sums, int share, float (&sum)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sum[i] = sum_of_lanes(sum[i], min((int)blockDim.x, 32));
    if (NORM == norm::block && threadIdx.x % 32 == 0)
        sums.put((int)threadIdx.y + share * (int)blockDim.y, (int)threadIdx.x / 32, sum);
}

/* RMSNorm's factor of a row whose squares have this sum. */
DEVICE float norm_factor(const row_arguments &all, const side_rows &side, float squares)
{
    return 1 / sqrtf(fmaf(squares, side.inverse_length, all.eps));
}

} // namespace COPES_GPU::qk

#endif
