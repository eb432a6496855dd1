/* A block that goes from token to token: what its threads read ahead and keep, the sums over a token, and the values that pass by. */
#ifndef COPES_BACKENDS_GPU_QK_TOKENS_H
#define COPES_BACKENDS_GPU_QK_TOKENS_H

#include "backends/gpu/qk/plan_rows.h"
#include "backends/gpu/qk/weights.h"

namespace COPES_GPU::qk
{

enum { MOST_OF_TOKEN = 640 }; /* threads of a block */

/* What a backward does with weights. `learning_wide` is for tokens that are more than `learning` has registers and shared memory for: a
 * thread keeps its sums in the workspace, and in 16 bits has fewer registers. */
enum class weights_are { fixed, learning, learning_wide };
template <typename T, weights_are W>
inline constexpr int most_of_token =
    W == weights_are::learning && sizeof(T) == 2 ? (int)MOST_THREADS_ON_EACH : (int)MOST_OF_TOKEN;
enum { MOST_WARPS = MOST_OF_TOKEN / 32 };

/* Units of a thread, at most, each of another head. In float32 two have as many numbers as one has in 16 bits. */
template <typename T> inline constexpr int MOST_UNITS = sizeof(T) == 4 ? 2 : 1;

/* A row is a token's: forward a thread's units of the input and a vector of v, backward units of a gradient and of the forward's
 * input. Of two units of both, four rows would not fit shared memory. */
template <int UNITS> inline constexpr int OF_VALUES = 2 * UNITS; /* the part that a vector of v is */
template <int TENSORS, int UNITS>
using reader = read_ahead<TENSORS == 1 ? OF_VALUES<UNITS> + 1 : 2 * TENSORS * UNITS, TENSORS * UNITS == 4 ? 2 : 4>;

/* Is there a `learning_wide`? At the end the sums of a block's threads take the place of what is read ahead. */
template <typename T>
inline constexpr bool learns_wide =
    reader<2, MOST_UNITS<T>>::BYTES >= MOST_UNITS<T> * 2 * vector_length<T> * (int64_t)sizeof(float);

/* Tokens whose sums meet together, forward: they wait for each other as long as one's. Backward, or of two units, a thread has no
 * registers for two. */
template <int UNITS> inline constexpr int TOGETHER = lesser(reader<1, UNITS>::DEPTH, 2 / UNITS);

/* The number of a thread in its block. */
DEVICE int thread_number()
{
    return (int)(threadIdx.y * blockDim.x + threadIdx.x);
}

/* COUNT sums over what a norm is over: the threads of a head, or of all heads of q or k. Where these are several warps, the warps are no
 * other's. Numbers of even and of odd turns lie apart in shared memory, so that a barrier a turn is enough. */
template <int COUNT> struct token_sums {
    float *memory;
    int own;   /* where a warp's first thread leaves the warp's numbers; -1: nowhere */
    int other; /* where a lane finds those of a warp of its side, each lane of another; -1: nowhere */

    static constexpr int BYTES = (int)align(2 * MOST_WARPS * COUNT * sizeof(float));
    __device__ __forceinline__ token_sums(const row_arguments &all, const head_group &group, char *block_memory)
        : memory(reinterpret_cast<float *>(block_memory + all.rotation_bytes))
    {
        const int thread = thread_number(), lane = thread % 32;
        const int q = all.side[QUERIES].groups, k = all.side[KEYS].groups;
        int first = (int)threadIdx.y, groups = 1;
        if (all.over_heads) {
            groups = choose(group.which, q, k, 0);
            first = group.which == KEYS ? q : 0;
        }
        own = lane == 0 ? thread / 32 * COUNT : -1;
        other = lane < groups * (int)blockDim.x / 32 ? (first * (int)blockDim.x / 32 + lane) * COUNT : -1;
    }
    /* From a thread's numbers to the sums. Every thread of the block must call this, turn after turn. */
    __device__ __forceinline__ void meet(const row_arguments &all, int turn, float (&sum)[COUNT]) const
    {
        if (!all.over_heads && blockDim.x <= 32) {
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

/* The slots of a tile's tokens, which are no more than its threads, in shared memory; -1: none. */
struct token_slots {
    char *memory;
    int own; /* of the token that has the thread's number */

    static int64_t bytes(int tokens)
    {
        return align(tokens * (int64_t)sizeof(int));
    }
    /* Reads them, which is on its way until they are kept. */
    __device__ __forceinline__ token_slots(const row_arguments &all, const tile_place &tile, char *block_memory)
        : memory(block_memory), own(-1)
    {
        lrpe::block_place place = tile.place;
        place.token += thread_number();
        if (thread_number() <= tile.left)
            own = find_slot(all.cache, place);
    }
    __device__ __forceinline__ int &of(const row_arguments &all, int token) const
    {
        return reinterpret_cast<int *>(memory + all.rotation_bytes)[token];
    }
    /* Nothing is there before the block is synchronized. */
    __device__ __forceinline__ void keep(const row_arguments &all, int left) const
    {
        if (thread_number() <= left)
            of(all, thread_number()) = own;
    }
};

/* Vectors of v of a token. */
template <typename T> DEVICE int vectors_of_token(const row_arguments &all)
{
    return all.side[VALUES].heads * (all.e / vector_length<T>);
}

/* Number `index` of them. */
template <typename T> struct value_vector {
    static constexpr int V = vector_length<T>;
    int head, at;

    __device__ __forceinline__ value_vector(const row_arguments &all, int index)
    {
        const int of_head = all.e / V;
        head = index / of_head;
        at = (index - head * of_head) * V;
    }
    __device__ __forceinline__ const T *address(const row_arguments &all, const tile_place &tile, int token) const
    {
        return lrpe::first_row<const T>(all.side[VALUES].src, {head, tile.place.token + token, tile.place.entry}) + at;
    }
    __device__ __forceinline__ void write(const row_arguments &all, int slot, const raw<T, V> &words) const
    {
        float x[V];
        words.unpack(x);
        const cached_head to = cached_head::find<T>(all.cache, all.side[VALUES].cache, slot, head);
        write_cached<T>(all.cache, to.data, at, to.scale, x);
    }
};

/* Writes the vectors of v to the cache that are more than a token's threads: some at a time. */
template <typename T>
DEVICE void copy_values(const row_arguments &all, const tile_place &tile, const token_slots &slots)
{
    typedef raw<T, vector_length<T>> vector;
    constexpr int AT_ONCE = 4;
    const int threads = (int)(blockDim.x * blockDim.y), rest = vectors_of_token<T>(all) - threads;
    const int count = rest * (tile.left + 1);
#pragma unroll 1
    for (int first = thread_number(); first < count; first += AT_ONCE * threads) {
        vector words[AT_ONCE];
        const auto number = [&](int i) { return min(first + i * threads, count - 1); };
        const auto vector_of = [&](int i) { return value_vector<T>(all, threads + number(i) % rest); };
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            words[i] = vector::read(vector_of(i).address(all, tile, number(i) / rest));
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * threads < count && slots.of(all, number(i) / rest) >= 0)
                vector_of(i).write(all, slots.of(all, number(i) / rest), words[i]);
    }
}

/* The elements from a unit of a thread to its next one. */
DEVICE int64_t between_units(const row_arguments &all, const head_group &group, const lrpe::tensor_rows side_rows::*of)
{
    return group.step * choose_rows(all, group.which, of).h;
}

/* A thread, on its way over the tokens of a tile. Its units are the same places of UNITS heads, of which there may be fewer. */
template <typename T, encoding E, int TENSORS, int UNITS> struct token_thread {
    static constexpr int V = vector_length<T>;
    head_group group;
    lrpe::unit_places at;
    head_units<const T> from[TENSORS];
    unit_weights<T> weights;
    reader<TENSORS, UNITS> ahead;
    float w[UNITS][2][V]; /* where weights.any */
    int left;             /* the last token, counted from the first */
    const T *value;       /* forward: the thread's vector of v of the next token; nullptr: it has none */

    /* Starts to read the first tokens. */
    __device__ __forceinline__ token_thread(const row_arguments &all, const tile_place &tile, char *memory)
        : group(all, tile), at(find_unit<E, V>(all, group)), weights(all, group, at, memory), ahead(memory + all.ahead),
          left(tile.left), value(nullptr)
    {
        if (TENSORS == 1 && thread_number() < vectors_of_token<T>(all))
            value = value_vector<T>(all, thread_number()).address(all, tile, 0);
        at.there = at.there && group.count > 0;
        at.second = at.second && at.there;
#pragma unroll
        for (int i = 0; i < TENSORS; i++)
            from[i] = {choose_rows(all, group.which, tensor(i)), group.place};
        for (int i = 0; i < ahead.DEPTH && value != nullptr; i++)
            start_value(all, i);
#pragma unroll
        for (int i = 0; i < ahead.DEPTH; i++)
            start(all, i);
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++)
            if (weights.any && has(unit))
                weights.read_own(all, group, at, unit, w[unit]);
    }
    /* Has the thread this unit? */
    __device__ __forceinline__ bool has(int unit) const
    {
        return at.there && (unit == 0 || unit < group.count);
    }
    /* Starts to read a token, in the place of one that has been taken. Its vector of v is on its way already. */
    __device__ __forceinline__ void start(const row_arguments &all, int token)
    {
        if (token <= left && at.there)
#pragma unroll
            for (int i = 0; i < TENSORS; i++)
                if (i == 0 || weights.any)
                    start_units(all, token, i);
        ahead.end_row();
    }
    __device__ __forceinline__ void start_value(const row_arguments &all, int token)
    {
        if (token <= left)
            ahead.template start<typename raw<T, V>::access>(token, OF_VALUES<UNITS>, value, false);
        value += all.side[VALUES].src.n;
    }
    /* Takes a token's units of a tensor, once they are there. */
    __device__ __forceinline__ void take(int token, int i, float (&units)[UNITS][2][V]) const
    {
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++)
            take(token, i, unit, units[unit]);
    }
    __device__ __forceinline__ void take(int token, int i, int unit, float (&x)[2][V]) const
    {
        take_unit<T>(ahead, token, 2 * (i * UNITS + unit), x);
    }
    /* Writes the thread's vector of v of the `count` tokens from `first` on, the next that it takes, to the cache, and starts to read
     * those of as many others. */
    __device__ __forceinline__ void pass_values(const row_arguments &all, int first, int count,
                                                const token_slots &slots)
    {
        if (value == nullptr)
            return;
        ahead.wait(); /* for all of them: they were on their way before the first token */
#pragma unroll 1
        for (int token = first; token < first + count && token <= left; token++) {
            const int slot = slots.of(all, token);
            if (slot >= 0)
                value_vector<T>(all, thread_number())
                    .write(all, slot, {ahead.template take<typename raw<T, V>::access>(token, OF_VALUES<UNITS>)});
            start_value(all, token + ahead.DEPTH);
        }
    }
    /* The sum of the products of two tensors' units. */
    __device__ __forceinline__ float product(const float (&a)[UNITS][2][V], const float (&b)[UNITS][2][V]) const
    {
        float sum = sum_of_unit(at, a[0], b[0]);
#pragma unroll
        for (int unit = 1; unit < UNITS; unit++)
            sum += has(unit) ? sum_of_unit(at, a[unit], b[unit]) : 0;
        return sum;
    }
    __device__ __forceinline__ void weigh(int unit, const float (&x)[2][V], float (&weighed)[2][V]) const
    {
#pragma unroll
        for (int j = 0; j < 2 * V; j++)
            weighed[j / V][j % V] = x[j / V][j % V] * w[unit][j / V][j % V];
    }
    __device__ __forceinline__ void read_rotations(const row_arguments &all, const lrpe::block_rotations<E, V> &made,
                                                   int token, rotation (&turn)[V]) const
    {
        made.read((unsigned)token, (unsigned)min((int)threadIdx.x, all.units - 1), turn);
    }

  private:
    DEVICE auto tensor(int i)
    {
        return i == 0 ? &side_rows::src : &side_rows::x;
    }
    __device__ __forceinline__ void start_units(const row_arguments &all, int token, int i)
    {
        head_units<const T> units = from[i];
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++) {
            if (unit > 0)
                units.head += between_units(all, group, tensor(i));
            if (has(unit))
                units.start(at, token, 2 * (i * UNITS + unit), false, &ahead);
        }
        from[i].move();
    }
};

/* A thread's units of a tensor that it writes, token after token. */
template <typename T> struct written_units {
    static constexpr int V = vector_length<T>;
    head_units<T> first; /* of the next token */

    __device__ __forceinline__ written_units(const row_arguments &all, const head_group &group)
        : first(choose_rows(all, group.which, &side_rows::dst), group.place)
    {
    }
    __device__ __forceinline__ void write(const row_arguments &all, const head_group &group,
                                          const lrpe::unit_places &at, int unit, const float (&y)[2][V]) const
    {
        head_units<T> to = first;
        if (unit > 0)
            to.head += unit * between_units(all, group, &side_rows::dst);
        to.write(at, y);
    }
};

} // namespace COPES_GPU::qk

#endif
