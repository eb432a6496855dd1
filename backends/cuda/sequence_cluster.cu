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

enum { THREADS = 512, MOST_RANKS = 16 };

/* Which pairs of features are turned, if any. */
enum class coding { none, half, interleaved, cosine };

/* What a thread has of a token. */
template <typename T, coding C, role R> struct unit_of {
    static constexpr bool BACKWARD = R != role::forward, WIDE = C == coding::cosine;
    static constexpr int COLUMNS = vector_length<T>;       /* 16 bytes of them */
    static constexpr int V = WIDE ? COLUMNS : COLUMNS / 2; /* angles, or pairs */
    static constexpr int OPERANDS = BACKWARD ? (WIDE ? 3 : 2) : 1;
    static constexpr int BATCH = OPERANDS == 1 ? 4 : 2; /* tokens of a step */
    static constexpr int AHEAD = OPERANDS == 1 ? 2 : 2; /* steps */
    static constexpr bool TURNED = C != coding::none;
};

/* How the work is cut: slabs of `lanes` units by all tokens. A cluster has the same columns of `length` heads in turn. */
struct cluster_tiling {
    int ranks, lanes, rows; /* blocks of a cluster, threads along a row and across it */
    int steps, slots;       /* of a slab, and in the ring */
    int tiles, length;      /* slabs of a head, heads of a cluster */
    int heads;              /* of all batch entries */
};

/* A block's shared memory. */
template <typename T, coding C, role R> struct block_memory {
    typedef unit_of<T, C, R> U;
    uint32_t ring;  /* slots of BATCH tokens of OPERANDS of a unit a thread */
    turn *stride;   /* two sets of turns from a thread's first token to its others, V a unit */
    column *warps;  /* the columns of each warp */
    float *ranks;   /* two sets of the columns of each rank: largest values, sums, products */
    float *finished; /* of every column what to subtract, what to multiply with, and the mean gradient, in three rows */

    __host__ __device__ static size_t ring_bytes(const cluster_tiling &t, int threads)
    {
        return (size_t)t.slots * U::BATCH * U::OPERANDS * 16 * threads;
    }
    __host__ __device__ static int columns(const cluster_tiling &t)
    {
        return t.lanes * U::COLUMNS;
    }
    __host__ __device__ static int stride_set(const cluster_tiling &t)
    {
        return U::TURNED ? t.steps * U::BATCH * t.lanes * U::V : 0;
    }
    static size_t bytes(const cluster_tiling &t, int threads)
    {
        return ring_bytes(t, threads) + 2 * stride_set(t) * sizeof(turn) +
               columns(t) * (threads / 32 * sizeof(column) + 6 * t.ranks * sizeof(float) + 3 * sizeof(float));
    }
    __device__ __forceinline__ explicit block_memory(const cluster_tiling &t)
    {
        char *at = dynamic_shared();
        ring = shared_address(at);
        stride = reinterpret_cast<turn *>(at + ring_bytes(t, (int)blockDim.x));
        warps = reinterpret_cast<column *>(stride + 2 * stride_set(t));
        finished = reinterpret_cast<float *>(warps + columns(t) * (int)blockDim.x / 32);
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

constexpr float LEAST = -0x1.fffffep+127f;

template <typename T, coding C, role R> struct worker {
    typedef unit_of<T, C, R> U;
    static constexpr int N = U::COLUMNS, V = U::V, BATCH = U::BATCH, OPERANDS = U::OPERANDS;
    const copes_lrpe_problem &problem;
    const cluster_tiling &tiling;
    const block_memory<T, C, R> &memory;
    int rank, lane, row, tile, begin, count; /* heads begin .. begin + count - 1 */
    uint32_t slot_bytes, mine;               /* of the ring, and the thread's first place there */

    __device__ __forceinline__ worker(const copes_lrpe_problem &problem, const cluster_tiling &tiling,
                                      const block_memory<T, C, R> &memory)
        : problem(problem), tiling(tiling), memory(memory)
    {
        rank = (int)cluster_rank();
        const int cluster = (int)blockIdx.x / tiling.ranks;
        lane = (int)threadIdx.x % tiling.lanes;
        row = (int)threadIdx.x / tiling.lanes;
        tile = cluster % tiling.tiles;
        begin = cluster / tiling.tiles * tiling.length;
        count = min(tiling.length, tiling.heads - begin);
        slot_bytes = BATCH * OPERANDS * 16 * blockDim.x;
        mine = memory.ring + threadIdx.x * 16;
    }

    __device__ __forceinline__ int first_token() const
    {
        return rank * tiling.rows + row;
    }
    __device__ __forceinline__ int token_step() const
    {
        return tiling.ranks * tiling.rows;
    }
    /* The unit's first column, as a feature. */
    __device__ __forceinline__ int64_t first_column() const
    {
        return (int64_t)(tile * tiling.lanes + lane) * (C == coding::half ? V : N);
    }
    __device__ __forceinline__ int64_t column_at(int i) const
    {
        return first_column() + (C == coding::half && i >= V ? problem.k + i - V : i);
    }
    __device__ __forceinline__ T *head_of(const copes_view &view, int head) const
    {
        const int b = (begin + head) / (int)problem.h, h = begin + head - b * (int)problem.h;
        return static_cast<T *>(view.data) + b * view.stride[0] + h * view.stride[2] + first_column();
    }
    __device__ __forceinline__ uint32_t place(int slot, int t, int operand) const
    {
        return mine + slot * slot_bytes + (t * OPERANDS + operand) * 16 * blockDim.x;
    }
};

/* Copies steps of tokens into the ring, slab after slab. */
template <typename T, coding C, role R> struct loader {
    typedef worker<T, C, R> W;
    const W &w;
    int head = 0, step = 0;
    const T *x, *g;

    __device__ __forceinline__ explicit loader(const W &w) : w(w)
    {
        open();
    }
    __device__ __forceinline__ void open()
    {
        if (head >= w.count)
            return;
        x = w.head_of(W::U::BACKWARD ? w.problem.x : w.problem.src, head);
        g = w.head_of(w.problem.src, head);
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
        const int64_t xs = W::U::BACKWARD ? w.problem.x.stride[1] : w.problem.src.stride[1], gs = w.problem.src.stride[1];
        if (head < w.count) {
            int64_t token = w.first_token() + (int64_t)step * W::BATCH * w.token_step();
#pragma unroll
            for (int t = 0; t < W::BATCH; t++, token += w.token_step()) {
                if (token < w.problem.n) {
                    copy(w.place(slot, t, 0), x + token * xs, w.problem.k);
                    if (W::U::BACKWARD)
                        copy(w.place(slot, t, 1), g + token * gs, w.problem.k);
                    if (W::U::BACKWARD && C == coding::cosine)
                        copy(w.place(slot, t, 2), g + token * gs + w.problem.d, 0);
                } else {
                    write_shared(w.place(slot, t, 0), fill_words<T, R>());
                    for (int i = 1; i < W::OPERANDS; i++)
                        write_shared(w.place(slot, t, i), make_uint4(0, 0, 0, 0));
                }
            }
            if (++step == w.tiling.steps) {
                step = 0;
                head++;
                open();
            }
        }
        end_copies();
    }
};

/* The turns of a thread's unit: those of its first token in registers, and the ways from there to the others in shared
 * memory, all of them exact, so that each is one product of two. */
template <typename T, coding C, role R> struct unit_turns {
    typedef worker<T, C, R> W;
    turn base[W::V];
    const turn *stride;
    int head = -1, parity = 0; /* theta's row, and which set */

    /* For the slab of a head. All threads of the block take part. */
    __device__ __forceinline__ void open(const W &w, int slab)
    {
        const int row = w.problem.theta.stride[0] == 0 ? 0 : (w.begin + slab) % (int)w.problem.h;
        if (row == head)
            return;
        head = row;
        parity ^= 1;
        turn *set = w.memory.stride + parity * w.memory.stride_set(w.tiling);
        stride = set;
        const int units = w.tiling.lanes, count = w.tiling.steps * W::BATCH * units * W::V;
        for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
            const int64_t k = (int64_t)w.tile * units * W::V + i % (units * W::V);
            set[i] = turn_at(step_of(w.problem, row, k, dimension_of(w.problem, k)),
                             i / (units * W::V) * w.token_step());
        }
#pragma unroll
        for (int i = 0; i < W::V; i++) {
            const int64_t k = (int64_t)(w.tile * units + w.lane) * W::V + i;
            base[i] = turn_at(step_of(w.problem, row, k, dimension_of(w.problem, k)),
                              (int32_t)(w.problem.offset[0] + w.first_token()));
        }
        __syncthreads();
    }
    /* Of the token `index` of the thread's. */
    __device__ __forceinline__ void at(const W &w, int index, turn (&turns)[W::V]) const
    {
        const turn *set = stride + (index * w.tiling.lanes + w.lane) * W::V;
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
template <typename T, coding C, role R>
DEVICE void read_gradient(const worker<T, C, R> &w, const unit_turns<T, C, R> &angles, int slot, int step, int t,
                          float (&g)[2][worker<T, C, R>::V])
{
    typedef worker<T, C, R> W;
    unpack16<T>(read_shared(w.place(slot, t, 1)), g[0]);
    if (C == coding::cosine)
        unpack16<T>(read_shared(w.place(slot, t, 2)), g[1]);
    if (W::U::TURNED) {
        turn turns[W::V];
        angles.at(w, step * W::BATCH + t, turns);
        decode<encoding_of<C>>(g, turns, true);
    }
}

/* Takes a step's tokens into the columns. */
template <typename T, coding C, role R>
DEVICE void add_step(const worker<T, C, R> &w, const unit_turns<T, C, R> &angles, int slot, int step, bool kept,
                     open_columns<worker<T, C, R>::N> &c)
{
    typedef worker<T, C, R> W;
    float x[W::BATCH][W::N], g[W::BATCH][2][W::V];
#pragma unroll
    for (int t = 0; t < W::BATCH; t++) {
        unpack16<T>(read_shared(w.place(slot, t, 0)), x[t]);
        if (W::U::BACKWARD)
            read_gradient(w, angles, slot, step, t, g[t]);
    }
#pragma unroll
    for (int i = 0; i < W::N; i++) {
        float most = c.most[i];
#pragma unroll
        for (int t = 0; t < W::BATCH && R != role::given; t++)
            most = fmaxf(most, x[t][i]);
        most = kept ? c.most[i] : most;
        if (R != role::given) {
            const float shrink = softmax_term(c.most[i], most);
            c.sum[i] *= shrink;
            c.dot[i] *= shrink;
            c.most[i] = most;
        }
#pragma unroll
        for (int t = 0; t < W::BATCH; t++) {
            const float e = R == role::given ? x[t][i] : softmax_term(x[t][i], most);
            c.sum[i] += e;
            if (W::U::BACKWARD)
                c.dot[i] = fmaf(e, g[t][i / W::V][i % W::V], c.dot[i]);
        }
    }
}

/* The unit's columns in a row of what is known of finished ones. */
template <typename T, coding C, role R>
DEVICE void read_row(const worker<T, C, R> &w, int row, float (&values)[worker<T, C, R>::N])
{
    typedef worker<T, C, R> W;
    const float *from = w.memory.finished + row * w.tiling.lanes * W::N + w.lane * W::N;
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
template <typename T, coding C, role R>
DEVICE void write_step(const worker<T, C, R> &w, const unit_turns<T, C, R> &angles, int slot, int step, T *dst)
{
    typedef worker<T, C, R> W;
    float shift[W::N], scale[W::N], dot[W::N];
    read_row(w, 0, shift);
    read_row(w, 1, scale);
    if (W::U::BACKWARD)
        read_row(w, 2, dot);
    int64_t token = w.first_token() + (int64_t)step * W::BATCH * w.token_step();
#pragma unroll
    for (int t = 0; t < W::BATCH; t++, token += w.token_step()) {
        float x[2][W::V], g[2][W::V];
        unpack16<T>(read_shared(w.place(slot, t, 0)), x[0]);
        if (W::U::BACKWARD)
            read_gradient(w, angles, slot, step, t, g);
#pragma unroll
        for (int i = 0; i < W::N; i++) {
            float &value = x[i / W::V][i % W::V];
            value = R == role::given ? value : softmax_term(value, shift[i]) * scale[i];
            if (W::U::BACKWARD)
                value *= g[i / W::V][i % W::V] - dot[i];
        }
        if (!W::U::BACKWARD && W::U::TURNED) {
            turn turns[W::V];
            angles.at(w, step * W::BATCH + t, turns);
            encode<encoding_of<C>>(x, turns, true);
        }
        if (token >= w.problem.n)
            continue;
        T *to = dst + token * w.problem.dst.stride[1];
        const uint4 words = pack16<T>(x[0]);
        if (C == coding::half) {
            *reinterpret_cast<uint2 *>(to) = make_uint2(words.x, words.y);
            *reinterpret_cast<uint2 *>(to + w.problem.k) = make_uint2(words.z, words.w);
        } else {
            *reinterpret_cast<uint4 *>(to) = words;
        }
        if (!W::U::BACKWARD && C == coding::cosine)
            *reinterpret_cast<uint4 *>(to + w.problem.d) = pack16<T>(x[1]);
    }
}

DEVICE column merge_close(const column &a, const column &b)
{
    const float most = fmaxf(a.most, b.most), left = softmax_term(a.most, most), right = softmax_term(b.most, most);
    return {most, a.sum * left + b.sum * right, a.dot * left + b.dot * right};
}

DEVICE column shuffle_column(const column &c, int mask)
{
    return {shuffle_xor(c.most, mask), shuffle_xor(c.sum, mask), shuffle_xor(c.dot, mask)};
}

/* Merges the columns of a warp's rows: every exchange halves the columns that a thread still has, down to one. */
template <int N> DEVICE column merge_warp(const open_columns<N> &c, int lanes, int *which)
{
    column left[N];
    const int lane = (int)threadIdx.x % 32;
    int mask = 16, first = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        left[i] = {c.most[i], c.sum[i], c.dot[i]};
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2, mask /= 2) {
        const bool upper = (lane & mask) != 0;
        first += upper ? half : 0;
#pragma unroll
        for (int i = 0; i < half; i++) {
            const column kept = upper ? left[i + half] : left[i], sent = upper ? left[i] : left[i + half];
            left[i] = merge_close(kept, shuffle_column(sent, mask));
        }
    }
    for (; mask >= lanes; mask /= 2)
        left[0] = merge_close(left[0], shuffle_column(left[0], mask));
    *which = first;
    return left[0];
}

/* `count` columns, `stride` apart, into one: the largest first, so that no sum waits for another. */
DEVICE column merge_all(const float *most, const float *sum, const float *dot, int count, int stride)
{
    column all;
    all.most = LEAST;
    for (int i = 0; i < count; i++)
        all.most = fmaxf(all.most, most[i * stride]);
    for (int i = 0; i < count; i++) {
        const float factor = softmax_term(most[i * stride], all.most);
        all.sum = fmaf(sum[i * stride], factor, all.sum);
        all.dot = fmaf(dot[i * stride], factor, all.dot);
    }
    return all;
}

/* Finishes a slab's columns: warps, then blocks of the cluster, then the result for all threads. */
template <typename T, coding C, role R>
DEVICE void finish_slab(const worker<T, C, R> &w, const open_columns<worker<T, C, R>::N> &c, int slab, bool kept)
{
    typedef worker<T, C, R> W;
    const int columns = w.tiling.lanes * W::N, warps = (int)blockDim.x / 32, ranks = w.tiling.ranks;
    int which;
    const column mine = merge_warp<W::N>(c, w.tiling.lanes, &which);
    if ((int)threadIdx.x % 32 % (32 / W::N) < w.tiling.lanes)
        w.memory.warps[threadIdx.x / 32 * columns + w.lane * W::N + which] = mine;
    __syncthreads();
    float *all = w.memory.ranks + slab % 2 * 3 * ranks * columns;
    for (int i = (int)threadIdx.x; i < columns * ranks; i += (int)blockDim.x) {
        const int at = i % columns;
        const column *from = w.memory.warps + at;
        const column block = merge_all(&from->most, &from->sum, &from->dot, warps, 3 * columns);
        float *to = all + w.rank * columns + at;
        write_remote(to, i / columns, block.most);
        write_remote(to + ranks * columns, i / columns, block.sum);
        write_remote(to + 2 * ranks * columns, i / columns, block.dot);
    }
    synchronize_cluster();
    for (int i = (int)threadIdx.x; i < columns; i += (int)blockDim.x) {
        const float *from = all + i;
        const column whole = merge_all(from, from + ranks * columns, from + 2 * ranks * columns, ranks, columns);
        const finished_column column = finish<R>(whole, kept);
        w.memory.finished[i] = column.shift;
        w.memory.finished[columns + i] = column.scale;
        w.memory.finished[2 * columns + i] = column.dot;
        if (R == role::forward && w.problem.lse.data != nullptr && w.rank == 0) {
            const int unit = i / W::N, j = i % W::N, head = w.begin + slab;
            const int64_t first = (int64_t)(w.tile * w.tiling.lanes + unit) * (C == coding::half ? W::V : W::N);
            const int64_t feature = first + (C == coding::half && j >= W::V ? w.problem.k + j - W::V : j);
            const int64_t b = head / (int)w.problem.h, h = head % (int)w.problem.h;
            write_scalar(static_cast<float *>(w.problem.lse.data) + b * w.problem.lse.stride[0] +
                             h * w.problem.lse.stride[1] + feature * w.problem.lse.stride[2],
                         whole.most + logf(whole.sum));
        }
    }
    __syncthreads();
}

template <typename T, coding C, role R>
DEVICE void open_slab(const worker<T, C, R> &w, int slab, bool kept, open_columns<worker<T, C, R>::N> &c)
{
    const int head = w.begin + slab;
    const int64_t b = head / (int)w.problem.h, h = head % (int)w.problem.h;
#pragma unroll
    for (int i = 0; i < worker<T, C, R>::N; i++) {
        c.most[i] = LEAST;
        if (kept)
            c.most[i] = read_scalar(static_cast<const float *>(w.problem.lse.data) + b * w.problem.lse.stride[0] +
                                    h * w.problem.lse.stride[1] + w.column_at(i) * w.problem.lse.stride[2]);
        c.sum[i] = c.dot[i] = 0;
    }
}

template <typename T, coding C, role R>
__global__ void __launch_bounds__(THREADS, 1)
    sequence_cluster(GPU_PARAMETER copes_lrpe_problem problem, GPU_PARAMETER cluster_tiling tiling)
{
    typedef worker<T, C, R> W;
    const block_memory<T, C, R> memory(tiling);
    const W w(problem, tiling, memory);
    const bool kept = R == role::backward && problem.lse.data != nullptr;
    loader<T, C, R> load(w);
    for (int i = 0; i < W::U::AHEAD; i++)
        load.next(i);
    synchronize_cluster(); /* before anything is written to a block, it runs */

    unit_turns<T, C, R> reading, writing;
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
        for (int step = 0; step < tiling.steps; step++) {
            wait_for_copies<W::U::AHEAD - 1>();
            if (slab < w.count)
                add_step(w, reading, newest, step, kept, columns);
            if (slab > 0)
                write_step(w, writing, oldest, step, dst);
            load.next(oldest);
            newest = newest + 1 == tiling.slots ? 0 : newest + 1;
            oldest = oldest + 1 == tiling.slots ? 0 : oldest + 1;
        }
        if (slab < w.count) {
            finish_slab(w, columns, slab, kept);
            dst = w.head_of(problem.dst, slab);
        }
    }
}

/* The cut of a problem into slabs of `lanes` units for clusters of `ranks` blocks; false where it does not fit. */
template <typename T, coding C, role R>
bool cut(const queue &to, const copes_lrpe_problem &problem, int ranks, int lanes, int threads, cluster_tiling *t)
{
    typedef unit_of<T, C, R> U;
    const int64_t units = problem.d / U::COLUMNS, step = (int64_t)U::BATCH * ranks * (threads / lanes);
    if (units % lanes != 0)
        return false;
    *t = {.ranks = ranks, .lanes = lanes, .rows = threads / lanes};
    t->steps = (int)((problem.n + step - 1) / step);
    t->slots = t->steps + U::AHEAD;
    t->tiles = (int)(units / lanes);
    t->heads = (int)(problem.b * problem.h);
    return block_memory<T, C, R>::bytes(*t, threads) <= (size_t)to.shared_memory;
}

template <typename T, coding C, role R>
copes_status launch_cut(const queue &to, const copes_lrpe_problem &problem, cluster_tiling t, int threads)
{
    const auto kernel = sequence_cluster<T, C, R>;
    const void *function = reinterpret_cast<const void *>(kernel);
    const size_t shared = block_memory<T, C, R>::bytes(t, threads);
    COPES_TRY(status_of(cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "launch"));
    COPES_TRY(status_of(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), "launch"));
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {(unsigned)t.ranks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(t.ranks * 1024));
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared;
    config.stream = to.stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    COPES_TRY(status_of(cudaOccupancyMaxActiveClusters(&clusters, function, &config), "launch"));
    const int groups = clusters / t.tiles > 1 ? clusters / t.tiles : 1;
    t.length = (t.heads + groups - 1) / groups;
    config.gridDim = dim3((unsigned)(t.ranks * t.tiles * ((t.heads + t.length - 1) / t.length)));
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
