/* What the warpgroups of a cluster's blocks have gathered of their rows, that is heads, becomes the outputs: the groups of a
 * block that have the same rows merge theirs, each block sends every other one its part of the rows that this one is to
 * finish, and finishes its own once all parts of them have come. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_ROWS_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_ROWS_H

#include "backends/cuda/tpa/wgmma/group.h"
#include "backends/gpu/tpa/output.h"

#if COPES_SM90A

namespace COPES_GPU::tpa::wgmma
{

/* A row in shared memory: its sums and its state; rows spread over the banks. */
template <int WIDTH> struct gathered_row {
    float o[WIDTH];
    row_state state;
    float pad[6];
};

/* A lane's part of its tile's rows, which is of one of them: what its group has gathered. */
template <typename T, int WIDTH> struct row_part {
    const group_place &w;
    row_state state;
    float2 o[WIDTH / 8]; /* features 2t and 2t + 1 of each 8 */

    __device__ __forceinline__ row_part(const group_place &place, const group_outputs<T, WIDTH> &out) : w(place)
    {
        state = out.weights.state(0);
        state.sum += shuffle_xor(state.sum, 1);
        state.sum += shuffle_xor(state.sum, 2);
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++)
            o[i] = make_float2(out.o[4 * i] + out.o[4 * i + 2], out.o[4 * i + 1] + out.o[4 * i + 3]);
    }

    __device__ __forceinline__ void store(gathered_row<WIDTH> *rows) const
    {
        gathered_row<WIDTH> &row = rows[8 * w.warp + w.g];
        if (w.t == 0)
            row.state = state;
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++)
            reinterpret_cast<float2 *>(row.o)[4 * i + w.t] = o[i];
    }

    /* Takes in what another group has left of the row. */
    __device__ __forceinline__ void add(const gathered_row<WIDTH> *rows)
    {
        const gathered_row<WIDTH> &row = rows[8 * w.warp + w.g];
        const row_factors by(state, row.state);
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++) {
            const float2 x = reinterpret_cast<const float2 *>(row.o)[4 * i + w.t];
            o[i] = make_float2(by.of(o[i].x, x.x), by.of(o[i].y, x.y));
        }
        __syncwarp(); /* all its lanes have read the row's state */
    }
};

/* How the blocks of a cluster share out their rows: `share` of them each, as far as there are rows. */
struct row_shares {
    int rows, blocks, share;

    /* Rows of a block. */
    __device__ __forceinline__ int of(int rank) const
    {
        const int left = rows - rank * share;
        return left < 0 ? 0 : left < share ? left : share;
    }
};

/* Sends the other blocks their shares: a thread for each block. */
template <int WIDTH> DEVICE void send_rows(const row_shares &shares, uint32_t rows, uint32_t received, uint32_t barrier)
{
    constexpr int size = (int)sizeof(gathered_row<WIDTH>);
    const int own = (int)cluster_rank(), to = threadIdx.x, count = to < shares.blocks ? shares.of(to) : 0;
    if (count > 0 && to != own)
        cp_async_bulk_to_rank(received + own * shares.share * size, rows + to * shares.share * size, count * size,
                              barrier, to);
}

/* Four features of a row of the block's share: their parts, of which it has one itself. */
template <int WIDTH> struct received_parts {
    const gathered_row<WIDTH> *own, *received;
    int rank, share, feature;

    __device__ __forceinline__ const gathered_row<WIDTH> &row_of(int part) const
    {
        return part == rank ? *own : received[part * share];
    }
    __device__ __forceinline__ row_state state(int part, int) const
    {
        return row_of(part).state;
    }
    __device__ __forceinline__ float4 sums(int part) const
    {
        return *reinterpret_cast<const float4 *>(row_of(part).o + feature);
    }
};

/* Finishes the block's share of the rows, of which the others' parts have come: the work of all groups. A warp that has
 * nothing else to do goes through it beforehand, without parts and without results, so that the instructions are near when
 * they are needed. */
template <typename T, int WIDTH>
DEVICE void finish_rows(const copes_tpa_problem &problem, const output_place &to, const row_shares &shares,
                        const gathered_row<WIDTH> *rows, const gathered_row<WIDTH> *received, bool rehearsal)
{
    constexpr int items = WIDTH / 4, nowhere = 1 << 16; /* of a row; past its last feature */
    const int rank = rehearsal ? 0 : (int)cluster_rank(), first = rank * shares.share, count = shares.of(rank);
    const int blocks = shares.blocks;
    for (int item = threadIdx.x % CONSUMERS; item < count * items; item += CONSUMERS) {
        const int row = item / items, feature = item % items * 4, head = to.head + first + row;
        if (head >= problem.h)
            continue;
        const received_parts<WIDTH> parts = {rows + first + row, received + row, rank, shares.share, feature};
        const int there = rehearsal ? 0 : blocks;
        const output_item<1> out =
            blocks <= 4 ? merge_item<4, 1>(parts, blocks, there) : merge_item<8, 1>(parts, blocks, there);
        const int place = rehearsal ? nowhere : feature, features[4] = {place, place + 1, place + 2, place + 3};
        put_output<T, 4>(problem, to, head, features, out.row[0], out.o);
    }
}

} // namespace COPES_GPU::tpa::wgmma

#endif

#endif
