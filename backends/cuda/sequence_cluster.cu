/* Softmax over the sequence on Hopper, each element read from memory once and written once. What bounds it is memory, if
 * reading never stops: so a slab, all tokens of 64 bytes' worth of neighbouring columns of a head, lies in the shared memory of a
 * cluster of blocks, and while the blocks normalize and write one slab, the next takes its place step by step.
 *
 * Each thread has a unit of 16 bytes of columns in every so many tokens, and a ring of places for them in shared memory that
 * no other thread touches: copies go there AHEAD steps before their statistics are taken, and stay for another slab's length,
 * until their columns are known. So the only barriers are those where a slab ends and the cluster's blocks exchange what
 * they found; the copies under way go on meanwhile. */
#include "backends/cuda/cluster.h"
#include "backends/gpu/sequence.h"

namespace COPES_GPU {

#ifndef SEQ_THREADS
#define SEQ_THREADS 512
#endif
#ifndef SEQ_BATCH
#define SEQ_BATCH 4
#define SEQ_AHEAD 2
#endif
enum { THREADS = SEQ_THREADS, MOST_RANKS = 16 };

/* Which pairs of features are turned, if any. */
enum class coding { none, half, interleaved, cosine };

/* What a thread has of a token. */
template <typename T, coding C, role R, int LANES> struct unit_of {
    static constexpr bool BACKWARD = R != role::forward, WIDE = C == coding::cosine;
    static constexpr int COLUMNS = vector_length<T>;       /* 16 bytes of them */
    static constexpr int V = WIDE ? COLUMNS : COLUMNS / 2; /* angles, or pairs */
    static constexpr int OPERANDS = BACKWARD ? (WIDE ? 3 : 2) : 1;
    static constexpr int BATCH = OPERANDS == 1 ? SEQ_BATCH : 2; /* tokens of a step */
    static constexpr int AHEAD = OPERANDS == 1 ? SEQ_AHEAD : 2; /* steps */
    static constexpr bool TURNED = C != coding::none;
};

/* How the work is cut: slabs of `lanes` units by all tokens. A cluster has the same columns of `length` heads in turn. */
struct cluster_tiling {
    int ranks;           /* blocks of a cluster */
    int steps, slots;    /* of a slab, and in the ring */
    int tiles;           /* slabs of a head */
    int slabs, clusters; /* of them all */
};

/* A block's shared memory. */
template <typename T, coding C, role R, int LANES> struct block_memory {
    typedef unit_of<T, C, R, LANES> U;
    uint32_t ring;  /* slots of BATCH tokens of OPERANDS of a unit a thread */
    turn *stride;   /* two sets of turns from a thread's first token to its others, V a unit */
    column *warps;  /* the columns of each warp */
    float *ranks;   /* two sets of the columns of each rank: largest values, sums, products */
    float *finished; /* of every column what to subtract, what to multiply with, and the mean gradient, in three rows */

    __host__ __device__ static size_t ring_bytes(const cluster_tiling &t)
    {
        return (size_t)t.slots * U::BATCH * U::OPERANDS * 16 * THREADS;
    }
    __host__ __device__ static int columns(const cluster_tiling &t)
    {
        return LANES * U::COLUMNS;
    }
    __host__ __device__ static int stride_set(const cluster_tiling &t)
    {
        return U::TURNED ? t.steps * U::BATCH * LANES * U::V : 0;
    }
    static size_t bytes(const cluster_tiling &t)
    {
        return ring_bytes(t) + 2 * stride_set(t) * sizeof(turn) +
               columns(t) * (THREADS / 32 * sizeof(column) + 6 * t.ranks * sizeof(float) + 3 * sizeof(float));
    }
    __device__ __forceinline__ explicit block_memory(const cluster_tiling &t)
    {
        char *at = dynamic_shared();
        ring = shared_address(at);
        stride = reinterpret_cast<turn *>(at + ring_bytes(t));
        warps = reinterpret_cast<column *>(stride + 2 * stride_set(t));
        finished = reinterpret_cast<float *>(warps + columns(t) * THREADS / 32);
        ranks = finished + 3 * columns(t);
    }
};

template <typename T> DEVICE void unpack16(uint4 words, float *x)
{
    constexpr int n = storage<T>::per_word;
    storage<T>::unpack(words.x, x);
    storage<T>::unpack(words.y, x + n);
    storage<T>::unpack(words.z, x + 2 * n);
    storage<T>::unpack(words.w, x + 3 * n);
}

/* The larger elements of two. */
template <typename T> DEVICE uint4 largest16(uint4 a, uint4 b)
{
    return make_uint4(storage<T>::larger(a.x, b.x), storage<T>::larger(a.y, b.y), storage<T>::larger(a.z, b.z),
                      storage<T>::larger(a.w, b.w));
}

template <typename T> DEVICE uint4 pack16(const float *x)
{
    constexpr int n = storage<T>::per_word;
    return make_uint4(storage<T>::pack(x), storage<T>::pack(x + n), storage<T>::pack(x + 2 * n),
                      storage<T>::pack(x + 3 * n));
}

/* Words that add nothing to a column. */
template <typename T, role R> DEVICE uint4 fill_words()
{
    const float x[2] = {-INFINITY, -INFINITY};
    const uint32_t word = R == role::given ? 0 : storage<T>::pack(x);
    return make_uint4(word, word, word, word);
}

/* A thread's columns while it reads: the largest value is never below the smallest number there is, so that a masked
 * element's difference is -inf and no special case. */
template <int N> struct open_columns {
    float most[N], sum[N], dot[N];
};

constexpr float LEAST = -0x1p+126f;

struct slab_place {
    int b, h, tile;
};

template <typename T, coding C, role R, int LANES> struct worker {
    typedef unit_of<T, C, R, LANES> U;
    static constexpr int N = U::COLUMNS, V = U::V, BATCH = U::BATCH, OPERANDS = U::OPERANDS;
    const copes_lrpe_problem &problem;
    const cluster_tiling &tiling;
    const block_memory<T, C, R, LANES> &memory;
    int rank, lane, row, cluster, count; /* slabs cluster, cluster + clusters .. */
    static constexpr int ROWS = THREADS / LANES;
    int tokens;                              /* the thread's, of a slab */
    uint32_t mine;                           /* the thread's first place in the ring */
    static constexpr uint32_t SLOT = BATCH * OPERANDS * 16 * THREADS;

    __device__ __forceinline__ worker(const copes_lrpe_problem &problem, const cluster_tiling &tiling,
                                      const block_memory<T, C, R, LANES> &memory)
        : problem(problem), tiling(tiling), memory(memory)
    {
        rank = (int)cluster_rank();
        cluster = (int)blockIdx.x / tiling.ranks;
        lane = (int)threadIdx.x % LANES;
        row = (int)threadIdx.x / LANES;
        count = (tiling.slabs - cluster + tiling.clusters - 1) / tiling.clusters;
        tokens = ((int)problem.n - first_token() + token_step() - 1) / token_step();
        mine = memory.ring + threadIdx.x * 16;
    }

    __device__ __forceinline__ int first_token() const
    {
        return rank * ROWS + row;
    }
    __device__ __forceinline__ int token_step() const
    {
        return tiling.ranks * ROWS;
    }
    __device__ __forceinline__ slab_place slab(int index) const
    {
        const int s = cluster + index * tiling.clusters, head = s / tiling.tiles, h = (int)problem.h;
        return {head / h, head % h, s % tiling.tiles};
    }
    /* The feature that column i of a slab's unit is. */
    DEVICE int64_t feature(const copes_lrpe_problem &problem, int tile, int lane, int i)
    {
        const int64_t first = (int64_t)(tile * LANES + lane) * (C == coding::half ? V : N);
        return first + (C == coding::half && i >= V ? problem.k + i - V : i);
    }
    /* The thread's first token in a slab. */
    __device__ __forceinline__ T *start(const copes_view &view, int index) const
    {
        const slab_place at = slab(index);
        return static_cast<T *>(view.data) + at.b * view.stride[0] + at.h * view.stride[2] +
               first_token() * view.stride[1] + feature(problem, at.tile, lane, 0);
    }
    __device__ __forceinline__ float *lse_of(const slab_place &at, int64_t feature) const
    {
        return static_cast<float *>(problem.lse.data) + at.b * problem.lse.stride[0] + at.h * problem.lse.stride[1] +
               feature * problem.lse.stride[2];
    }
    __device__ __forceinline__ uint32_t place(int slot, int t, int operand) const
    {
        return mine + slot * SLOT + (t * OPERANDS + operand) * 16 * THREADS;
    }
};

/* Copies steps of tokens into the ring, slab after slab. */
template <typename T, coding C, role R, int LANES> struct loader {
    typedef worker<T, C, R, LANES> W;
    const W &w;
    int slab = 0, step = 0;
    const T *x = nullptr, *g = nullptr; /* the next token */
    int64_t x_step, g_step;

    __device__ __forceinline__ explicit loader(const W &w)
        : w(w), x_step(W::U::BACKWARD ? w.token_step() * w.problem.x.stride[1] : 0),
          g_step(w.token_step() * w.problem.src.stride[1])
    {
        open();
    }
    __device__ __forceinline__ void open()
    {
        if (slab >= w.count)
            return;
        if (W::U::BACKWARD)
            x = w.start(w.problem.x, slab);
        g = w.start(w.problem.src, slab);
    }
    DEVICE void copy(uint32_t to, const T *from, int64_t apart)
    {
        if (C == coding::half) {
            copy_ahead<8>(to, from);
            copy_ahead<8>(to + 8, from + apart);
        } else {
            copy_ahead<16>(to, from);
        }
    }
    __device__ __forceinline__ void next(int slot)
    {
        constexpr int G = W::U::BACKWARD ? 1 : 0; /* the operand that src is */
        if (slab < w.count) {
#pragma unroll
            for (int t = 0; t < W::BATCH; t++) {
                if (step * W::BATCH + t < w.tokens) {
                    if (W::U::BACKWARD)
                        copy(w.place(slot, t, 0), x, w.problem.k);
                    copy(w.place(slot, t, G), g, w.problem.k);
                    if (W::OPERANDS == 3)
                        copy(w.place(slot, t, 2), g + w.problem.d, 0);
                } else {
                    write_shared(w.place(slot, t, 0), fill_words<T, R>());
                    for (int i = 1; i < W::OPERANDS; i++)
                        write_shared(w.place(slot, t, i), make_uint4(0, 0, 0, 0));
                }
                x += x_step;
                g += g_step;
            }
            if (++step == w.tiling.steps) {
                step = 0;
                slab++;
                open();
            }
        }
        end_copies();
    }
};

/* The turns of a thread's unit: those of its first token in registers, and the ways from there to the others in shared
 * memory, all of them exact, so that each is one product of two. */
template <typename T, coding C, role R, int LANES> struct unit_turns {
    typedef worker<T, C, R, LANES> W;
    turn base[W::V];
    const turn *stride;
    int row = -1, tile = -1, parity = 0; /* theta's row, and which set */

    /* For a slab. All threads of the block take part. */
    __device__ __forceinline__ void open(const W &w, int slab)
    {
        const slab_place to = w.slab(slab);
        const int wanted = w.problem.theta.stride[0] == 0 ? 0 : to.h;
        if (wanted == row && to.tile == tile)
            return;
        row = wanted;
        tile = to.tile;
        parity ^= 1;
        turn *set = w.memory.stride + parity * w.memory.stride_set(w.tiling);
        stride = set;
        const int count = w.tiling.steps * W::BATCH * LANES * W::V;
        for (int i = (int)threadIdx.x; i < count; i += THREADS)
            set[i] = turn_at<false>(step(w, i % (LANES * W::V)), i / (LANES * W::V) * w.token_step());
#pragma unroll
        for (int i = 0; i < W::V; i++)
            base[i] = turn_at<false>(step(w, w.lane * W::V + i), (int32_t)(w.problem.offset[0] + w.first_token()));
        __syncthreads();
    }
    __device__ __forceinline__ angle_step step(const W &w, int angle) const
    {
        const int64_t k = (int64_t)tile * LANES * W::V + angle;
        return step_of(w.problem, row, k, dimension_of(w.problem, k));
    }
    /* Of the token `index` of the thread's. */
    __device__ __forceinline__ void at(const W &w, int index, turn (&turns)[W::V]) const
    {
        const turn *set = stride + (index * LANES + w.lane) * W::V;
#pragma unroll
        for (int i = 0; i < W::V; i += 2) {
            const float4 pair = *reinterpret_cast<const float4 *>(set + i);
            turns[i] = add({pair.x, pair.y}, base[i]);
            turns[i + 1] = add({pair.z, pair.w}, base[i + 1]);
        }
    }
    DEVICE turn add(const turn &a, const turn &b)
    {
        return {a.cosine * b.cosine - a.sine * b.sine, a.sine * b.cosine + a.cosine * b.sine};
    }
};

template <coding C> inline constexpr encoding encoding_of = C == coding::cosine        ? encoding::cosine
                                                            : C == coding::interleaved ? encoding::interleaved
                                                                                       : encoding::half;

/* The gradient of the softmax at token t of a step. */
template <typename T, coding C, role R, int LANES>
DEVICE void read_gradient(const worker<T, C, R, LANES> &w, const unit_turns<T, C, R, LANES> &angles, int slot, int step, int t,
                          float (&g)[2][worker<T, C, R, LANES>::V])
{
    typedef worker<T, C, R, LANES> W;
    unpack16<T>(read_shared(w.place(slot, t, 1)), g[0]);
    if (C == coding::cosine)
        unpack16<T>(read_shared(w.place(slot, t, 2)), g[1]);
    if (W::U::TURNED) {
        turn turns[W::V];
        angles.at(w, step * W::BATCH + t, turns);
        decode<encoding_of<C>>(g, turns, true);
    }
}

enum { SLACK = 8 }; /* what a term may exceed 1 by, as a power of two */

/* Sums are relative to a number near the largest element so far. It follows only when left well behind. */
template <typename T, int N> DEVICE void raise(uint4 largest, open_columns<N> &c)
{
    float top[N];
    bool behind = false;
    unpack16<T>(largest, top);
#pragma unroll
    for (int i = 0; i < N; i++)
        behind |= fmaf(top[i], LOG2_E, -c.most[i]) > SLACK;
    if (!behind)
        return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float most = fmaxf(top[i] * LOG2_E, c.most[i]), shrink = exp2_term(c.most[i] - most);
        c.sum[i] *= shrink;
        c.dot[i] *= shrink;
        c.most[i] = most;
    }
}

/* Takes a step's tokens into the columns. */
template <typename T, coding C, role R, int LANES>
DEVICE void add_step(const worker<T, C, R, LANES> &w, const unit_turns<T, C, R, LANES> &angles, int slot, int step, bool kept,
                     open_columns<worker<T, C, R, LANES>::N> &c)
{
    typedef worker<T, C, R, LANES> W;
    float x[W::BATCH][W::N], g[W::BATCH][2][W::V];
    uint4 words[W::BATCH], largest;
#pragma unroll
    for (int t = 0; t < W::BATCH; t++) {
        words[t] = read_shared(w.place(slot, t, 0));
        unpack16<T>(words[t], x[t]);
        largest = t == 0 ? words[0] : largest16<T>(largest, words[t]);
        if (W::U::BACKWARD)
            read_gradient(w, angles, slot, step, t, g[t]);
    }
    if (R != role::given && !kept)
        raise<T>(largest, c);
#pragma unroll
    for (int i = 0; i < W::N; i++)
#pragma unroll
        for (int t = 0; t < W::BATCH; t++) {
            const float e = R == role::given ? x[t][i] : exp2_term(fmaf(x[t][i], LOG2_E, -c.most[i]));
            c.sum[i] += e;
            if (W::U::BACKWARD)
                c.dot[i] = fmaf(e, g[t][i / W::V][i % W::V], c.dot[i]);
        }
}

/* The unit's columns in a row of what is known of finished ones. */
template <typename T, coding C, role R, int LANES>
DEVICE void read_row(const worker<T, C, R, LANES> &w, int row, float (&values)[worker<T, C, R, LANES>::N])
{
    typedef worker<T, C, R, LANES> W;
    const float *from = w.memory.finished + (row * LANES + w.lane) * W::N;
#pragma unroll
    for (int i = 0; i < W::N; i += 4) {
        const float4 four = *reinterpret_cast<const float4 *>(from + i);
        values[i] = four.x;
        values[i + 1] = four.y;
        values[i + 2] = four.z;
        values[i + 3] = four.w;
    }
}

/* Writes a step's tokens, whose columns are finished. */
template <typename T, coding C, role R, int LANES>
DEVICE void write_step(const worker<T, C, R, LANES> &w, const unit_turns<T, C, R, LANES> &angles, int slot, int step, int64_t dst_step,
                       T *&dst)
{
    typedef worker<T, C, R, LANES> W;
    float shift[W::N], scale[W::N], dot[W::N];
    read_row(w, 0, shift);
    read_row(w, 1, scale);
    if (W::U::BACKWARD)
        read_row(w, 2, dot);
#pragma unroll
    for (int t = 0; t < W::BATCH; t++) {
        float x[2][W::V], g[2][W::V];
        unpack16<T>(read_shared(w.place(slot, t, 0)), x[0]);
        if (W::U::BACKWARD)
            read_gradient(w, angles, slot, step, t, g);
#pragma unroll
        for (int i = 0; i < W::N; i++) {
            float &value = x[i / W::V][i % W::V];
            value = R == role::given ? value : exp2_term(fmaf(value, LOG2_E, -shift[i])) * scale[i];
            if (W::U::BACKWARD)
                value *= g[i / W::V][i % W::V] - dot[i];
        }
        if (!W::U::BACKWARD && W::U::TURNED) {
            turn turns[W::V];
            angles.at(w, step * W::BATCH + t, turns);
            encode<encoding_of<C>>(x, turns, true);
        }
        if (step * W::BATCH + t < w.tokens) {
            const uint4 words = pack16<T>(x[0]);
            if (C == coding::half) {
                *reinterpret_cast<uint2 *>(dst) = make_uint2(words.x, words.y);
                *reinterpret_cast<uint2 *>(dst + w.problem.k) = make_uint2(words.z, words.w);
            } else {
                *reinterpret_cast<uint4 *>(dst) = words;
            }
            if (!W::U::BACKWARD && C == coding::cosine)
                *reinterpret_cast<uint4 *>(dst + w.problem.d) = pack16<T>(x[1]);
        }
        dst += dst_step;
    }
}

DEVICE column merge_close(const column &a, const column &b)
{
    const float most = fmaxf(a.most, b.most), left = exp2_term(a.most - most), right = exp2_term(b.most - most);
    return {most, a.sum * left + b.sum * right, a.dot * left + b.dot * right};
}

DEVICE column shuffle_column(const column &c, int mask)
{
    return {shuffle_xor(c.most, mask), shuffle_xor(c.sum, mask), shuffle_xor(c.dot, mask)};
}

/* Merges the columns of a warp's rows: every exchange halves the columns that a thread still has, down to one. What is left
 * are columns `which` and on, as many as the result has. */
template <int N, int LANES> inline constexpr int left_of = N * LANES > 32 ? N * LANES / 32 : 1;

template <int N, int LANES> DEVICE int merge_warp(const open_columns<N> &c, column (&left)[N])
{
    const int lane = (int)threadIdx.x % 32;
    int first = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        left[i] = {c.most[i], c.sum[i], c.dot[i]};
#pragma unroll
    for (int mask = 16, half = N / 2; mask >= LANES; mask /= 2, half /= 2) {
        const bool upper = (lane & mask) != 0;
        first += upper ? half : 0;
        if (half == 0)
            left[0] = merge_close(left[0], shuffle_column(left[0], mask));
#pragma unroll
        for (int i = 0; i < half; i++) {
            const column kept = upper ? left[i + half] : left[i], sent = upper ? left[i] : left[i + half];
            left[i] = merge_close(kept, shuffle_column(sent, mask));
        }
    }
    return first;
}

/* `count` columns, `stride` apart, into one: the largest first, so that no sum waits for another. */
DEVICE column merge_all(const float *most, const float *sum, const float *dot, int count, int stride)
{
    column all;
    all.most = LEAST;
    for (int i = 0; i < count; i++)
        all.most = fmaxf(all.most, most[i * stride]);
    for (int i = 0; i < count; i++) {
        const float factor = exp2_term(most[i * stride] - all.most);
        all.sum = fmaf(sum[i * stride], factor, all.sum);
        all.dot = fmaf(dot[i * stride], factor, all.dot);
    }
    return all;
}

/* What the subtracted number lost when it was rounded. */
template <typename T, coding C, role R, int LANES>
DEVICE float kept_scale(const worker<T, C, R, LANES> &w, int slab, int i, float most)
{
    typedef worker<T, C, R, LANES> W;
    const slab_place at = w.slab(slab);
    const float lse = read_scalar(w.lse_of(at, w.feature(w.problem, at.tile, i / W::N, i % W::N)));
    return exp2_term(-fmaf(lse, LOG2_E, -most));
}

/* Finishes a slab's columns: warps, then blocks of the cluster, then the result for all threads. */
template <typename T, coding C, role R, int LANES>
DEVICE void finish_slab(const worker<T, C, R, LANES> &w, const open_columns<worker<T, C, R, LANES>::N> &c, int slab, bool kept)
{
    typedef worker<T, C, R, LANES> W;
    constexpr int columns = LANES * W::N, warps = THREADS / 32;
    const int ranks = w.tiling.ranks;
    column left[W::N];
    const int first = merge_warp<W::N, LANES>(c, left);
#pragma unroll
    for (int i = 0; i < left_of<W::N, LANES>; i++)
        w.memory.warps[threadIdx.x / 32 * columns + w.lane * W::N + first + i] = left[i];
    __syncthreads();
    float *all = w.memory.ranks + slab % 2 * 3 * ranks * columns;
    for (int i = (int)threadIdx.x; i < columns * ranks; i += THREADS) {
        const int at = i % columns;
        const column *from = w.memory.warps + at;
        const column block = merge_all(&from->most, &from->sum, &from->dot, warps, 3 * columns);
        float *to = all + w.rank * columns + at;
        write_remote(to, i / columns, block.most);
        write_remote(to + ranks * columns, i / columns, block.sum);
        write_remote(to + 2 * ranks * columns, i / columns, block.dot);
    }
    synchronize_cluster();
    for (int i = (int)threadIdx.x; i < columns; i += THREADS) {
        const float *from = all + i;
        const column whole = merge_all(from, from + ranks * columns, from + 2 * ranks * columns, ranks, columns);
        const float scale = R == role::given ? 1 : kept ? kept_scale(w, slab, i, whole.most) : 1 / whole.sum;
        w.memory.finished[i] = whole.most;
        w.memory.finished[columns + i] = scale;
        w.memory.finished[2 * columns + i] = whole.dot * scale;
        if (R == role::forward && w.problem.lse.data != nullptr && w.rank == 0) {
            const slab_place at = w.slab(slab);
            write_scalar(w.lse_of(at, w.feature(w.problem, at.tile, i / W::N, i % W::N)),
                         (whole.most + log2f(whole.sum)) * (1 / LOG2_E));
        }
    }
    __syncthreads();
}

template <typename T, coding C, role R, int LANES>
DEVICE void open_slab(const worker<T, C, R, LANES> &w, int slab, bool kept, open_columns<worker<T, C, R, LANES>::N> &c)
{
    const slab_place at = w.slab(slab);
#pragma unroll
    for (int i = 0; i < worker<T, C, R, LANES>::N; i++) {
        c.most[i] = LEAST;
        if (kept)
            c.most[i] = read_scalar(w.lse_of(at, w.feature(w.problem, at.tile, w.lane, i))) * LOG2_E;
        c.sum[i] = c.dot[i] = 0;
    }
}

template <typename T, coding C, role R, int LANES>
__global__ void __launch_bounds__(THREADS, 1)
    sequence_cluster(GPU_PARAMETER copes_lrpe_problem problem, GPU_PARAMETER cluster_tiling tiling)
{
    typedef worker<T, C, R, LANES> W;
    const block_memory<T, C, R, LANES> memory(tiling);
    const W w(problem, tiling, memory);
    const bool kept = R == role::backward && problem.lse.data != nullptr;
    loader<T, C, R, LANES> load(w);
    for (int i = 0; i < W::U::AHEAD; i++)
        load.next(i);
    synchronize_cluster(); /* before anything is written to a block, it runs */

    unit_turns<T, C, R, LANES> reading, writing;
    open_columns<W::N> columns;
    T *dst = nullptr;
    int newest = 0, oldest = W::U::AHEAD; /* slots */
    for (int slab = 0; slab <= w.count; slab++) {
        if (W::U::TURNED && W::U::BACKWARD) {
            writing = reading;
            if (slab < w.count)
                reading.open(w, slab);
        } else if (W::U::TURNED && slab > 0) {
            writing.open(w, slab - 1);
        }
        open_slab(w, min(slab, w.count - 1), kept, columns);
        #pragma unroll 1
        for (int step = 0; step < tiling.steps; step++) {
            wait_for_copies<W::U::AHEAD - 1>();
            if (slab < w.count)
                add_step(w, reading, newest, step, kept, columns);
            if (slab > 0)
                write_step(w, writing, oldest, step, w.token_step() * problem.dst.stride[1], dst);
            load.next(oldest);
            newest = newest + 1 == tiling.slots ? 0 : newest + 1;
            oldest = oldest + 1 == tiling.slots ? 0 : oldest + 1;
        }
        if (slab < w.count) {
            finish_slab(w, columns, slab, kept);
            dst = w.start(problem.dst, slab);
        }
    }
}

/* The cut of a problem into slabs for clusters of `ranks` blocks; false where it does not fit. */
template <typename T, coding C, role R, int LANES>
bool cut(const queue &to, const copes_lrpe_problem &problem, int ranks, cluster_tiling *t)
{
    typedef unit_of<T, C, R, LANES> U;
    const int64_t units = problem.d / U::COLUMNS, step = (int64_t)U::BATCH * ranks * (THREADS / LANES);
    if (units % LANES != 0)
        return false;
    *t = {.ranks = ranks};
    t->steps = (int)((problem.n + step - 1) / step);
    t->slots = t->steps + U::AHEAD;
    t->tiles = (int)(units / LANES);
    t->slabs = (int)(problem.b * problem.h) * t->tiles;
    return block_memory<T, C, R, LANES>::bytes(*t) <= (size_t)to.shared_memory;
}

template <typename T, coding C, role R, int LANES>
copes_status launch_cut(const queue &to, const copes_lrpe_problem &problem, cluster_tiling t)
{
    const auto kernel = sequence_cluster<T, C, R, LANES>;
    const void *function = reinterpret_cast<const void *>(kernel);
    const size_t shared = block_memory<T, C, R, LANES>::bytes(t);
    COPES_TRY(status_of(cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "launch"));
    COPES_TRY(status_of(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), "launch"));
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {(unsigned)t.ranks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(t.ranks * 1024));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = shared;
    config.stream = to.stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    COPES_TRY(status_of(cudaOccupancyMaxActiveClusters(&clusters, function, &config), "launch"));
    if (getenv("SEQ_SHOW")) printf("[%d active clusters of %d, %zu B] ", clusters, t.ranks, shared);
    t.clusters = clusters < t.slabs ? clusters : t.slabs;
    config.gridDim = dim3((unsigned)(t.ranks * t.clusters));
    return status_of(cudaLaunchKernelEx(&config, kernel, problem, t), "launch");
}

template <typename T> bool run_sequence_fast(const queue &, const copes_lrpe_problem &, bool, copes_status *)
{
    return false;
}
template bool run_sequence_fast<f32>(const queue &, const copes_lrpe_problem &, bool, copes_status *);
template bool run_sequence_fast<f16>(const queue &, const copes_lrpe_problem &, bool, copes_status *);
template bool run_sequence_fast<bf16>(const queue &, const copes_lrpe_problem &, bool, copes_status *);

} // namespace COPES_GPU
