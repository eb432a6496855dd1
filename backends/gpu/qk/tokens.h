/* A block that goes from token to token: what its threads read ahead and keep, the sums over a token, and the values that pass by. */
#ifndef COPES_BACKENDS_GPU_QK_TOKENS_H
#define COPES_BACKENDS_GPU_QK_TOKENS_H

#include "backends/gpu/qk/plan_rows.h"
#include "backends/gpu/qk/weights.h"

namespace COPES_GPU::qk
{

enum { MOST_OF_TOKEN = 640 }; /* threads of a block; where weights learn 16 bits have registers for fewer */
template <typename T, bool WEIGHTS>
inline constexpr int most_of_token = WEIGHTS && sizeof(T) == 2 ? (int)MOST_THREADS_ON_EACH : (int)MOST_OF_TOKEN;
enum { MOST_OF_HEAD = 32 }; /* threads of a head, where each has a norm of its own */
enum { MOST_TOKENS = 48 };  /* of a block, one after the other */
enum { MOST_WARPS = MOST_OF_TOKEN / 32 };

/* A row is a unit of a token: of the forward's input, or of a gradient and that. */
template <int TENSORS> using reader = read_ahead<2 * TENSORS, 4>;

/* Tokens whose sums meet together, forward: they wait for each other as long as one's. Backward a thread has no registers for two. */
inline constexpr int TOGETHER = lesser(reader<1>::DEPTH, 2);

/* The number of a thread in its block. */
DEVICE int thread_number()
{
    return (int)(threadIdx.y * blockDim.x + threadIdx.x);
}

/* COUNT sums over what a norm is over: the threads of a head, or of all heads of q or k, whose warps are no other's. Numbers of even and
 * of odd turns lie apart in shared memory, so that a barrier a turn is enough. */
template <int COUNT> struct token_sums {
    float *memory;
    int own;   /* where a warp's first thread leaves the warp's numbers; -1: nowhere */
    int other; /* where a lane finds those of a warp of its side, each lane of another; -1: nowhere */

    static int64_t bytes()
    {
        return align(2 * MOST_WARPS * COUNT * (int64_t)sizeof(float));
    }
    __device__ __forceinline__ token_sums(const row_arguments &all, const head_group &group, char *block_memory)
        : memory(reinterpret_cast<float *>(block_memory + all.rotation_bytes))
    {
        const int thread = thread_number(), lane = thread % 32;
        const int q = all.side[QUERIES].groups, groups = choose(group.which, q, all.side[KEYS].groups, 0);
        const int first = group.which == KEYS ? q * (int)blockDim.x / 32 : 0;
        own = lane == 0 ? thread / 32 * COUNT : -1;
        other = lane < groups * (int)blockDim.x / 32 ? (first + lane) * COUNT : -1;
    }
    /* From a thread's numbers to the sums. Every thread of the block must call this, turn after turn. */
    __device__ __forceinline__ void meet(const row_arguments &all, int turn, float (&sum)[COUNT]) const
    {
        if (!all.over_heads) {
            sums_of_lanes(sum, (int)blockDim.x);
            return;
        }
        float *const of_warps = memory + turn % 2 * MOST_WARPS * COUNT;
        sums_of_lanes<32>(sum);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (own >= 0)
                of_warps[own + i] = sum[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sum[i] = other >= 0 ? of_warps[other + i] : 0;
        sums_of_lanes<32>(sum);
    }
};

/* A thread, on its way over the tokens of a tile. */
template <typename T, encoding E, int TENSORS> struct token_thread {
    static constexpr int V = vector_length<T>;
    head_group group;
    lrpe::unit_places at;
    head_units<const T> from[TENSORS];
    unit_weights<T> weights;
    reader<TENSORS> ahead;
    float w[2][V]; /* where weights.any */
    int left;      /* the last token, counted from the first */

    /* Starts to read the first tokens. */
    __device__ __forceinline__ token_thread(const row_arguments &all, const tile_place &tile, char *memory)
        : group(all, tile), at(find_unit<E, V>(all, group)), weights(all, group, at, memory), ahead(memory + all.ahead),
          left(tile.left)
    {
        at.there = at.there && group.count > 0;
        at.second = at.second && at.there;
        from[0] = {choose_rows(all, group.which, &side_rows::src), group.place};
        if constexpr (TENSORS > 1)
            from[1] = {choose_rows(all, group.which, &side_rows::x), group.place};
#pragma unroll
        for (int i = 0; i < ahead.DEPTH; i++)
            start(i);
        if (weights.any && at.there)
            weights.read_own(all, group, at, 0, w);
    }
    __device__ __forceinline__ void start(int token)
    {
        if (token <= left && at.there)
#pragma unroll
            for (int i = 0; i < TENSORS; i++)
                if (i == 0 || weights.any) {
                    from[i].start(at, token, 2 * i, false, &ahead);
                    from[i].move();
                }
        ahead.end_row();
    }
    /* Takes a token's units, and starts to read another's. */
    __device__ __forceinline__ void take(int token, float (&units)[TENSORS][2][V])
    {
        ahead.wait();
#pragma unroll
        for (int i = 0; i < TENSORS; i++)
            take_unit<T>(ahead, token, 2 * i, units[i]);
        start(token + ahead.DEPTH);
    }
    __device__ __forceinline__ float product(const float (&a)[2][V], const float (&b)[2][V]) const
    {
        return sum_of_unit(at, a, b);
    }
    __device__ __forceinline__ void weigh(const float (&x)[2][V], float (&weighed)[2][V]) const
    {
#pragma unroll
        for (int j = 0; j < 2 * V; j++)
            weighed[j / V][j % V] = x[j / V][j % V] * w[j / V][j % V];
    }
    __device__ __forceinline__ void read_rotations(const row_arguments &all, const lrpe::block_rotations<E, V> &made,
                                                   int token, rotation (&turn)[V]) const
    {
        made.read((unsigned)token, (unsigned)min((int)threadIdx.x, all.units - 1), turn);
    }
};

/* The slot of the tile's token `token`, if there is such a token. */
DEVICE int find_slot_of(const row_arguments &all, lrpe::block_place place, int token, int left)
{
    place.token += token;
    return token <= left ? find_slot(all.cache, place) : -1;
}

/* A vector of v, on its way to the cache. */
template <typename T> struct value_vector {
    typedef raw<T, vector_length<T>> vector;
    vector words;
    int slot, head, at;

    /* Reads number `index` of the tile's, if there are so many. */
    __device__ __forceinline__ value_vector(const row_arguments &all, const tile_place &tile, int index)
        : words(), slot(-1), head(0), at(0)
    {
        const side_rows &v = all.side[VALUES];
        if (index >= count(all, tile))
            return;
        const int of_head = all.e / vector_length<T>, row = index / of_head, token = row / v.heads;
        head = row - token * v.heads;
        at = (index - row * of_head) * vector_length<T>;
        const lrpe::block_place place = {head, tile.place.token + token, tile.place.entry};
        slot = find_slot(all.cache, place);
        words = vector::read(lrpe::first_row<const T>(v.src, place) + at);
    }
    /* Vectors of the tile's. */
    DEVICE int count(const row_arguments &all, const tile_place &tile)
    {
        return (tile.left + 1) * all.side[VALUES].heads * (all.e / vector_length<T>);
    }
    __device__ __forceinline__ void write(const row_arguments &all) const
    {
        if (slot < 0)
            return;
        float x[vector_length<T>];
        words.unpack(x);
        const cached_head to = cached_head::find<T>(all.cache, all.side[VALUES].cache, slot, head);
        write_cached<T>(all.cache, to.data, at, to.scale, x);
    }
};

/* Writes a tile's vectors of v to the cache, but for each thread's first: some at a time. */
template <typename T> DEVICE void copy_values(const row_arguments &all, const tile_place &tile)
{
    const int count = value_vector<T>::count(all, tile), step = (int)(blockDim.x * blockDim.y);
#pragma unroll 1
    for (int first = thread_number() + step; first < count; first += 4 * step) {
        const value_vector<T> vectors[] = {{all, tile, first},
                                           {all, tile, first + step},
                                           {all, tile, first + 2 * step},
                                           {all, tile, first + 3 * step}};
#pragma unroll
        for (const value_vector<T> &vector : vectors)
            vector.write(all);
    }
}

} // namespace COPES_GPU::qk

#endif
