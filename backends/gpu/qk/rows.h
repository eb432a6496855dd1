/* The heads of a block: those of q, of k and of v of some tokens of one batch entry. A thread has a unit (backends/gpu/encoding.h)
 * of every few of a token's heads, and goes from head to head: it finds the places, the rotations and the weights once.
 * All heads of a token turn by the same angles, which the block makes once, in shared memory, while its first loads are
 * under way. A decoding step is one short wave of blocks, in which what counts is the way from the first instruction to
 * the last: threads then have one head each, positions on a line have a short way of their own, and all others go
 * through a function that is not part of the kernel. */
#ifndef COPES_BACKENDS_GPU_QK_ROWS_H
#define COPES_BACKENDS_GPU_QK_ROWS_H

#include "read_ahead.h"

#include "backends/gpu/lrpe/anywhere.h"
#include "backends/gpu/qk/cache.h"

namespace COPES_GPU::qk
{

enum { MOST_THREADS = 320, MOST_BYTES = 48 << 10 }; /* of a block */

/* RMSNorm's weights of q or of k; without data there is no norm. */
struct norm_weights {
    const void *data;
    int row;     /* from a head's to the next one's; 0: all heads have the same */
    bool narrow; /* of the storage type, and not float32 */
};

enum { QUERIES, KEYS, VALUES, SIDES };

/* q, k or v. */
struct side_rows {
    lrpe::tensor_rows src, x, dst; /* backward, x is the forward's input; dst.data may be absent */
    norm_weights weights;
    cache_rows cache;
    int heads, groups;    /* groups of a token's heads: a thread has a unit of each head of one */
    int each, full;       /* heads of a group, of which the first `full` have all, and others one fewer */
    float inverse_length; /* 1 / the features that the mean of a norm is over */
};

struct row_arguments {
    lrpe::anywhere_plan source;
    side_rows side[SIDES];
    int n, d, e, units;
    int groups, heads;       /* groups of a token, and the most heads of one */
    divider groups_here;     /* of a token in one block */
    divider tokens_here;     /* of a block, where its threads go from token to token first; 1: from group to group */
    divider splits;          /* the blocks that share a token's groups */
    divider tiles;           /* of the tokens of a batch entry */
    uint32_t blocks;         /* tiles of all entries times splits */
    uint32_t rotation_bytes; /* of a block's rotations and positions: whole vectors, which the norm's numbers follow */
    uint32_t ahead;          /* where in shared memory heads are read ahead */
    float eps, weight_offset;
    bool over_heads, round_between;
    bool split_sectors; /* splits_sectors; where there is a norm, to ask would cost more than it gains */
    cache_arguments cache;
};

/* The side of a head. An index into the argument would be a load from memory, and so would be a choice between addresses in it: a
 * choice between values is none. */
template <typename Value> DEVICE Value choose(int which, const Value &q, const Value &k, const Value &v)
{
    return which == QUERIES ? q : which == KEYS ? k : v;
}

DEVICE lrpe::tensor_rows choose_rows(const row_arguments &all, int which, const lrpe::tensor_rows side_rows::*of)
{
    const lrpe::tensor_rows &q = all.side[QUERIES].*of, &k = all.side[KEYS].*of, &v = all.side[VALUES].*of;
    lrpe::tensor_rows rows;
    rows.data = choose(which, q.data, k.data, v.data);
    rows.b = choose(which, q.b, k.b, v.b);
    rows.h = choose(which, q.h, k.h, v.h);
    rows.n = choose(which, q.n, k.n, v.n);
    return rows;
}

/* The tokens of a block, and the first of its groups of each. */
struct tile_place {
    lrpe::block_place place; /* its head is the first group */
    int left;                /* the last token, counted from place.token */

    __device__ __forceinline__ tile_place(const row_arguments &all, uint32_t index)
    {
        uint32_t split, tile;
        const uint32_t entry = divide(divide(index, all.splits, &split), all.tiles, &tile);
        place = {(int)(split * all.groups_here.divisor), (int)tile * all.source.tokens, (int)entry};
        left = min(all.source.tokens, all.n - place.token) - 1;
    }
};

/* The heads of a thread: the first, and every `step`th from there. A thread without any has the place of the block's first
 * group. */
struct head_group {
    lrpe::block_place place; /* its head is the first, of q, k or v */
    int token;               /* counted from the block's first */
    int which, step, count;

    __device__ __forceinline__ head_group(const row_arguments &all, const tile_place &tile)
    {
        const side_rows &first = all.side[QUERIES], &second = all.side[KEYS], &third = all.side[VALUES];
        uint32_t group;
        if (all.tokens_here.divisor > 1) {
            uint32_t rest;
            group = divide(threadIdx.y, all.tokens_here, &rest);
            token = (int)rest;
        } else {
            token = (int)divide(threadIdx.y, all.groups_here, &group);
        }
        const bool live = token <= tile.left && tile.place.head + (int)group < all.groups;
        token = live ? token : 0;
        const int at = tile.place.head + (live ? (int)group : 0), keys = first.groups, values = keys + second.groups;
        which = at < keys ? QUERIES : at < values ? KEYS : VALUES;
        step = choose(which, keys, second.groups, third.groups);
        place = {at - choose(which, 0, keys, values), tile.place.token + token, tile.place.entry};
        count = choose(which, first.each, second.each, third.each);
        count -= place.head >= choose(which, first.full, second.full, third.full);
        count = live ? count : 0;
    }
};

/* The vectors of a thread in each of its heads: of q and k, a unit that turns or passes through; of v, two as far apart as there are
 * threads for a head. */
template <encoding E, int V> DEVICE lrpe::unit_places find_unit(const row_arguments &all, const head_group &group)
{
    lrpe::unit_places at = lrpe::find_unit<E, V>(all.d, all.source.k, all.source.begin(), all.units, (int)threadIdx.x);
    if (group.which == VALUES) {
        const int first = (int)threadIdx.x * V, second = (int)(threadIdx.x + blockDim.x) * V;
        at.there = first < all.e;
        at.second = second < all.e;
        at.rotated = false;
        at.plain[0] = at.there ? first : 0;
        at.plain[1] = at.second ? second : at.plain[0];
    }
    at.second = at.second && at.there;
    return at;
}

/* A thread's unit in its heads of a tensor, one after the other. */
template <typename T> struct head_units {
    static constexpr int V = vector_length<std::remove_const_t<T>>;
    typedef raw<std::remove_const_t<T>, V> vector;
    T *head; /* the next one; nullptr: there is no tensor */
    int64_t step;

    head_units() = default;
    __device__ __forceinline__ head_units(const lrpe::tensor_rows &rows, const head_group &group)
        : head(rows.data == nullptr ? nullptr : lrpe::first_row<T>(rows, group.place)), step(group.step * rows.h)
    {
    }
    /* The same in one head of one token after the other. */
    __device__ __forceinline__ head_units(const lrpe::tensor_rows &rows, const lrpe::block_place &place)
        : head(rows.data == nullptr ? nullptr : lrpe::first_row<T>(rows, place)), step(rows.n)
    {
    }
    /* Starts to read the next head's unit as row `row`, of which its vectors are parts `part` and `part` + 1. */
    template <typename Ahead>
    __device__ __forceinline__ void start(const lrpe::unit_places &at, int row, int part, bool again,
                                          Ahead *ahead) const
    {
        typedef typename vector::access access;
        ahead->template start<access>(row, part, head + at.plain[0], again);
        ahead->template start<access>(row, part + 1, head + at.plain[1], again);
    }
    __device__ __forceinline__ void read(const lrpe::unit_places &at, float (&x)[2][V]) const
    {
        vector::read(head + at.plain[0]).unpack(x[0]);
        vector::read(head + at.plain[1]).unpack(x[1]);
    }
    __device__ __forceinline__ void write(const lrpe::unit_places &at, const float (&y)[2][V]) const
    {
        raw<T, V>::write(head + at.plain[0], y[0]);
        if (at.second)
            raw<T, V>::write(head + at.plain[1], y[1]);
    }
    __device__ __forceinline__ void move()
    {
        head += step;
    }
};

/* Takes the vectors of a unit that has been read ahead. */
template <typename T, typename Ahead>
DEVICE void take_unit(const Ahead &ahead, int row, int part, float (&x)[2][vector_length<T>])
{
    typedef raw<T, vector_length<T>> vector;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        vector{ahead.template take<typename vector::access>(row, part + i)}.unpack(x[i]);
#pragma unroll
        for (int j = 0; j < vector_length<T>; j++)
            settle(x[i][j]); /* so that what comes next can take its place */
    }
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

/* The rotation at an integer position of 32 bits. `turns`: its token is in the grid. */
template <bool EXACTLY> DEVICE rotation find_narrow_rotation(const angle_step &step, int32_t position, bool turns)
{
    return rotation_of<EXACTLY>(ZERO_PHASE + copes_phase_top(step.high, step.low, position), turns ? step.poison : 0);
}

/* The same at any. */
DEVICE rotation find_wide_rotation(float theta, int64_t position, bool turns)
{
    const uint32_t phase = (uint32_t)(phase_of({position, 0}, theta) >> 32);
    return rotation_of<true>(ZERO_PHASE + phase, turns ? copes_phase_poison(theta) : 0);
}

DEVICE rotation amplify(const rotation &turn, float amplitude)
{
    return {amplitude * turn.cosine, amplitude * turn.sine};
}

/* Makes the block's rotations of integers on a line. Waits for all threads. Returns false if one does not fit 32 bits, and
 * make_wide_rotations has to do it. The first position is on its way before theta is waited for. */
template <bool EXACTLY, encoding E, int V>
DEVICE bool make_line_rotations(const row_arguments &all, const lrpe::block_rotations<E, V> &made,
                                const tile_place &tile)
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
            *to =
                amplify(find_narrow_rotation<EXACTLY>(step, (int32_t)position, plan.contains(tile.place.token + token)),
                        plan.amplitude);
            token += together;
            if (token > tile.left)
                break;
            position = line_position(plan, tile.place, tile.place.token + token);
        }
    });
    return !any_of_block(wide);
}

/* The same for integers of any size on a line. It is no part of its caller, which needs no registers for it. */
template <encoding E, int V>
OUT_OF_LINE void make_wide_rotations(const row_arguments &argument, lrpe::block_rotations<E, V> made, tile_place tile)
{
    const lrpe::anywhere_plan &plan = read_again(argument.source);
    lrpe::make_share(plan, made, lrpe::rotation_share(plan), [&](int k, int token, int together, rotation *to) {
        for (; k < plan.k && token <= tile.left; token += together, to += together * (int)plan.angles.divisor) {
            const int at = tile.place.token + token;
            *to = amplify(find_wide_rotation(plan.theta_sign * line_theta(plan, k), line_position(plan, tile.place, at),
                                             plan.contains(at)),
                          plan.amplitude);
        }
    });
    __syncthreads();
}

/* The same for all positions and thetas, of 32 bits. */
template <bool EXACTLY, encoding E, int V>
OUT_OF_LINE bool make_narrow_rotations(const row_arguments &argument, lrpe::block_rotations<E, V> made, tile_place tile)
{
    return lrpe::make_rotations<EXACTLY, false>(read_again(argument.source), made, tile.place, tile.left);
}

/* Makes the block's rotations. ON_LINE: positions are integers on a line, and theta is aligned float32. */
template <bool ON_LINE, bool EXACTLY, encoding E, int V>
DEVICE void make_rotations(const row_arguments &all, const lrpe::block_rotations<E, V> &made, const tile_place &tile)
{
    if constexpr (ON_LINE) {
        if (!make_line_rotations<EXACTLY>(all, made, tile))
            make_wide_rotations(all, made, tile);
    } else if (!make_narrow_rotations<EXACTLY>(all, made, tile)) {
        lrpe::make_any_rotations(read_again(all.source), made, tile.place, tile.left);
    }
}

} // namespace COPES_GPU::qk

#endif
