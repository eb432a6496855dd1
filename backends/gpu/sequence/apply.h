/* The second pass of softmax over the sequence before half or cosine: the sums of all columns are known, from the caller or in
 * parts, and each token is finished by itself. Memory bounds the kernel if instructions are few. So threads have whole vectors,
 * and so many tokens that what comes before the first of them costs little. Tokens are read ahead in shared memory, as columns and
 * rotations take the registers; and blocks of all heads of some tokens are neighbours, so that the device goes through memory in
 * order. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_APPLY_H
#define COPES_BACKENDS_GPU_SEQUENCE_APPLY_H

#include "read_ahead.h"

#include "backends/gpu/sequence/tokens.h"

namespace COPES_GPU::sequence
{

/* A block's shared memory; what threads read ahead follows. Of each column there is `shift`, which elements are relative to, and
 * `rest`: forward what terms are multiplied by, backward what is subtracted from gradients.
 *   what            written by       read by
 *   parts           merge_slab       merge_slab: threads i, i + COLUMNS, .. share a column, and its parts
 *   shift, rest     finish_slab      token_finisher */
template <typename T, encoding E> struct alignas(16) apply_memory : slab_angles<T, vector_length<T>> {
    static constexpr int V = vector_length<T>, UNITS = tile_units_of<T, V>;
    static constexpr int COLUMNS = plain_vectors<E> * V * UNITS, GROUPS = (int)THREADS / COLUMNS;
    column parts[GROUPS][COLUMNS];
    float shift[COLUMNS], rest[COLUMNS];
};

/* Vectors of a token that a thread reads, and tokens ahead: 3 backward, so that two blocks fit a multiprocessor. */
template <encoding E, role R> inline constexpr int read_vectors = plain_vectors<E> + (R == role::forward ? 0 : 2);
template <encoding E, role R>
using apply_reader = read_ahead<read_vectors<E, R>, R == role::forward ? 8 / read_vectors<E, R> : 3>;

template <typename T, encoding E, role R>
inline constexpr size_t apply_bytes = sizeof(apply_memory<T, E>) + THREADS * (size_t)apply_reader<E, R>::BYTES;

/* The place in a row of the block's column that this thread finishes; below 0: there is none. */
template <typename T, encoding E>
DEVICE int64_t find_column(const copes_lrpe_problem &problem, const slab_place &place, int64_t units)
{
    typedef apply_memory<T, E> all;
    const int mine = (int)threadIdx.x % all::COLUMNS, of_unit = mine / all::UNITS;
    const int64_t unit = place.unit - place.tile_unit + mine % all::UNITS;
    const places_of<int64_t> at = find_places<E, all::V>(problem.d, problem.k, problem.begin, unit, unit < units);
    const int64_t first = of_unit < all::V ? at.plain[0] : at.plain[1]; /* an index would put the places into memory */
    return first < 0 ? -1 : first + of_unit % all::V;
}

/* Merges the parts of the column at `at`, which group 0 of the threads gets. All threads of the block must call this. */
template <typename T, encoding E>
DEVICE column merge_slab(apply_memory<T, E> &memory, const copes_lrpe_problem &problem, const slab_place &place,
                         int64_t at, const column *parts)
{
    constexpr int COLUMNS = apply_memory<T, E>::COLUMNS, GROUPS = apply_memory<T, E>::GROUPS;
    const int mine = (int)threadIdx.x % COLUMNS, group = (int)threadIdx.x / COLUMNS;
    const column *const from = parts + (place.b * problem.h + place.h) * place.blocks * problem.d + at;
    column all = {-INFINITY, 0, 0};
#pragma unroll 4
    for (uint32_t rank = (uint32_t)group; rank < place.blocks && at >= 0; rank += GROUPS)
        all = merge(all, from[rank * problem.d]);
    memory.parts[group][mine] = all;
    __syncthreads();
    for (int i = 1; i < GROUPS && group == 0; i++)
        all = merge(all, memory.parts[i][mine]);
    return all;
}

/* Finds what threads need to know of the block's columns. `parts`: nullptr, if the caller gives the sums. Forward gives the lse where
 * it is asked for. Nothing is there before the block is synchronized. */
template <typename T, encoding E, role R>
DEVICE void finish_slab(apply_memory<T, E> &memory, const copes_lrpe_problem &problem, const slab_place &place,
                        int64_t units, const column *parts)
{
    const int mine = (int)threadIdx.x;
    const int64_t at = find_column<T, E>(problem, place, units);
    finished_column done = {0, 1, 0};
    if (parts != nullptr) {
        const column all = merge_slab(memory, problem, place, at, parts);
        done = finish<R>(all, R == role::backward);
        if (R == role::forward && problem.lse.data != nullptr && place.rank == 0 && at >= 0 && mine < memory.COLUMNS)
            write_scalar(number_at(problem.lse, place, at), all.most + logf(all.sum));
    } else if (at >= 0) {
        done.shift = read_scalar(number_at(problem.lse, place, at));
        done.dot = R == role::forward ? 0 : read_scalar(number_at(problem.delta, place, at));
    }
    if (mine < memory.COLUMNS) {
        memory.shift[mine] = done.shift;
        memory.rest[mine] = R == role::forward ? done.scale : done.dot;
    }
}

/* A thread's tokens, some of which are on their way. */
template <typename T, encoding E, role R> struct tokens_ahead {
    static constexpr int V = vector_length<T>;
    static constexpr bool BACKWARD = R != role::forward;
    typedef strip<T, V, plain_vectors<E>, false> plain_strip;
    typedef strip<T, V, 2, false> wide_strip;
    typedef apply_reader<E, R> reader;
    plain_strip x;
    wide_strip g;
    reader ahead;
    int tokens;

    template <typename Thread>
    __device__ __forceinline__ tokens_ahead(const Thread &s, char *memory)
        : x(BACKWARD ? s.problem.x : s.problem.src, s.problem.dtype, s.place.b, s.place.h, s.at.plain, s.place.first,
            s.place.token_stride),
          g(s.problem.src, s.problem.dtype, s.place.b, s.place.h, s.at.encoded, s.place.first, s.place.token_stride),
          ahead(memory), tokens(s.at.plain[0] < 0 ? 0 : s.place.tokens)
    {
#pragma unroll
        for (int i = 0; i < reader::DEPTH; i++)
            start(i);
    }
    /* Takes a token's gradients, which come first: elements then take no registers while gradients turn back. */
    __device__ __forceinline__ void take_gradients(int token, float (&gradients)[2][V])
    {
        ahead.wait();
        if (BACKWARD)
            wide_strip::take(ahead, token, plain_strip::VECTORS, gradients);
    }
    /* Takes its elements, and starts to read a token that comes later. */
    __device__ __forceinline__ void take_elements(int token, float (&values)[2][V])
    {
        plain_strip::take(ahead, token, 0, values);
        start(token + reader::DEPTH);
    }

  private:
    __device__ __forceinline__ void start(int token)
    {
        if (token < tokens) {
            x.start(&ahead, token, 0);
            x.next();
            if (BACKWARD) {
                g.start(&ahead, token, plain_strip::VECTORS);
                g.next();
            }
        }
        ahead.end_row();
    }
};

/* What a thread's tokens are finished by: its columns and, from chunk to chunk, the rotations of the first token. */
template <typename T, encoding E, role R, bool ANYWHERE> struct token_finisher {
    static constexpr int V = vector_length<T>, COLUMNS = plain_vectors<E> * V;
    static constexpr bool BACKWARD = R != role::forward;
    const apply_memory<T, E> &memory;
    const slab_thread<T, V, E, R, ANYWHERE> &s;
    float shift[COLUMNS], rest[COLUMNS];
    rotation first[V];
    uint32_t chunk;  /* the tokens of a chunk in line, less 1; 0: each token's rotations are found by themselves */
    uint32_t scaled; /* may `rest` be other than 1 forward? */

    __device__ __forceinline__ token_finisher(const apply_memory<T, E> &memory,
                                              const slab_thread<T, V, E, R, ANYWHERE> &s)
        : memory(memory), s(s), chunk(s.line ? CHUNK - 1 : 0),
          scaled(!BACKWARD && s.problem.passes == COPES_BOTH_PASSES)
    {
        settle(chunk); /* else each token finds them anew */
        settle(scaled);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            shift[i] = memory.shift[i * memory.UNITS + s.place.tile_unit];
            rest[i] = memory.rest[i * memory.UNITS + s.place.tile_unit];
        }
    }
    /* Finds the rotations of a chunk's first token, or of a token that is in no line. */
    __device__ __forceinline__ void turn_to(int token)
    {
        const int64_t at = s.place.first + token * s.place.token_stride;
        if (ANYWHERE && token % CHUNK == 0)
            chunk = s.find_line(at, s.place.tokens - token, first) ? CHUNK - 1 : 0;
        if (((uint32_t)token & chunk) == 0 && !(ANYWHERE && chunk != 0))
            find_rotations<T, V, ANYWHERE>(memory, s.problem, s.place, at, first);
    }
    /* Reads a token and makes its results. */
    __device__ __forceinline__ void finish(int token, tokens_ahead<T, E, R> &read, float (&values)[2][V]) const
    {
        float gradients[2][V];
        read.take_gradients(token, gradients);
        rotation rotations[V];
#pragma unroll
        for (int i = 0; i < V && s.rotated; i++)
            rotations[i] =
                first[i] * memory.advances[(uint32_t)token & chunk][advance_place<T, V>(s.place.tile_unit, i)];
        if (BACKWARD && s.rotated)
            decode<E>(gradients, rotations, true);
        read.take_elements(token, values);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            float &value = values[i / V][i % V];
            value = column_term<T, R>(value, shift[i]);
            if (BACKWARD)
                value *= gradients[i / V][i % V] - rest[i];
        }
#pragma unroll
        for (int i = 0; i < COLUMNS && !BACKWARD && scaled != 0; i++)
            values[i / V][i % V] *= rest[i];
        if (!BACKWARD && s.rotated)
            encode<E>(values, rotations, true);
    }
};

/* Two blocks run on a multiprocessor. */
template <typename T, encoding E, role R, bool ANYWHERE>
__global__ void LAUNCH_BOUNDS(THREADS, 2)
    sequence_apply(GPU_PARAMETER copes_lrpe_problem argument, slab_cut cut, column *parts)
{
    constexpr int V = vector_length<T>, RESULTS = R == role::forward ? 2 : plain_vectors<E>;
    const copes_lrpe_problem &problem = first_argument(argument);
    apply_memory<T, E> &memory = *reinterpret_cast<apply_memory<T, E> *>(dynamic_shared());
    const slab_place place = find_place<T, V, true>(problem, cut);
    slab_thread<T, V, E, R, ANYWHERE> s(problem, memory, place, cut.units);
    tokens_ahead<T, E, R> read(s, dynamic_shared() + sizeof memory);
    s.look_for_line();
    finish_slab<T, E, R>(memory, problem, place, cut.units, problem.passes == COPES_BOTH_PASSES ? parts : nullptr);
    find_angle_steps<!ANYWHERE>(memory, problem, place);
    if (problem.k == 0)
        __syncthreads();
    token_finisher<T, E, R, ANYWHERE> with(memory, s);
    strip<T, V, RESULTS, false> result(problem.dst, problem.dtype, place.b, place.h,
                                       R == role::forward ? s.at.encoded : s.at.plain, place.first, place.token_stride);
#pragma unroll 1
    for (int token = 0; token < read.tokens; token++, result.next()) {
        float values[2][V];
        if (s.rotated)
            with.turn_to(token);
        with.finish(token, read, values);
        result.write(values);
    }
}

} // namespace COPES_GPU::sequence

#endif
