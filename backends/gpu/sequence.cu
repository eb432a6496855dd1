/* Softmax over the sequence, alone or before an encoding, on any GPU and of any length. A slab, all tokens of a few
 * neighbouring columns of a head, is shared out among the blocks of a cluster, or has one block where there are no
 * clusters. It is read twice, once for the statistics and once to write, so that no token is written before its column
 * has been read. Bound by memory and, for the second reading, by how much of the slabs under way the caches hold; a
 * vendor's own kernel that keeps a slab on chip comes first where it fits. */
#include "backends/gpu/kernels.h"
#include "backends/gpu/reduce.h"
#include "backends/gpu/sequence.h"
#include "clusters.h"

namespace COPES_GPU
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

/* The block's part of the shared memory: the steps of its angles, the ways from the first of a thread's group of tokens
 * to the others, then its threads' columns. */
template <typename T, int V> struct slab_memory {
    static constexpr int angles = lanes_of<T, V> * V, columns = 2 * angles;
    angle_step step[angles];
    int dimension[angles];
    alignas(16) turn ways[GROUP][angles];
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

/* Where angle i of a lane's unit lies among a token's, so that a warp's reads meet no bank twice. */
template <typename T, int V> DEVICE int way_place(int lane, int i)
{
    constexpr int N = V > 1 ? 2 : 1;
    return (i / N * lanes_of<T, V> + lane) * N + i % N;
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
        memory.ways[token][way_place<T, V>(angle / V, angle % V)] =
            turn_at<true>(memory.step[angle], (int32_t)(token * place.apart));
    }
    __syncthreads();
}

/* The turns of a thread's unit at a token. */
template <typename T, int V>
DEVICE void find_turns(const slab_memory<T, V> &memory, const copes_lrpe_problem &problem, int lane, int64_t token,
                       turn (&turns)[V])
{
    const angle_step *const steps = memory.step + lane * V; /* 0 for an angle that no dimension turns */
    if (in_line(problem)) {
#pragma unroll
        for (int i = 0; i < V; i++)
            turns[i] = turn_at<true>(steps[i], (int32_t)(problem.offset[0] + token));
        return;
    }
    int32_t position[COPES_MAX_GRID] = {0, 0, 0, 0};
    const bool in_grid = find_positions(problem, token, position);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const turn here = turn_at<true>(steps[i], position_in(position, memory.dimension[lane * V + i]));
        turns[i] = in_grid ? here : turn{1, 0};
    }
}

/* What a term of a column may exceed 1 by, as a power of e: exponents round the more the larger they are. */
constexpr float SLACK = 4;

/* A sum of many terms, a group of them at a time: what a group's sum loses when it joins the others, the next group
 * begins with (Kahan). */
struct group_sum {
    float group = 0, all = 0;

    __device__ __forceinline__ void join()
    {
        const float next = all + group;
        group -= next - all;
        all = next;
    }
    __device__ __forceinline__ void scale(float factor)
    {
        group *= factor;
        all *= factor;
    }
};

/* A thread's column while it reads: terms relative to a reference, which is raised where a term would be too large. */
struct open_column {
    float reference;
    group_sum sum, dot;

    /* Makes x a term of 1 at most. */
    __device__ __forceinline__ void raise(float x)
    {
        const float higher = fmaxf(x, reference), shrink = softmax_term(reference, higher);
        reference = higher;
        sum.scale(shrink);
        dot.scale(shrink);
    }
};

/* All that a thread has of a problem. */
template <typename T, int V, encoding E, role R> struct slab {
    static constexpr int PLAIN = plain_vectors<E>, COLUMNS = PLAIN * V;
    static constexpr bool BACKWARD = R != role::forward;
    const copes_lrpe_problem &problem;
    const slab_memory<T, V> &memory;
    const slab_place &place;
    const places_of<int64_t> &at;
    int64_t tokens; /* of a thread */
    bool kept, turned, line;

    __device__ __forceinline__ slab(const copes_lrpe_problem &problem, const slab_memory<T, V> &memory,
                                    const slab_place &place, const places_of<int64_t> &at)
        : problem(problem), memory(memory), place(place), at(at),
          tokens((problem.n - place.first + place.apart - 1) / place.apart),
          kept(R == role::backward && problem.lse.data != nullptr), turned(E == encoding::cosine || at.turned),
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
    turn first[V]; /* of the group */

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
        if (s.line && s.turned)
            find_turns<T, V>(s.memory, s.problem, s.place.lane, token(0), first);
    }
    /* The turns of the group's token j, which is t after the one to be taken next. */
    __device__ __forceinline__ void turns_of(int j, int t, turn (&turns)[V]) const
    {
        if (!s.line)
            return find_turns<T, V>(s.memory, s.problem, s.place.lane, token(t), turns);
#pragma unroll
        for (int i = 0; i < V; i++)
            turns[i] = first[i] * s.memory.ways[j][way_place<T, V>(s.place.lane, i)];
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
            if (!BACKWARD || !s.turned)
                continue;
            turn turns[V];
            turns_of(j + t, t, turns);
            decode<arithmetic_of<E, V>>(gradients[t], turns, true);
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

/* Takes the tokens of a batch. */
template <role R, int BATCH, int COLUMNS, int V>
DEVICE void add_batch(open_column (&columns)[COLUMNS], const float (&x)[BATCH][2][V], const float (&g)[BATCH][2][V],
                      bool kept)
{
    bool beyond = false;
#pragma unroll
    for (int i = 0; i < BATCH * COLUMNS && R != role::given; i++)
        beyond |= x[i / COLUMNS][i % COLUMNS / V][i % V] - columns[i % COLUMNS].reference > SLACK;
    if (beyond && !kept) {
#pragma unroll
        for (int i = 0; i < BATCH * COLUMNS; i++)
            columns[i % COLUMNS].raise(x[i / COLUMNS][i % COLUMNS / V][i % V]);
    }
#pragma unroll
    for (int i = 0; i < BATCH * COLUMNS; i++) {
        open_column &c = columns[i % COLUMNS];
        const float value = x[i / COLUMNS][i % COLUMNS / V][i % V];
        const float e = R == role::given ? value : softmax_term(value, c.reference);
        c.sum.group += e;
        if (R != role::forward)
            c.dot.group = fmaf(e, g[i / COLUMNS][i % COLUMNS / V][i % V], c.dot.group);
    }
}

template <typename T, int V, encoding E, role R, int COLUMNS>
DEVICE void read_columns(const slab<T, V, E, R> &s, column (&columns)[COLUMNS])
{
    open_column open[COLUMNS];
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
        open[i].reference = s.kept && s.at.plain[i / V] >= 0 ? read_scalar(s.lse_of(i)) : -FLT_MAX;
    token_walk<T, V, E, R> walk(s);
    while (walk.more()) {
        walk.open_group();
#pragma unroll 1
        for (int j = 0; j < GROUP && walk.more(); j += walk.BATCH) {
            float values[walk.BATCH][2][V], gradients[walk.BATCH][2][V];
            walk.take(j, values, gradients);
            add_batch<R>(open, values, gradients, s.kept);
        }
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            open[i].sum.join();
            open[i].dot.join();
        }
    }
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) { /* sums of a given softmax are relative to 1 */
        const float sum = open[i].sum.all, most = sum == 0 && !s.kept ? -INFINITY : open[i].reference;
        columns[i] = {R == role::given ? 0 : most, sum, open[i].dot.all};
    }
}

/* From a token, and the gradient of its softmax, to what is written. */
template <role R, int COLUMNS, int V>
DEVICE void finish_token(const finished_column (&columns)[COLUMNS], float (&values)[2][V],
                         const float (&gradients)[2][V])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        float &value = values[i / V][i % V];
        value = R == role::given ? value : columns[i].softmax(value);
        if (R != role::forward)
            value *= gradients[i / V][i % V] - columns[i].dot;
    }
}

template <typename T, int V, encoding E, role R, int COLUMNS>
DEVICE void write_columns(const slab<T, V, E, R> &s, const finished_column (&columns)[COLUMNS])
{
    constexpr bool BACKWARD = R != role::forward;
    strip<T, V, BACKWARD ? plain_vectors<E> : 2> to(s.problem.dst, s.place.b, s.place.h,
                                                    BACKWARD ? s.at.plain : s.at.encoded, s.place.first, s.place.apart);
    token_walk<T, V, E, R> walk(s);
    while (walk.more()) {
        walk.open_group();
#pragma unroll 1
        for (int j = 0; j < GROUP && walk.more(); j += walk.BATCH) {
            float values[walk.BATCH][2][V], gradients[walk.BATCH][2][V];
            walk.take(j, values, gradients);
#pragma unroll
            for (int t = 0; t < walk.BATCH; t++, to.next()) {
                finish_token<R>(columns, values[t], gradients[t]);
                if (!BACKWARD && s.turned) {
                    turn turns[V];
                    walk.turns_of(j + t, t - walk.BATCH, turns);
                    encode<arithmetic_of<E, V>>(values[t], turns, true);
                }
                if (t - walk.BATCH < walk.left)
                    to.write(values[t]);
            }
        }
    }
}

/* Merges the columns of a block's rows into those of row 0. */
template <typename T, int V, int COLUMNS>
DEVICE void merge_rows(slab_memory<T, V> &memory, const slab_place &place, column (&columns)[COLUMNS])
{
    constexpr int LANES = lanes_of<T, V>;
    for (int rows = rows_of<T, V> / 2; rows > 0; rows /= 2) {
        if (place.row >= rows && place.row < 2 * rows)
            for (int i = 0; i < COLUMNS; i++)
                memory.half[place.row - rows][i * LANES + place.lane] = columns[i];
        __syncthreads();
        if (place.row < rows)
            for (int i = 0; i < COLUMNS; i++)
                columns[i] = merge(columns[i], memory.half[place.row][i * LANES + place.lane]);
        __syncthreads();
    }
}

/* Merges those of all blocks of the cluster, a column a thread; every thread gets those of its unit. */
template <typename T, int V, int COLUMNS>
DEVICE void merge_ranks(slab_memory<T, V> &memory, const slab_place &place, column (&columns)[COLUMNS])
{
    constexpr int LANES = lanes_of<T, V>;
    const int mine = (int)threadIdx.x;
    static_assert(COLUMNS * LANES <= THREADS, "a column a thread");
    if (place.row == 0)
        for (int i = 0; i < COLUMNS; i++)
            memory.half[0][i * LANES + place.lane] = columns[i];
    synchronize_cluster();
    if (place.ranks > 1) {
        column all = {-INFINITY, 0, 0};
        for (uint32_t rank = 0; rank < place.ranks && mine < COLUMNS * LANES; rank++)
            all = merge(all, *in_cluster(&memory.half[0][mine], rank));
        synchronize_cluster(); /* every block has read every other's */
        if (mine < COLUMNS * LANES)
            memory.half[0][mine] = all;
        __syncthreads();
    }
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = memory.half[0][i * LANES + place.lane];
}

template <typename T, int V, encoding E, role R>
__global__ void LAUNCH_BOUNDS(THREADS, 2)
    sequence_columns(GPU_PARAMETER copes_lrpe_problem argument, int64_t units, uint32_t tiles, uint32_t ranks)
{
    const copes_lrpe_problem &problem = first_argument(argument);
    constexpr int COLUMNS = plain_vectors<E> * V;
    __shared__ slab_memory<T, V> memory;
    const slab_place place = find_place<T, V>(problem, tiles, ranks);
    find_steps<T, V>(memory, problem, place);
    const places_of<int64_t> at = find_places<E, V>(problem.d, problem.k, place.unit, place.unit < units);
    const slab<T, V, E, R> s(problem, memory, place, at);

    column columns[COLUMNS];
    finished_column finished[COLUMNS];
    read_columns(s, columns);
    merge_rows<T, V>(memory, place, columns);
    merge_ranks<T, V>(memory, place, columns);
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        finished[i] = finish<R>(columns[i], s.kept);
        if (R == role::forward && problem.lse.data != nullptr && place.first == 0 && at.plain[i / V] >= 0)
            write_scalar(s.lse_of(i), columns[i].most + logf(columns[i].sum));
    }
    write_columns(s, finished);
}

/* As many as fill the device and have several tokens a thread. */
template <typename T, int V> int blocks_of_slab(const queue &to, const copes_lrpe_problem &problem, double slabs)
{
    const int rows = 4 * rows_of<T, V>, blocks = 2048 / THREADS;
    const double wanted = (double)blocks * to.multiprocessors, most = (double)problem.n / rows;
    int ranks = largest_cluster(to);
    while (ranks > 1 && (slabs * ranks / 2 >= wanted || ranks > most))
        ranks /= 2;
    return ranks;
}

template <typename T, int V, encoding E>
copes_status launch_columns(const queue &to, const copes_lrpe_problem &problem, bool given)
{
    const int64_t units = units_of<E>(problem.d, problem.k, (int64_t)V);
    const int64_t tiles = (units + lanes_of<T, V> - 1) / lanes_of<T, V>;
    const double slabs = (double)problem.b * (double)problem.h * (double)tiles;
    if (slabs == 0)
        return COPES_OK;
    const int ranks = blocks_of_slab<T, V>(to, problem, slabs);
    if (slabs * ranks > INT32_MAX)
        return copes_fail(COPES_ERROR_SIZE, "softmax over the sequence: %.3g slabs; a device takes 2^31 - 1", slabs);
    auto kernel = !problem.backward ? sequence_columns<T, V, E, role::forward>
                  : given           ? sequence_columns<T, V, E, role::given>
                                    : sequence_columns<T, V, E, role::backward>;
    return launch_clusters(to, kernel, (unsigned)(slabs * ranks), ranks, THREADS, 0, problem, units, (uint32_t)tiles,
                           (uint32_t)ranks);
}

template <typename T, encoding E>
copes_status run_encoding(const queue &to, const copes_lrpe_problem &problem, bool given)
{
    constexpr int V = unit_angles<T>;
    const int64_t d = problem.d, encoded = E == encoding::cosine ? 2 * d : d;
    const int64_t plain[] = {problem.b, problem.n, problem.h, d}, wide[] = {problem.b, problem.n, problem.h, encoded};
    const bool vectors = d % vector_length<T> == 0 && problem.k % V == 0 &&
                         in_vectors<T>(problem.src, problem.backward ? wide : plain, 4) &&
                         in_vectors<T>(problem.x, plain, 4) &&
                         in_vectors<T>(problem.dst, problem.backward ? plain : wide, 4);
    return vectors ? launch_columns<T, V, E>(to, problem, given) : launch_columns<T, 1, E>(to, problem, given);
}

template <typename T> copes_status run_sequence_any(const queue &to, const copes_lrpe_problem &problem, bool given)
{
    if (problem.variant == COPES_COSINE)
        return run_encoding<T, encoding::cosine>(to, problem, given);
    return problem.pairing == COPES_HALF ? run_encoding<T, encoding::half>(to, problem, given)
                                         : run_encoding<T, encoding::interleaved>(to, problem, given);
}

template <typename T> size_t sequence_workspace(const queue &, const copes_lrpe_problem &, bool)
{
    return 0;
}

template <typename T> copes_status run_sequence(const queue &to, const copes_lrpe_problem &problem, bool given, void *)
{
    copes_status status = COPES_OK;
    if (run_sequence_fast<T>(to, problem, given, &status))
        return status;
    return run_sequence_any<T>(to, problem, given);
}

#define INSTANTIATE(T)                                                                                                 \
    template size_t sequence_workspace<T>(const queue &, const copes_lrpe_problem &, bool);                            \
    template copes_status run_sequence<T>(const queue &, const copes_lrpe_problem &, bool, void *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU
