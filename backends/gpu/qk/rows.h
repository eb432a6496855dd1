/* The rows of a block: the heads of q and of k of some tokens of one batch entry. A thread has a unit (backends/gpu/encoding.h)
 * of up to SHARES rows. All rows of a token turn by the same angles, which the block makes once, in shared memory, while its
 * loads are under way. A decoding step is one short wave of blocks, in which what counts is the way from the first
 * instruction to the last: positions on a line have a short way of their own, and all others go through a function
 * that is not part of the kernel. */
#ifndef COPES_BACKENDS_GPU_QK_ROWS_H
#define COPES_BACKENDS_GPU_QK_ROWS_H

#include "backends/gpu/lrpe/anywhere.h"
#include "backends/gpu/qk/cache.h"

namespace COPES_GPU::qk
{

/* How a norm's sums of squares meet: in a warp, or, of wide rows and of all heads, in shared memory. */
enum class norm { none, warp, block };

enum { SHARES = 2, MOST_THREADS = 512, MOST_BYTES = 48 << 10 }; /* of a thread; of a block */

/* RMSNorm's weights of q or of k; without data there is no norm. */
struct norm_weights {
    const void *data;
    int row;     /* from a head's to the next one's; 0: all heads have the same */
    bool narrow; /* of the storage type, and not float32 */
};

/* q or k. */
struct side_rows {
    lrpe::tensor_rows src, x, dst; /* backward, x is the forward's input; dst.data may be absent */
    norm_weights weights;
    int heads;
    float inverse_length; /* 1 / the features that the mean of a norm is over */
};

struct row_arguments {
    lrpe::anywhere_plan source;
    bool on_line; /* is make_line_rotations enough? */
    side_rows side[2];
    int n, d, units;
    int rows;                /* of a token: all heads of q, then those of k */
    divider rows_here;       /* of a token in one block */
    divider splits;          /* the blocks that share a token's rows */
    divider tiles;           /* of the tokens of a batch entry */
    uint32_t blocks;         /* tiles of all entries times splits */
    uint32_t rotation_bytes; /* of a block's rotations and positions in shared memory; the weights follow */
    float eps, weight_offset;
    bool over_heads, round_between;
    cache_arguments cache;
};

/* The tokens of a block, and the first of its rows of each. */
struct tile_place {
    lrpe::block_place place; /* its head is the first row */
    int left;                /* the last token, counted from place.token */

    __device__ __forceinline__ tile_place(const row_arguments &all, uint32_t index)
    {
        uint32_t split, tile;
        const uint32_t entry = divide(divide(index, all.splits, &split), all.tiles, &tile);
        place = {(int)(split * all.rows_here.divisor), (int)tile * all.source.tokens, (int)entry};
        left = min(all.source.tokens, all.n - place.token) - 1;
    }
};

/* A row of a thread. One that has none has the place of the block's first row, and `live` is false. */
struct row_place {
    lrpe::block_place place; /* its head is of q or of k */
    int token, keys;         /* token: counted from the block's first; keys: 1 for k */
    bool live;

    __device__ __forceinline__ row_place(const row_arguments &all, const tile_place &tile, int share)
    {
        uint32_t row;
        token = (int)divide(threadIdx.y + (uint32_t)share * blockDim.y, all.rows_here, &row);
        live = token <= tile.left && tile.place.head + (int)row < all.rows;
        token = live ? token : 0;
        const int head = tile.place.head + (live ? (int)row : 0);
        keys = head >= all.side[0].heads;
        place = {head - (keys != 0 ? all.side[0].heads : 0), tile.place.token + token, tile.place.entry};
    }
};

/* Is there a row in a thread's share at all? The same for all threads of the block. */
DEVICE bool has_share(const row_arguments &all, const tile_place &tile, int share)
{
    return share == 0 || share * (int)blockDim.y < (tile.left + 1) * (int)all.rows_here.divisor;
}

/* The position of a token on a line; 0 for one outside the grid. */
DEVICE int64_t line_position(const lrpe::anywhere_plan &plan, const lrpe::block_place &place, int token)
{
    uint64_t position = (uint64_t)plan.offset[0];
    if (!plan.contains(token))
        return 0;
    if (plan.counted)
        position += (uint64_t)(int64_t)(token - plan.prefix);
    if (plan.positions.data != nullptr) {
        const int64_t at = place.entry * plan.positions.stride[1] + token * plan.positions.stride[2];
        position += plan.positions_dtype == COPES_I64
                        ? static_cast<const uint64_t *>(plan.positions.data)[at]
                        : (uint64_t)(int64_t)static_cast<const int32_t *>(plan.positions.data)[at];
    }
    return (int64_t)position;
}

/* Makes the block's rotations where positions are integers on a line and theta is aligned float32. Waits for all threads.
 * Returns false if make_all_rotations has to do it. The first position is on its way before theta is waited for. */
template <bool EXACTLY, int V>
DEVICE bool make_line_rotations(const row_arguments &all, const lrpe::block_rotations<V> &made, const tile_place &tile)
{
    const lrpe::anywhere_plan &plan = all.source;
    bool wide = !all.on_line;
    if (all.on_line)
        lrpe::make_share(plan, made, lrpe::rotation_share(plan), [&](int k, int token, int together, rotation *to) {
            if (k >= plan.k || token > tile.left)
                return;
            int64_t position = line_position(plan, tile.place, tile.place.token + token);
            const int at = (k + plan.theta.shift[0]) * plan.theta.step;
            const float theta = k < plan.theta.end[0] ? static_cast<const float *>(plan.theta.data)[at] : 0;
            const angle_step step = plan.step(theta);
#pragma unroll 1
            for (;; to += together * (int)plan.angles.divisor) {
                wide = wide || position != (int32_t)position;
                const uint32_t phase = ZERO_PHASE + copes_phase_top(step.high, step.low, (int32_t)position);
                const bool turns = plan.contains(tile.place.token + token);
                const rotation full = rotation_of<EXACTLY>(phase, turns ? step.poison : 0);
                *to = {plan.amplitude * full.cosine, plan.amplitude * full.sine};
                token += together;
                if (token > tile.left)
                    break;
                position = line_position(plan, tile.place, tile.place.token + token);
            }
        });
    return !any_of_block(wide);
}

/* The same for all positions and thetas, by functions that are no part of their caller: it needs no registers for them. */
template <bool EXACTLY, int V>
__device__ __noinline__ bool make_narrow_rotations(const row_arguments &all, lrpe::block_rotations<V> made,
                                                   lrpe::block_place place, int left)
{
    return lrpe::make_rotations<EXACTLY, false>(read_again(all.source), made, place, left);
}

template <bool EXACTLY, int V>
DEVICE void make_all_rotations(const row_arguments &all, const lrpe::block_rotations<V> &made, const tile_place &tile)
{
    if (!make_narrow_rotations<EXACTLY>(all, made, tile.place, tile.left))
        lrpe::make_any_rotations(read_again(all.source), made, tile.place, tile.left);
}

} // namespace COPES_GPU::qk

#endif
