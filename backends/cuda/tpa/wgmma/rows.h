/* How the rows (heads) of a cluster become outputs, in three steps:
 *   1. The warpgroups of a block that have the same heads merge their rows in shared memory (gather_rows in wgmma.cu).
 *   2. Each block sends to every other block its rows of those that the other finishes (send_rows).
 *   3. Each block merges and finishes its share of the rows, once they have come from all blocks (finish_rows). */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_ROWS_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_ROWS_H

#include "backends/cuda/tpa/wgmma/group.h"
#include "backends/gpu/tpa/output.h"

#if COPES_SM90A

namespace COPES_GPU::tpa::wgmma
{

/* A row in shared memory: sums over some of the keys, and their state. The padding spreads rows over the banks. */
template <int WIDTH> struct gathered_row {
    float o[WIDTH];
    row_state state;
    float pad[6];
};

/* A lane's values of its row: o[j] is features 8 j + 2t and 8 j + 2t + 1. */
template <typename T, int WIDTH> struct row_partial {
    const group_place &w;
    row_state state;
    float2 o[WIDTH / 8];

    __device__ __forceinline__ row_partial(const group_place &place, const group_outputs<T, WIDTH> &out) : w(place)
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

    /* Merges what the other group has stored of the row. */
    __device__ __forceinline__ void add(const gathered_row<WIDTH> *rows)
    {
        const gathered_row<WIDTH> &row = rows[8 * w.warp + w.g];
        const row_factors by(state, row.state);
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++) {
            const float2 x = reinterpret_cast<const float2 *>(row.o)[4 * i + w.t];
            o[i] = make_float2(by.of(o[i].x, x.x), by.of(o[i].y, x.y));
        }
        __syncwarp(); /* all lanes have read the row's state */
    }
};

/* How the blocks of a cluster share their rows: block i finishes up to `share` of them from i * share on. */
struct row_shares {
    int rows, blocks, share;

    /* The number of rows of a block. */
    __device__ __forceinline__ int of(int block) const
    {
        const int left = rows - block * share;
        return left < 0 ? 0 : left < share ? left : share;
    }
};

/* Sends the other blocks their shares: one thread for each block. */
template <int WIDTH> DEVICE void send_rows(const row_shares &shares, uint32_t rows, uint32_t received, uint32_t barrier)
{
    constexpr int size = (int)sizeof(gathered_row<WIDTH>);
    const int own = (int)cluster_rank(), to = threadIdx.x, count = to < shares.blocks ? shares.of(to) : 0;
    if (count > 0 && to != own)
        cp_async_bulk_to_rank(received + own * shares.share * size, rows + to * shares.share * size, count * size,
                              barrier, to);
}

/* Four features of a row in each block of the cluster. The block's own are in its rows, and the others' have been
 * received. */
template <int WIDTH> struct received_partials {
    const gathered_row<WIDTH> *own, *received;
    int block, share, feature;

    __device__ __forceinline__ const gathered_row<WIDTH> &row_of(int of) const
    {
        return of == block ? *own : received[of * share];
    }
    __device__ __forceinline__ row_state state(int of, int) const
    {
        return row_of(of).state;
    }
    __device__ __forceinline__ float4 sums(int of) const
    {
        return *reinterpret_cast<const float4 *>(row_of(of).o + feature);
    }
};

/* Finishes the block's share of the rows: the work of all consumers. warm_up: the producer, which has nothing else
 * to do, runs the same code before, without inputs and outputs. So the instructions are in the caches when the
 * consumers need them. */
template <typename T, int WIDTH>
DEVICE void finish_rows(const copes_tpa_problem &problem, const output_place &to, const row_shares &shares,
                        const gathered_row<WIDTH> *rows, const gathered_row<WIDTH> *received, bool warm_up)
{
    constexpr int items = WIDTH / 4, past_last = 1 << 16; /* of a row; a feature that no row has */
    const int block = warm_up ? 0 : (int)cluster_rank(), first = block * shares.share, count = shares.of(block);
    const int blocks = shares.blocks;
    for (int item = threadIdx.x % CONSUMERS; item < count * items; item += CONSUMERS) {
        const int row = item / items, feature = item % items * 4, head = to.head + first + row;
        if (head >= problem.h)
            continue;
        const received_partials<WIDTH> partials = {rows + first + row, received + row, block, shares.share, feature};
        const int there = warm_up ? 0 : blocks;
        const output_item<1> out =
            blocks <= 4 ? merge_item<4, 1>(partials, blocks, there) : merge_item<8, 1>(partials, blocks, there);
        const int place = warm_up ? past_last : feature, features[4] = {place, place + 1, place + 2, place + 3};
        put_output<T, 4>(problem, to, head, features, out.row[0], out.o);
    }
}

} // namespace COPES_GPU::tpa::wgmma

#endif

#endif
