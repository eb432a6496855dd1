/* The rows of a block: the heads of q and of k of some tokens of one batch entry. A thread has a unit (backends/gpu/encoding.h)
 * of one row or two. All rows of a token turn by the same angles, which the block makes once, in shared memory, while its
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

enum { MOST_THREADS = 512, MOST_BYTES = 48 << 10 }; /* of a block */

/* Rows of a thread. A norm by warp takes registers that are better spent on more blocks; one over all heads needs all rows of a
 * token in a block. */
constexpr int shares_of(norm sum)
{
    return sum == norm::warp ? 1 : 2;
}
template <norm NORM> inline constexpr int shares = shares_of(NORM);

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
    side_rows side[2];
    int n, d, units;
    int rows;                /* of a token: all heads of q, then those of k */
    divider rows_here;       /* of a token in one block */
    divider splits;          /* the blocks that share a token's rows */
    divider tiles;           /* of the tokens of a batch entry */
    uint32_t blocks;         /* tiles of all entries times splits */
    uint32_t rotation_bytes; /* of a block's rotations and positions: whole vectors, which the weights follow */
    float eps, weight_offset;
    bool over_heads, round_between;
    cache_arguments cache;
};

DEVICE lrpe::tensor_rows choose(bool second, const lrpe::tensor_rows &a, const lrpe::tensor_rows &b)
{
    lrpe::tensor_rows rows;
    rows.data = second ? b.data : a.data;
    rows.b = second ? b.b : a.b;
    rows.h = second ? b.h : a.h;
    rows.n = second ? b.n : a.n;
    return rows;
}

/* The side of a row. An index into the argument would be a load from memory, and so would be a choice between addresses in it: a
 * choice between values is none. */
DEVICE side_rows side_of(const row_arguments &all, bool keys)
{
    const side_rows &a = all.side[0], &b = all.side[1];
    return {choose(keys, a.src, b.src),
            choose(keys, a.x, b.x),
            choose(keys, a.dst, b.dst),
            {keys ? b.weights.data : a.weights.data, keys ? b.weights.row : a.weights.row,
             keys ? b.weights.narrow : a.weights.narrow},
            keys ? b.heads : a.heads,
            keys ? b.inverse_length : a.inverse_length};
}

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
    int token;               /* counted from the block's first */
    bool keys, live;

    __device__ __forceinline__ row_place(const row_arguments &all, const tile_place &tile, int share)
    {
        uint32_t row;
        token = (int)divide(threadIdx.y + (uint32_t)share * blockDim.y, all.rows_here, &row);
        live = token <= tile.left && tile.place.head + (int)row < all.rows;
        token = live ? token : 0;
        const int head = tile.place.head + (live ? (int)row : 0);
        keys = head >= all.side[0].heads;
        place = {head - (keys ? all.side[0].heads : 0), tile.place.token + token, tile.place.entry};
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

/* The theta of angle k on a line. */
DEVICE float line_theta(const lrpe::anywhere_plan &plan, int k)
{
    return k < plan.theta.end[0]
               ? static_cast<const float *>(plan.theta.data)[(k + plan.theta.shift[0]) * plan.theta.step]
               : 0;
}

/* Makes the block's rotations of integers on a line. Waits for all threads. Returns false if one does not fit 32 bits, and
 * make_wide_rotations has to do it. The first position is on its way before theta is waited for. */
template <bool EXACTLY, int V>
DEVICE bool make_line_rotations(const row_arguments &all, const lrpe::block_rotations<V> &made, const tile_place &tile)
{
    const lrpe::anywhere_plan &plan = all.source;
    bool wide = false;
    lrpe::make_share(plan, made, lrpe::rotation_share(plan), [&](int k, int token, int together, rotation *to) {
        if (k >= plan.k || token > tile.left)
            return;
        int64_t position = line_position(plan, tile.place, tile.place.token + token);
        const angle_step step = plan.step(line_theta(plan, k));
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

/* The same for integers of any size on a line. It is no part of its caller, which needs no registers for it. */
template <int V>
OUT_OF_LINE void make_wide_rotations(const row_arguments &argument, lrpe::block_rotations<V> made, tile_place tile)
{
    const lrpe::anywhere_plan &plan = read_again(argument.source);
    lrpe::make_share(plan, made, lrpe::rotation_share(plan), [&](int k, int token, int together, rotation *to) {
        for (; k < plan.k && token <= tile.left; token += together, to += together * (int)plan.angles.divisor) {
            const int at = tile.place.token + token;
            const float theta = plan.theta_sign * line_theta(plan, k);
            const token_position position = {line_position(plan, tile.place, at), 0};
            const float poison = plan.contains(at) ? copes_phase_poison(theta) : 0;
            const uint32_t phase = (uint32_t)(phase_of(position, theta) >> 32);
            const rotation full = rotation_of<true>(ZERO_PHASE + phase, poison);
            *to = {plan.amplitude * full.cosine, plan.amplitude * full.sine};
        }
    });
    __syncthreads();
}

/* The same for all positions and thetas, of 32 bits. */
template <bool EXACTLY, int V>
OUT_OF_LINE bool make_narrow_rotations(const row_arguments &argument, lrpe::block_rotations<V> made, tile_place tile)
{
    return lrpe::make_rotations<EXACTLY, false>(read_again(argument.source), made, tile.place, tile.left);
}

/* Makes the block's rotations while the rows that `read` reads are on their way; what was read needs no registers while a
 * function makes them. ON_LINE: positions are integers on a line, and theta is aligned float32. */
template <bool ON_LINE, bool EXACTLY, int V, typename Read>
DEVICE void make_rotations(const row_arguments &all, const lrpe::block_rotations<V> &made, const tile_place &tile,
                           const Read &read)
{
    if constexpr (ON_LINE) {
        read();
        if (make_line_rotations<EXACTLY>(all, made, tile))
            return;
        make_wide_rotations(all, made, tile);
    } else if (!make_narrow_rotations<EXACTLY>(all, made, tile)) {
        lrpe::make_any_rotations(read_again(all.source), made, tile.place, tile.left);
    }
    read();
}

} // namespace COPES_GPU::qk

#endif
