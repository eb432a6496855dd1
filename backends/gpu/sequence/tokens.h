/* A thread's way through its tokens in the portable kernel of softmax over the sequence: where they are, their rotations, and
 * reading them ahead. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_TOKENS_H
#define COPES_BACKENDS_GPU_SEQUENCE_TOKENS_H

#include "backends/gpu/sequence/column.h"
#include "launch.h"

namespace COPES_GPU::sequence
{

enum { THREADS = 256 };

/* Angles of a thread's unit. Two vectors of columns would take registers that NVIDIA's multiprocessors lack, and with
 * those the threads that hide what memory takes; AMD's have them, and are better at whole vectors. */
template <typename T> inline constexpr int unit_angles = WIDE_UNITS ? vector_length<T> : vector_length<T> / 2;

/* Neighbouring threads along a row: a line of the caches, or two halves that lie apart, or of single elements a warp's
 * worth. */
template <typename T, int V> inline constexpr int lanes_of = V == 1 ? 32 : V == vector_length<T> ? 8 : 16;
template <typename T, int V> inline constexpr int rows_of = THREADS / lanes_of<T, V>;

/* Tokens whose loads are under way together, as registers allow. */
template <encoding E, role R>
inline constexpr int batch_of = WIDE_UNITS              ? 1
                                : E == encoding::cosine ? (R == role::forward ? 4 : 2)
                                                        : (R == role::forward ? 2 : 1);

/* From a token that is read to one whose memory is asked for: loads in registers are too few to hide its latency. */
enum { FAR = 4 };

/* Tokens of a thread that share an exactly turned one, and whose sums are added before they join the others. */
enum { GROUP = 8 };

/* Pairs of neighbouring elements are pairs of units of one element. */
template <encoding E, int V>
inline constexpr encoding arithmetic_of = V == 1 && E == encoding::interleaved ? encoding::half : E;

/* The block's part of the shared memory: the steps of its angles, the advances from the first of a thread's group of tokens
 * to the others, then its threads' columns. */
template <typename T, int V> struct slab_memory {
    static constexpr int angles = lanes_of<T, V> * V, columns = 2 * angles;
    angle_step step[angles];
    int dimension[angles];
    alignas(16) rotation advances[GROUP][angles];
    column half[rows_of<T, V> / 2][columns]; /* half of the rows hands its columns to the other */
};

/* Where a thread is: tokens first, first + apart .. of one unit of a head. */
struct slab_place {
    int lane, row;
    uint32_t ranks; /* blocks of the cluster */
    int64_t unit, h, b, first, apart;
};

template <typename T, int V>
DEVICE slab_place find_place(const copes_lrpe_problem &problem, uint32_t tiles, uint32_t ranks)
{
    const uint32_t slab = blockIdx.x / ranks, above = slab / tiles, tile = slab - above * tiles;
    const uint32_t b = above / (uint32_t)problem.h;
    const int lane = (int)threadIdx.x % lanes_of<T, V>, row = (int)threadIdx.x / lanes_of<T, V>;
    return {lane,
            row,
            ranks,
            (int64_t)tile * lanes_of<T, V> + lane,
            above - b * (uint32_t)problem.h,
            b,
            (int64_t)cluster_rank() * rows_of<T, V> + row,
            (int64_t)ranks * rows_of<T, V>};
}

/* Are positions those of a line from token 0 on, as nearly always? Then a token costs far fewer instructions. */
DEVICE bool in_line(const copes_lrpe_problem &problem)
{
    return problem.grid_rank == 1 && problem.prefix == 0 && problem.length >= problem.n;
}

/* Where the advance of angle i of a lane's unit lies among a token's. */
template <typename T, int V> DEVICE int advance_place(int lane, int i)
{
    constexpr int N = V > 1 ? 2 : 1;
    return unit_place<V, N, int>(lanes_of<T, V>, 0, lane, i);
}

template <typename T, int V>
DEVICE void find_steps(slab_memory<T, V> &memory, const copes_lrpe_problem &problem, const slab_place &place)
{
    for (int i = (int)threadIdx.x; i < memory.angles; i += THREADS) {
        const int64_t k = (place.unit - place.lane) * V + i;
        memory.dimension[i] = k < problem.k ? dimension_of(problem, k) : -1;
        memory.step[i] = k < problem.k ? step_of(problem, place.h, k, memory.dimension[i]) : angle_step{0, 0, 0};
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < GROUP * memory.angles; i += THREADS) {
        const int token = i / memory.angles, angle = i % memory.angles;
        memory.advances[token][advance_place<T, V>(angle / V, angle % V)] =
            rotation_at<true>(memory.step[angle], (int32_t)(token * place.apart));
    }
    __syncthreads();
}

/* The rotations of a thread's unit at a token. */
template <typename T, int V>
DEVICE void find_rotations(const slab_memory<T, V> &memory, const copes_lrpe_problem &problem, int lane, int64_t token,
                           rotation (&rotations)[V])
{
    const angle_step *const steps = memory.step + lane * V; /* 0 for an angle that no dimension turns */
    if (in_line(problem)) {
#pragma unroll
        for (int i = 0; i < V; i++)
            rotations[i] = rotation_at<true>(steps[i], (int32_t)(problem.offset[0] + token));
        return;
    }
    int32_t position[COPES_MAX_GRID] = {0, 0, 0, 0};
    const bool in_grid = find_positions(problem, token, position);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const rotation here = rotation_at<true>(steps[i], position_in(position, memory.dimension[lane * V + i]));
        rotations[i] = in_grid ? here : rotation{1, 0};
    }
}

/* All that a thread has of a problem. */
template <typename T, int V, encoding E, role R> struct slab {
    static constexpr int PLAIN = plain_vectors<E>, COLUMNS = PLAIN * V;
    static constexpr bool BACKWARD = R != role::forward;
    const copes_lrpe_problem &problem;
    const slab_memory<T, V> &memory;
    const slab_place &place;
    const places_of<int64_t> &at;
    int64_t tokens; /* of a thread */
    bool kept, rotated, line;

    __device__ __forceinline__ slab(const copes_lrpe_problem &problem, const slab_memory<T, V> &memory,
                                    const slab_place &place, const places_of<int64_t> &at)
        : problem(problem), memory(memory), place(place), at(at),
          tokens((problem.n - place.first + place.apart - 1) / place.apart),
          kept(R == role::backward && problem.lse.data != nullptr), rotated(E == encoding::cosine || at.rotated),
          line(in_line(problem))
    {
    }
    __device__ __forceinline__ float *lse_of(int column) const
    {
        return static_cast<float *>(problem.lse.data) + place.b * problem.lse.stride[0] +
               place.h * problem.lse.stride[1] + (at.plain[column / V] + column % V) * problem.lse.stride[2];
    }
};

/* A thread's way through its tokens, in batches of which the next is always being read. */
template <typename T, int V, encoding E, role R> struct token_walk {
    static constexpr int PLAIN = plain_vectors<E>, BATCH = batch_of<E, R>;
    static constexpr bool BACKWARD = R != role::forward;
    const slab<T, V, E, R> &s;
    int64_t left; /* tokens that are not taken yet */
    strip<T, V, PLAIN> x;
    strip<T, V, 2> g;
    raw<T, V> words[BATCH][PLAIN], wide[BATCH][2];
    rotation first[V]; /* of the group */

    __device__ __forceinline__ explicit token_walk(const slab<T, V, E, R> &s)
        : s(s), left(s.tokens),
          x(BACKWARD ? s.problem.x : s.problem.src, s.place.b, s.place.h, s.at.plain, s.place.first, s.place.apart),
          g(s.problem.src, s.place.b, s.place.h, s.at.encoded, s.place.first, s.place.apart)
    {
        read_ahead(0);
    }
    __device__ __forceinline__ bool more() const
    {
        return left > 0;
    }
    /* The token that is t after the one to be taken next. */
    __device__ __forceinline__ int64_t token(int t) const
    {
        return s.place.first + (s.tokens - left + t) * s.place.apart;
    }
    __device__ __forceinline__ void read_ahead(int after)
    {
#pragma unroll
        for (int t = 0; t < BATCH; t++) {
            if (left > after + t) {
                x.read(words[t]);
                if (BACKWARD)
                    g.read(wide[t]);
            }
            if (left > after + t + FAR) {
                x.ask(FAR);
                if (BACKWARD)
                    g.ask(FAR);
            }
            x.next();
            g.next();
        }
    }
    __device__ __forceinline__ void open_group()
    {
        if (s.line && s.rotated)
            find_rotations<T, V>(s.memory, s.problem, s.place.lane, token(0), first);
    }
    /* The rotations of the group's token j, which is t after the one to be taken next. */
    __device__ __forceinline__ void rotations_of(int j, int t, rotation (&rotations)[V]) const
    {
        if (!s.line)
            return find_rotations<T, V>(s.memory, s.problem, s.place.lane, token(t), rotations);
#pragma unroll
        for (int i = 0; i < V; i++)
            rotations[i] = first[i] * s.memory.advances[j][advance_place<T, V>(s.place.lane, i)];
    }
    /* Takes a batch, the group's j-th token on: elements, and the gradients of their softmax. A token past the end adds
     * nothing. */
    __device__ __forceinline__ void take(int j, float (&values)[BATCH][2][V], float (&gradients)[BATCH][2][V])
    {
#pragma unroll
        for (int t = 0; t < BATCH; t++)
            unpack(t < left, words[t], wide[t], values[t], gradients[t]);
        read_ahead(BATCH);
#pragma unroll
        for (int t = 0; t < BATCH; t++) {
            if (!BACKWARD || !s.rotated)
                continue;
            rotation rotations[V];
            rotations_of(j + t, t, rotations);
            decode<arithmetic_of<E, V>>(gradients[t], rotations, true);
        }
        left -= BATCH;
    }
    __device__ __forceinline__ void unpack(bool there, const raw<T, V> (&words)[PLAIN], const raw<T, V> (&wide)[2],
                                           float (&values)[2][V], float (&gradients)[2][V]) const
    {
#pragma unroll
        for (int i = 0; i < PLAIN; i++)
            words[i].unpack(values[i]);
#pragma unroll
        for (int i = 0; i < 2 && BACKWARD; i++)
            wide[i].unpack(gradients[i]);
        if (there)
            return;
#pragma unroll
        for (int i = 0; i < 2 * V; i++) {
            values[i / V][i % V] = R == role::given ? 0 : -INFINITY;
            gradients[i / V][i % V] = 0;
        }
    }
};

} // namespace COPES_GPU::sequence

#endif
