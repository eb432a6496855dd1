/* The portable kernel of softmax over the sequence. A slab is all tokens of a tile, a few neighbouring columns of a head; some
 * blocks share it. `passes` says what of it a launch does:
 *   passes                first reads for the sums       the blocks merge theirs         then reads again, and writes
 *   COPES_BOTH_PASSES     yes                            as a cluster                    yes
 *   COPES_FIRST_PASS      yes                            as a cluster, for the caller    no
 *   likewise with parts   yes                            no, they leave parts            no; for the caller merge_parts merges them
 *   COPES_SECOND_PASS     no, the caller gives sums                                      yes
 *   likewise with parts   no, each block merges the parts                                yes
 * The second pass before half and cosine has a kernel of its own (apply.h), which is not here but for single elements.
 * So no token is written before its column has been read. Parts are in the workspace, a column for each block of the first
 * launch: (B, H, blocks, D). */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_COLUMNS_H
#define COPES_BACKENDS_GPU_SEQUENCE_COLUMNS_H

#include "backends/gpu/names.h"
#include "backends/gpu/reduce.h"
#include "backends/gpu/sequence/methods.h"
#include "backends/gpu/sequence/tokens.h"

#include <type_traits>

namespace COPES_GPU::sequence
{

/* The largest terms of a column: e^4 of float32 and of types known at run time, since larger exponents round more, and e^12 of
 * 16 bits, which do not show it. Each raised reference costs a warp as much as some tokens. */
template <typename T> inline constexpr float LARGEST_TERM = sizeof(T) == 2 ? 162754.8f : 54.6f;

/* A sum of many terms, a chunk of them at a time (Kahan): the next chunk begins with the rounding error of the last
 * join. */
struct chunk_sum {
    float chunk = 0, all = 0;

    __device__ __forceinline__ void join()
    {
        const float next = all + chunk;
        chunk -= next - all;
        all = next;
    }
    __device__ __forceinline__ void scale(float factor)
    {
        chunk *= factor;
        all *= factor;
    }
};

/* A thread's column while it reads. Terms are relative to a reference. A term that would be too large raises it. */
struct open_column {
    float reference;
    chunk_sum sum, dot;

    /* Raises the reference to x, if x is larger. */
    template <typename T, role R> __device__ __forceinline__ void raise(float x)
    {
        const float higher = fmaxf(x, reference), shrink = column_term<T, R>(reference, higher);
        reference = higher;
        sum.scale(shrink);
        if (R != role::forward)
            dot.scale(shrink);
    }
};

/* The terms of a batch's tokens, and each column's sum of them. */
template <typename T, role R, int BATCH, int COLUMNS> struct batch_terms {
    float terms[BATCH][COLUMNS], sums[COLUMNS];
    bool beyond = false; /* are a column's too large for its reference? */

    template <int V>
    __device__ __forceinline__ batch_terms(const open_column (&columns)[COLUMNS], const float (&x)[BATCH][2][V])
    {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
#pragma unroll
            for (int t = 0; t < BATCH; t++) {
                const float value = x[t][i / V][i % V];
                terms[t][i] = R == role::given ? value : column_term<T, R>(value, columns[i].reference);
                sums[i] = t == 0 ? terms[t][i] : sums[i] + terms[t][i];
            }
            beyond |= R != role::given && sums[i] > LARGEST_TERM<T>;
        }
    }
};

/* Adds the tokens of a batch. The first of a thread raises the reference, and few others. SUMS: the sum of the terms is asked for,
 * too. */
template <typename T, role R, bool SUMS, int BATCH, int COLUMNS, int V>
DEVICE void add_batch(open_column (&columns)[COLUMNS], const float (&x)[BATCH][2][V], const float (&g)[BATCH][2][V],
                      bool kept)
{
    batch_terms<T, R, BATCH, COLUMNS> of(columns, x);
    if (of.beyond && !kept) {
#pragma unroll
        for (int i = 0; i < BATCH * COLUMNS; i++)
            columns[i % COLUMNS].template raise<T, R>(x[i / COLUMNS][i % COLUMNS / V][i % V]);
        of = batch_terms<T, R, BATCH, COLUMNS>(columns, x);
    }
#pragma unroll
    for (int i = 0; i < COLUMNS && SUMS; i++)
        columns[i].sum.chunk += of.sums[i];
#pragma unroll
    for (int i = 0; i < BATCH * COLUMNS && R != role::forward; i++)
        columns[i % COLUMNS].dot.chunk = fmaf(of.terms[i / COLUMNS][i % COLUMNS],
                                              g[i / COLUMNS][i % COLUMNS / V][i % V], columns[i % COLUMNS].dot.chunk);
}

/* Goes through a thread's tokens: calls `take` for each batch, and `close` at the end of each chunk. */
template <bool LATE, typename T, int V, encoding E, role R, bool ANYWHERE, typename Take, typename Close>
DEVICE void for_tokens(const slab_thread<T, V, E, R, ANYWHERE> &s, Take take, Close close)
{
    typedef token_walk<T, V, E, R, ANYWHERE, LATE> tokens_of_thread;
    typename tokens_of_thread::chunk_rotations scattered;
    tokens_of_thread walk(s, scattered);
    for (; walk.more(); walk.close_chunk()) {
        walk.open_chunk();
        uint32_t tokens = (uint32_t)walk.of_chunk();
        keep_loop(tokens);
#pragma unroll 1
        for (int j = 0; j < (int)tokens; j += walk.BATCH) {
            float values[walk.BATCH][2][V], gradients[walk.BATCH][2][V];
            walk.take(j, values, gradients);
            take(walk, j, values, gradients);
        }
        close();
    }
}

/* KEPT: the lse is given for certain. `apart`: for the caller, of the first pass alone. Backward its lse is given, but no reference
 * that columns are merged by, as it may be infinite. */
template <bool KEPT, typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void read_columns(bool apart, const slab_thread<T, V, E, R, ANYWHERE> &s, column (&columns)[COLUMNS])
{
    constexpr bool SUMS = R != role::given && !KEPT; /* others have no sum, or one of 1 */
    open_column open[COLUMNS];
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
        open[i].reference = s.kept && s.at.plain[i / V] >= 0 ? read_scalar(s.lse_of(i)) : -FLT_MAX;
    const auto add = [&](const auto &walk, int j, auto &values, auto &gradients) {
        walk.clear_past_end(j, values, gradients);
        add_batch<T, R, SUMS>(open, values, gradients, KEPT || s.kept);
    };
    for_tokens<false>(s, add, [&] {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            if (SUMS)
                open[i].sum.join();
            open[i].dot.join();
        }
    });
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) { /* a given softmax has no reference */
        const float sum = open[i].sum.all, most = SUMS && sum == 0 && !s.kept ? -INFINITY : open[i].reference;
        columns[i] = {R == role::given || (apart && s.kept) ? 0 : most, sum, open[i].dot.all};
    }
}

/* From a token, backward with the gradient of its softmax, to the result. */
template <typename T, role R, int COLUMNS, int V>
DEVICE void finish_token(const finished_column (&columns)[COLUMNS], float (&values)[2][V],
                         const float (&gradients)[2][V])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        float &value = values[i / V][i % V];
        value = R == role::given ? value : columns[i].template softmax<T, R>(value);
        if (R != role::forward)
            value *= gradients[i / V][i % V] - columns[i].dot;
    }
}

template <bool LATE, typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void write_columns(const slab_thread<T, V, E, R, ANYWHERE> &s, const finished_column (&columns)[COLUMNS])
{
    constexpr bool BACKWARD = R != role::forward;
    strip<T, V, BACKWARD ? plain_vectors<E> : 2, is_joined<T, E, V>> result(s.problem.dst, s.problem.dtype, s.place.b,
                                                                            s.place.h,
                                                                            BACKWARD ? s.at.plain : s.at.encoded,
                                                                            s.place.first, s.place.token_stride);
    const auto finish = [&](const auto &walk, int j, auto &values, const auto &gradients) {
        constexpr int BATCH = std::remove_reference_t<decltype(walk)>::BATCH;
#pragma unroll
        for (int t = 0; t < BATCH; t++) {
            finish_token<T, R>(columns, values[t], gradients[t]);
            if (!BACKWARD && s.rotated) {
                rotation rotations[V];
                walk.rotations_of(j + t, rotations);
                encode<E>(values[t], rotations, true);
            }
        }
#pragma unroll
        for (int t = 0; t < BATCH; t++, result.next())
            if (walk.has(j + t))
                result.write(values[t]);
    };
    for_tokens<LATE>(s, finish, [] {});
}

/* The columns of a block or, after merge_blocks, of a slab: element i has column i / UNITS of unit i % UNITS. */
template <typename T, int V, int COLUMNS>
DEVICE void read_merged(const slab_memory<T, V> &memory, const slab_place &place, column (&columns)[COLUMNS])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = memory.half[0][i * tile_units_of<T, V> + place.tile_unit];
}

/* Merges the columns of a block's rows: the upper half of the rows hands its columns to the lower, and thread i merges those of
 * column i. It alone can read them before the block is synchronized. */
template <typename T, int V, int COLUMNS>
DEVICE void merge_rows(slab_memory<T, V> &memory, const slab_place &place, const column (&columns)[COLUMNS])
{
    constexpr int UNITS = tile_units_of<T, V>, HALF = rows_of<T, V> / 2;
    static_assert(COLUMNS * UNITS <= THREADS, "a column a thread");
    const bool upper = place.row >= HALF;
    column *const half = memory.half[place.row % HALF] + place.tile_unit;
    if (upper)
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
            half[i * UNITS] = columns[i];
    __syncthreads();
    if (!upper)
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
            half[i * UNITS] = merge(columns[i], half[i * UNITS]);
    __syncthreads();
    const int mine = (int)threadIdx.x;
    if (mine >= COLUMNS * UNITS)
        return;
    column all = memory.half[0][mine];
#pragma unroll
    for (int row = 1; row < HALF; row++)
        all = merge(all, memory.half[row][mine]);
    memory.half[0][mine] = all;
}

/* Merges the columns of all blocks of the cluster, a thread each. The first cluster_sync follows the writing of each block's
 * columns. The second keeps a block from overwriting its columns, or ending, before every other has read them. All threads
 * pass both. */
template <typename T, int V, int COLUMNS>
DEVICE void merge_blocks(slab_memory<T, V> &memory, const slab_place &place, uint32_t blocks,
                         column (&columns)[COLUMNS])
{
    const int mine = (int)threadIdx.x;
    cluster_sync();
    if (blocks > 1) {
        column all = {-INFINITY, 0, 0};
#pragma unroll 4
        for (uint32_t rank = 0; rank < blocks && mine < COLUMNS * tile_units_of<T, V>; rank++)
            all = merge(all, *map_to_rank(&memory.half[0][mine], rank));
        cluster_sync();
        if (mine < COLUMNS * tile_units_of<T, V>)
            memory.half[0][mine] = all;
        __syncthreads();
    }
    read_merged(memory, place, columns);
}

/* Of the first pass alone: what the caller gets of a column. */
template <typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void give_delta(const slab_thread<T, V, E, R, ANYWHERE> &s, const finished_column (&finished)[COLUMNS])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
        if (s.place.first == 0 && s.at.plain[i / V] >= 0)
            write_scalar(s.delta_of(i), finished[i].dot);
}

/* Of the second pass alone: what the caller gives. A column that does not exist has nothing. */
template <typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void take_sums(const slab_thread<T, V, E, R, ANYWHERE> &s, finished_column (&finished)[COLUMNS])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        const bool exists = s.at.plain[i / V] >= 0;
        finished[i] = {exists && R != role::given ? read_scalar(s.lse_of(i)) : 0, 1,
                       exists && R != role::forward ? read_scalar(s.delta_of(i)) : 0};
    }
}

/* A block's part of column i of a thread. */
template <typename T, int V, encoding E, role R, bool ANYWHERE>
DEVICE column *part_of(column *parts, const slab_thread<T, V, E, R, ANYWHERE> &s, uint32_t rank, int i)
{
    const int64_t head = s.place.b * s.problem.h + s.place.h;
    return parts + (head * s.place.blocks + rank) * s.problem.d + s.at.plain[i / V] + i % V;
}

template <typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void leave_parts(column *parts, const slab_thread<T, V, E, R, ANYWHERE> &s, const column (&columns)[COLUMNS])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
        if (s.place.row == 0 && s.at.plain[i / V] >= 0)
            *part_of(parts, s, s.place.rank, i) = columns[i];
}

/* A row's share of the parts. */
template <typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void take_parts(column *parts, const slab_thread<T, V, E, R, ANYWHERE> &s, column (&columns)[COLUMNS])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        columns[i] = {-INFINITY, 0, 0};
        for (uint32_t rank = s.place.row; rank < s.place.blocks && s.at.plain[i / V] >= 0; rank += rows_of<T, V>)
            columns[i] = merge(columns[i], *part_of(parts, s, rank, i));
    }
}

/* Columns of all blocks, to what the second reading takes. Forward gives the lse, where it is asked for. */
template <bool KEPT, typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void finish_columns(const slab_thread<T, V, E, R, ANYWHERE> &s, const column (&columns)[COLUMNS],
                           finished_column (&finished)[COLUMNS])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        finished[i] = finish<R>(columns[i], KEPT || s.kept);
        if (R == role::forward && s.problem.lse.data != nullptr && s.place.first == 0 && s.at.plain[i / V] >= 0)
            write_scalar(s.lse_of(i), columns[i].most + logf(columns[i].sum));
    }
}

/* Blocks that run on a multiprocessor: the sums of a forward take the fewest registers. Both passes of vectors of scattered tokens
 * take the most; only calls that two launches do not take come to them. */
template <role R, copes_passes P, bool VECTORS_ANYWHERE>
inline constexpr int columns_on_each = R == role::forward && P == COPES_FIRST_PASS  ? 3
                                       : VECTORS_ANYWHERE && P == COPES_BOTH_PASSES ? 1
                                                                                    : 2;

template <typename T, int V, encoding E, role R, bool ANYWHERE, copes_passes P>
__global__ void LAUNCH_BOUNDS(THREADS, (columns_on_each<R, P, vectors_anywhere<V, ANYWHERE>>))
    sequence_columns(GPU_PARAMETER copes_lrpe_problem argument, slab_cut cut, column *parts)
{
    const copes_lrpe_problem &problem = first_argument(argument);
    constexpr int COLUMNS = plain_vectors<E> * V;
    constexpr bool KEPT = R == role::backward && P != COPES_BOTH_PASSES; /* passes are refused without lse */
    __shared__ slab_memory<T, V> memory;
    const slab_place place = find_place<T, V, false>(problem, cut);
    find_angle_steps<!ANYWHERE>(memory, problem, place);
    slab_thread<T, V, E, R, ANYWHERE> s(problem, memory, place, cut.units);
    if (P != COPES_SECOND_PASS)
        s.look_for_line();

    column columns[COLUMNS];
    finished_column finished[COLUMNS];
    const bool apart = P != COPES_BOTH_PASSES && problem.passes != COPES_BOTH_PASSES;
    if (P == COPES_SECOND_PASS && apart) {
        take_sums(s, finished);
    } else {
        if constexpr (P == COPES_SECOND_PASS)
            take_parts(parts, s, columns);
        else
            read_columns<KEPT>(apart, s, columns);
        merge_rows<T, V>(memory, place, columns);
        if (P == COPES_FIRST_PASS && parts != nullptr) {
            __syncthreads();
            read_merged(memory, place, columns);
            return leave_parts(parts, s, columns);
        }
        merge_blocks<T, V>(memory, place, P == COPES_SECOND_PASS ? 1 : place.blocks, columns);
        finish_columns<KEPT>(s, columns, finished);
    }
    if constexpr (P != COPES_FIRST_PASS) {
        const slab_place later = find_again(place);
        slab_thread<T, V, E, R, ANYWHERE> again(problem, memory, later, cut.units);
        again.look_for_line();
        write_columns<P == COPES_SECOND_PASS>(again, finished);
    } else if constexpr (R != role::forward) {
        give_delta(s, finished);
    }
}

} // namespace COPES_GPU::sequence

#endif
