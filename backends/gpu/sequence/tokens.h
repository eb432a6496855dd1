/* A thread's tokens in the portable kernels of softmax over the sequence: whether their positions are in line, and how they are read
 * ahead. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_TOKENS_H
#define COPES_BACKENDS_GPU_SEQUENCE_TOKENS_H

#include "backends/gpu/sequence/slab.h"

namespace COPES_GPU::sequence
{

/* Tokens whose loads are under way together: as many as registers allow. LATE: the columns' sums are known, and nothing before
 * them is in the kernel. */
template <encoding E, role R, bool LATE>
inline constexpr int batch_of = WIDE_UNITS                      ? 1
                                : LATE || E == encoding::cosine ? (R == role::forward ? 4 : 2)
                                                                : (R == role::forward ? 2 : 1);

/* The distance in tokens of prefetches to the L2 cache. Loads to registers alone are too few to hide memory's
 * latency. Backward there are two tensors. */
template <role R> inline constexpr int far_of = R == role::forward ? 4 : 2;

/* A thread's slab of a problem. */
template <typename T, int V, encoding E, role R, bool ANYWHERE> struct slab_thread {
    static constexpr int PLAIN = plain_vectors<E>, COLUMNS = PLAIN * V;
    static constexpr bool BACKWARD = R != role::forward, SCATTERED = vectors_anywhere<V, ANYWHERE>;
    const copes_lrpe_problem &problem;
    const slab_angles<T, V> &memory;
    const slab_place &place;
    const places_of<int64_t> at;
    bool kept;       /* is the lse given? */
    bool rotated;    /* does the unit have angles? */
    bool line;       /* are the positions of all the thread's tokens known to be in line? */
    uint32_t beyond; /* SCATTERED: and how much more is each than its token's number? */

    __device__ __forceinline__ slab_thread(const copes_lrpe_problem &problem, const slab_angles<T, V> &memory,
                                           const slab_place &place, int64_t units)
        : problem(problem), memory(memory), place(place), at(find_slab_places(problem, place.unit, place.unit < units)),
          kept(R == role::backward && problem.lse.data != nullptr), rotated(E == encoding::cosine || at.rotated),
          line(!ANYWHERE && is_on_grid_line()), beyond(0)
    {
    }
    /* Finds out whether the block's positions are in line, as nearly always: else each chunk waits for its own before its first
     * token. All threads of the block must call this. */
    __device__ __forceinline__ void look_for_line()
    {
        if (!SCATTERED || problem.k == 0 || !may_be_in_line(problem))
            return;
        const int64_t begin = place.first - place.row;
        bool apart = false;
        if (place.tokens > 0)
            beyond = (uint32_t)position_of(problem, place.b, begin) - (uint32_t)begin;
        for (int i = place.tile_unit; i < place.tokens; i += memory.UNITS) {
            const int64_t token = place.first + i * place.token_stride;
            const uint64_t position = position_of(problem, place.b, token);
            apart |= (int64_t)position != (int32_t)position || (uint32_t)position - (uint32_t)token != beyond;
        }
        line = !any_of_block(apart);
    }
    __device__ __forceinline__ float *lse_of(int column) const
    {
        return number_at(problem.lse, place, at.plain[column / V] + column % V);
    }
    __device__ __forceinline__ float *delta_of(int column) const
    {
        return number_at(problem.delta, place, at.plain[column / V] + column % V);
    }

    /* Are the positions of a chunk in line, of up to `count` tokens from `start` on? Then finds the rotations of the first. */
    __device__ __forceinline__ bool find_line(int64_t start, int count, rotation (&first)[V]) const
    {
        const uint64_t position = line ? beyond + (uint32_t)start : position_of(problem, place.b, start);
        bool in_line = line || (int64_t)position == (int32_t)position;
#pragma unroll 5
        for (int j = 1; j < CHUNK && !line; j++) {
            const int64_t apart = j * place.token_stride;
            if (j < count)
                in_line &= position_of(problem, place.b, start + apart) - position == (uint64_t)apart;
        }
#pragma unroll
        for (int i = 0; i < V && in_line; i++) {
            const rotation here = memory.angle_steps[i][place.tile_unit].at((int32_t)position);
            first[i] = {problem.amplitude * here.cosine, problem.amplitude * here.sine};
        }
        return in_line;
    }

  private:
    /* Are all of the thread's tokens on a grid of one dimension? */
    __device__ __forceinline__ bool is_on_grid_line() const
    {
        if (WIDE_UNITS) /* what follows would spill gfx90a's scalar registers */
            return in_line(problem);
        const int64_t begin = place.first - problem.prefix, end = begin + (place.tokens - 1) * place.token_stride;
        return problem.grid_rank == 1 && begin >= 0 && end < problem.length;
    }
    /* The two features of a unit of one pair are its two vectors, whichever the pairing. */
    DEVICE places_of<int64_t> find_slab_places(const copes_lrpe_problem &problem, int64_t unit, bool live)
    {
        if (V == 1 && E == encoding::half && problem.pairing != COPES_LRPE_HALF)
            return find_places<encoding::interleaved, V>(problem.d, problem.k, problem.begin, unit, live);
        return find_places<E, V>(problem.d, problem.k, problem.begin, unit, live);
    }
};

/* Goes through a thread's tokens in batches, a chunk at a time. While one batch is used, the next one is being read. */
template <typename T, int V, encoding E, role R, bool ANYWHERE, bool LATE> struct token_walk {
    static constexpr int PLAIN = plain_vectors<E>, BATCH = batch_of<E, R, LATE>, FAR = far_of<R>;
    static constexpr bool BACKWARD = R != role::forward, JOINED = is_joined<T, E, V>;
    static constexpr bool SCATTERED = vectors_anywhere<V, ANYWHERE>;
    typedef strip<T, V, PLAIN, JOINED> plain_strip;
    typedef strip<T, V, 2, JOINED> wide_strip;
    const slab_thread<T, V, E, R, ANYWHERE> &s;
    int left;      /* tokens that no chunk before this one has had */
    int64_t start; /* the number of the chunk's token 0 */
    int here = 0;  /* tokens of the chunk, and after it of as many as are asked for before */
    bool line;     /* are the chunk's rotations `first` and its advances? */
    plain_strip x;
    wide_strip g;
    typename plain_strip::vector_words words[BATCH][plain_strip::VECTORS];
    typename wide_strip::vector_words wide[BATCH][wide_strip::VECTORS];
    rotation first[V]; /* of the chunk's first token */
    typedef rotation chunk_rotations[SCATTERED ? CHUNK * V : 1];
    chunk_rotations &scattered; /* of tokens that are not in line: in local memory, and so no part of this */

    __device__ __forceinline__ token_walk(const slab_thread<T, V, E, R, ANYWHERE> &s, chunk_rotations &scattered)
        : s(s), left(s.place.tokens), start(s.place.first), line(s.line),
          x(BACKWARD ? s.problem.x : s.problem.src, s.problem.dtype, s.place.b, s.place.h, s.at.plain, s.place.first,
            s.place.token_stride),
          g(s.problem.src, s.problem.dtype, s.place.b, s.place.h, s.at.encoded, s.place.first, s.place.token_stride),
          scattered(scattered)
    {
        count();
        read_ahead(0);
    }
    __device__ __forceinline__ bool more() const
    {
        return left > 0;
    }
    /* The number of the chunk's token j. */
    __device__ __forceinline__ int64_t token(int j) const
    {
        return start + j * s.place.token_stride;
    }
    /* Does the chunk's token j exist? Also of the next chunk's first ones. */
    __device__ __forceinline__ bool has(int j) const
    {
        return j < here;
    }
    /* Tokens of the chunk. */
    __device__ __forceinline__ int of_chunk() const
    {
        return left < CHUNK ? left : CHUNK;
    }
    __device__ __forceinline__ void count()
    {
        here = left < CHUNK + BATCH + FAR ? left : CHUNK + BATCH + FAR;
    }
    /* Starts reading the batch from the chunk's token j on. */
    __device__ __forceinline__ void read_ahead(int j)
    {
#pragma unroll
        for (int t = j; t < j + BATCH; t++)
            read_token(t, words[t - j], wide[t - j]);
    }
    __device__ __forceinline__ void read_token(int j, typename plain_strip::vector_words (&words)[plain_strip::VECTORS],
                                               typename wide_strip::vector_words (&wide)[wide_strip::VECTORS])
    {
        if (has(j)) {
            x.read(words);
            if (BACKWARD)
                g.read(wide);
        }
        if (has(j + FAR)) {
            x.ask(FAR);
            if (BACKWARD && V > 1)
                g.ask(FAR);
        }
        x.next();
        g.next();
    }
    __device__ __forceinline__ void open_chunk()
    {
        count();
        if (ANYWHERE && s.rotated)
            line = (V > 1 || may_be_in_line(s.problem)) && s.find_line(start, here, first);
        else if (s.line && s.rotated)
            find_rotations<T, V, ANYWHERE>(s.memory, s.problem, s.place, token(0), first);
        if (SCATTERED && s.rotated && !line)
            find_scattered<V, rows_of<T, V>>(s.problem, s.place.b, s.place.h, s.place.unit, start, of_chunk(),
                                             scattered);
    }
    __device__ __forceinline__ void close_chunk()
    {
        left -= CHUNK;
        start += CHUNK * s.place.token_stride;
    }
    /* The rotations of the chunk's token j. */
    __device__ __forceinline__ void rotations_of(int j, rotation (&rotations)[V]) const
    {
        if (!SCATTERED && !line)
            return find_rotations<T, V, ANYWHERE>(s.memory, s.problem, s.place, token(j), rotations);
#pragma unroll
        for (int i = 0; i < V; i++)
            rotations[i] = line ? first[i] * s.memory.advances[j][advance_place<T, V>(s.place.tile_unit, i)]
                                : scattered[SCATTERED ? j * V + i : 0];
    }
    /* Takes a batch, from the chunk's token j on: elements, and the gradients of their softmax; anything past the end. */
    __device__ __forceinline__ void take(int j, float (&values)[BATCH][2][V], float (&gradients)[BATCH][2][V])
    {
#pragma unroll
        for (int t = 0; t < BATCH; t++) {
            plain_strip::unpack(words[t], values[t]);
            if (BACKWARD)
                wide_strip::unpack(wide[t], gradients[t]);
        }
        read_ahead(j + BATCH);
#pragma unroll
        for (int t = 0; t < BATCH; t++) {
            if (!BACKWARD || !s.rotated)
                continue;
            rotation rotations[V];
            rotations_of(j + t, rotations);
            decode<E>(gradients[t], rotations, true);
        }
    }
    /* Gives tokens past the end values that add nothing. */
    __device__ __forceinline__ void clear_past_end(int j, float (&values)[BATCH][2][V],
                                                   float (&gradients)[BATCH][2][V]) const
    {
        if (has(j + BATCH - 1))
            return;
#pragma unroll
        for (int t = 1; t < BATCH; t++)
#pragma unroll
            for (int i = 0; i < 2 * V && !has(j + t); i++) {
                values[t][i / V][i % V] = R == role::given ? 0 : -INFINITY;
                gradients[t][i / V][i % V] = 0;
            }
    }
};

} // namespace COPES_GPU::sequence

#endif
