/* The partial rows (heads) of a warpgroup in float32, and how they are merged in shared memory. */
#ifndef COPES_BACKENDS_CUDA_TPA_FLOAT32_ROWS_H
#define COPES_BACKENDS_CUDA_TPA_FLOAT32_ROWS_H

#include "backends/cuda/tpa/float32/group.h"
#include "backends/cuda/tpa/wgmma/rows.h"

#if COPES_SM90A

namespace COPES_GPU::tpa::float32
{

/* A lane's values of its 8 rows (group_rows). o[row][k]: features 64 k + 2 (8 warp + g) and the next. */
template <int WIDTH> struct row_partial {
    static constexpr int ROWS = group_rows::COUNT, TILES = WIDTH / 64;
    const group_place &w;
    row_state state[ROWS];
    float2 o[ROWS][TILES];

    __device__ __forceinline__ row_partial(const group_place &place, group_outputs<WIDTH> &out) : w(place)
    {
        group_rows{w}.add(out.weights.sum);
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            const int i = row / 2 * 4 + row % 2;
            state[row] = out.weights.state(row);
            for (int k = 0; k < TILES; k++)
                o[row][k] = make_float2(out.o[k][i], out.o[k][i + 2]);
        }
    }

    template <typename Row> __device__ __forceinline__ Row &row_of(Row *rows, int row) const
    {
        return rows[row / 2 * 8 + 2 * w.t + row % 2];
    }

    __device__ __forceinline__ int place(int k) const
    {
        return 32 * k + 8 * w.warp + w.g;
    }

    __device__ __forceinline__ void store(gathered_row<WIDTH> *rows) const
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            gathered_row<WIDTH> &row = row_of(rows, i);
            if (w.warp == 0 && w.g == 0)
                row.state = state[i];
            for (int k = 0; k < TILES; k++)
                reinterpret_cast<float2 *>(row.o)[place(k)] = o[i][k];
        }
    }

    __device__ __forceinline__ void add(const gathered_row<WIDTH> *rows)
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const gathered_row<WIDTH> &row = row_of(rows, i);
            const row_factors by(state[i], row.state);
            for (int k = 0; k < TILES; k++) {
                const float2 x = reinterpret_cast<const float2 *>(row.o)[place(k)];
                o[i][k] = make_float2(by.of(o[i][k].x, x.x), by.of(o[i][k].y, x.y));
            }
        }
        warpgroup_sync(w.group); /* all lanes have read the states of the rows */
    }
};

} // namespace COPES_GPU::tpa::float32

#endif

#endif
