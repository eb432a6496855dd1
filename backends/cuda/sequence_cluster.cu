/* Softmax over the sequence on Hopper, each element read from memory once and written once. What bounds it is memory, if
 * neither reading nor writing ever stops: so a slab, all tokens of up to 128 bytes' worth of columns of a head, lies in the
 * shared memory of a cluster of blocks, and while the blocks normalize and write one slab, the next takes its place step by
 * step.
 *
 * Each thread has a unit of 16 bytes of columns in every so many tokens, and a ring of places for them in shared memory that
 * no other thread touches. Copies go there some steps before their statistics are taken, and stay for a slab's length and a
 * few steps more, in which the blocks of the cluster tell each other what they found. So threads wait for each other only
 * where a slab ends, and copies and stores are under way meanwhile. */
#include "backends/cuda/sequence_statistics.h"

namespace COPES_GPU
{

enum { MOST_RANKS = 16, MOST_STEPS = 1 << 10, SKEW = 2 };

/* The turns of a thread's unit: those of its first token in registers, and the ways from there to the others in shared
 * memory, all of them exact, so that each is one product of two. */
template <typename U> struct unit_turns {
    static constexpr int ANGLES = block_memory<U>::ANGLES;
    const worker<U> &w;
    turn base[U::V];

    __device__ __forceinline__ explicit unit_turns(const worker<U> &w) : w(w)
    {
    }
    /* The steps of a slab's angles, for open to use behind the block's next barrier. */
    __device__ __forceinline__ void prepare(int slab) const
    {
        const int i = (int)threadIdx.x;
        if (slab >= w.count || i >= ANGLES)
            return;
        const slab_place at = w.slab(slab);
        const int64_t k = (int64_t)at.tile * ANGLES + i;
        block_memory<U>::get()->step[slab % block_memory<U>::STEP_SETS][i] =
            step_of(w.problem, at.h, k, dimension_of(w.problem, k));
    }
    /* For a slab, behind the block's next barrier; all threads take part. */
    __device__ __forceinline__ void open(int slab, bool share)
    {
        const angle_step *step = block_memory<U>::get()->step[slab % block_memory<U>::STEP_SETS];
        turn *strides = block_memory<U>::turns(w.tiling, slab % block_memory<U>::SETS);
#pragma unroll 1
        for (int i = (int)threadIdx.x; share && i < w.tiling.steps * U::BATCH * ANGLES; i += U::THREADS)
            strides[place(i / ANGLES, i % ANGLES / U::V, i % U::V)] =
                turn_at<true>(step[i % ANGLES], i / ANGLES * w.token_step());
#pragma unroll
        for (int i = 0; i < U::V; i++)
            base[i] = turn_at<true>(step[w.lane * U::V + i], (int32_t)(w.problem.offset[0] + w.first_token()));
        if (share)
            prepare(slab + 1);
    }
    /* Pairs of angles lie so that a warp's reads meet no bank twice. */
    DEVICE int place(int index, int lane, int i)
    {
        return ((index * U::V / 2 + i / 2) * U::LANES + lane) * 2 + i % 2;
    }
    /* Of the token `index` of the thread's. */
    __device__ __forceinline__ void at(int slab, int index, turn (&turns)[U::V]) const
    {
        const turn *strides = block_memory<U>::turns(w.tiling, slab % block_memory<U>::SETS);
#pragma unroll
        for (int i = 0; i < U::V; i += 2) {
            const float4 pair = *reinterpret_cast<const float4 *>(strides + place(index, w.lane, i));
            turns[i] = add({pair.x, pair.y}, base[i]);
            turns[i + 1] = add({pair.z, pair.w}, base[i + 1]);
        }
    }
    DEVICE turn add(const turn &a, const turn &b)
    {
        return {a.cosine * b.cosine - a.sine * b.sine, a.sine * b.cosine + a.cosine * b.sine};
    }
};

/* The gradient of the softmax at token t of a step. */
template <typename U>
DEVICE void read_gradient(const worker<U> &w, const unit_turns<U> &angles, int slab, int slot, int step, int t,
                          float (&g)[2][U::V])
{
    unpack16<typename U::T>(read_shared(w.place(slot, t, 1)), g[0]);
    if (U::OPERANDS == 3)
        unpack16<typename U::T>(read_shared(w.place(slot, t, 2)), g[1]);
    if (U::TURNED) {
        turn turns[U::V];
        angles.at(slab, step * U::BATCH + t, turns);
        decode<U::E>(g, turns, true);
    }
}

template <typename U>
DEVICE void add_step(const worker<U> &w, const unit_turns<U> &angles, int slab, int slot, int step, bool kept,
                     open_columns<U> &c)
{
    uint4 words[U::BATCH];
    float g[U::BATCH][2][U::V];
#pragma unroll
    for (int t = 0; t < U::BATCH; t++) {
        words[t] = read_shared(w.place(slot, t, 0));
        if (U::BACKWARD)
            read_gradient(w, angles, slab, slot, step, t, g[t]);
    }
    add_tokens(words, g, kept, c);
}

/* The unit's columns in a row of what is known of finished ones. */
template <typename U> DEVICE void read_finished(const worker<U> &w, int slab, int row, float (&values)[U::N])
{
    const float *from = block_memory<U>::get()->finished[slab % 2][row] + w.lane * U::N;
#pragma unroll
    for (int i = 0; i < U::N; i += 4) {
        const float4 four = *reinterpret_cast<const float4 *>(from + i);
        values[i] = four.x;
        values[i + 1] = four.y;
        values[i + 2] = four.z;
        values[i + 3] = four.w;
    }
}

template <typename U>
DEVICE void write_token(const copes_lrpe_problem &problem, typename U::T *to, const float (&x)[2][U::V])
{
    const uint4 words = pack16<typename U::T>(x[0]);
    if (U::C == coding::half) {
        *reinterpret_cast<uint2 *>(to) = make_uint2(words.x, words.y);
        *reinterpret_cast<uint2 *>(to + problem.k) = make_uint2(words.z, words.w);
    } else {
        *reinterpret_cast<uint4 *>(to) = words;
    }
    if (!U::BACKWARD && U::C == coding::cosine)
        *reinterpret_cast<uint4 *>(to + problem.d) = pack16<typename U::T>(x[1]);
}

/* Writes a step's tokens, whose columns are finished, and leaves `to` at the next. */
template <typename U, bool EXACT>
DEVICE void write_step(const worker<U> &w, const unit_turns<U> &angles, int slab, int slot, int step,
                       typename U::T *&to)
{
    float shift[U::N], scale[U::N], dot[U::N];
    read_finished(w, slab, 0, shift);
    read_finished(w, slab, 1, scale);
    if (U::BACKWARD)
        read_finished(w, slab, 2, dot);
#pragma unroll
    for (int t = 0; t < U::BATCH; t++) {
        float x[2][U::V], g[2][U::V];
        unpack16<typename U::T>(read_shared(w.place(slot, t, 0)), x[0]);
        if (U::BACKWARD)
            read_gradient(w, angles, slab, slot, step, t, g);
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            float &value = x[i / U::V][i % U::V];
            value = U::R == role::given ? value : term<EXACT>(value, shift[i]) * scale[i];
            if (U::BACKWARD)
                value *= g[i / U::V][i % U::V] - dot[i];
        }
        if (!U::BACKWARD && U::TURNED) {
            turn turns[U::V];
            angles.at(slab, step * U::BATCH + t, turns);
            encode<U::E>(x, turns, true);
        }
        if (step * U::BATCH + t < w.tokens)
            write_token<U>(w.problem, to, x);
        to += w.token_step() * w.problem.dst.stride[1];
    }
}

/* Where a slab's steps are in the ring. */
DEVICE int next_slot(int slot, int slots)
{
    return slot + 1 == slots ? 0 : slot + 1;
}

/* Column i of the thread's unit, of a slab that lies in the ring from `slot` on. */
template <typename U>
DEVICE column find_exactly(const worker<U> &w, const unit_turns<U> &angles, int slab, int slot, int i, bool kept)
{
    column c = {-INFINITY, 0, 0};
    if (kept)
        c.most = read_scalar(w.lse_of(slab, w.lane, i));
#pragma unroll 1
    for (int token = 0; token < w.tiling.steps * U::BATCH; token++) {
        const int step = token / U::BATCH, t = token % U::BATCH, here = (slot + step) % w.tiling.slots;
        float x[U::N], g[2][U::V], value = 0, gradient = 0;
        unpack16<typename U::T>(read_shared(w.place(here, t, 0)), x);
        if (U::BACKWARD)
            read_gradient(w, angles, slab, here, step, t, g);
#pragma unroll
        for (int j = 0; j < U::N; j++) {
            value = j == i ? x[j] : value;
            gradient = U::BACKWARD && j == i ? g[j / U::V][j % U::V] : gradient;
        }
        if (kept)
            c.dot = fmaf(softmax_term(value, c.most), gradient, c.dot);
        else
            c = merge_columns<true>(c, {value, 1, gradient});
    }
    return c;
}

/* Takes the statistics of such a slab once more. */
template <typename U>
DEVICE void repeat_exactly(const worker<U> &w, exchange<U> &among, const unit_turns<U> &angles, int slab, int slot,
                           bool kept)
{
#pragma unroll 1
    for (int i = 0; i < U::N; i++) {
        column c = find_exactly(w, angles, slab, slot, i, kept);
#pragma unroll
        for (int mask = 16; mask >= U::LANES; mask /= 2)
            c = merge_columns<true>(c, shuffle_column(c, mask));
        among.keep(i, c);
    }
    among.template send_all<true>();
    among.template obtain<true>(slab, kept);
}

template <typename U> DEVICE void run_cluster(const copes_lrpe_problem &problem, const cluster_tiling &tiling)
{
    const worker<U> w(problem, tiling);
    const bool kept = U::R == role::backward && problem.lse.data != nullptr;
    if (threadIdx.x < 2)
        open_mailbox(shared_address(&block_memory<U>::get()->mailbox[threadIdx.x]));
    loader<U> load(w);
    for (int i = 0; i < U::AHEAD; i++)
        load.next(i);
    unit_turns<U> reading(w), writing(w);
    if (U::TURNED)
        reading.prepare(0);
    synchronize_cluster(); /* before anything is sent to a block, its mailboxes are open */
    if (U::TURNED && U::BACKWARD)
        reading.open(0, true);
    __syncthreads();

    open_columns<U> columns;
    exchange<U> among(w);
    typename U::T *to = nullptr;
    bool exact = false;
    int read_slab = 0, read_step = 0, written_slab = 0, written_step = U::AHEAD - tiling.slots;
    int newest = 0, oldest = U::AHEAD; /* slots */
#pragma unroll 1
    while (written_slab < w.count) {
        if (written_step == 0) {
            if (U::TURNED)
                writing.open(written_slab, !U::BACKWARD);
            exact = !among.template obtain<false>(written_slab, kept);
            if (may_be_wild<U> && exact)
                repeat_exactly(w, among, writing, written_slab, oldest, kept);
            to = w.start(problem.dst, written_slab);
        }
        if (may_be_wild<U> && written_step >= 0 && exact)
            write_step<U, true>(w, writing, written_slab, oldest, written_step, to);
        else if (written_step >= 0)
            write_step<U, false>(w, writing, written_slab, oldest, written_step, to);
        if (++written_step == tiling.steps) {
            written_step = 0;
            written_slab++;
        }
        wait_for_copies<U::AHEAD - 1>();
        if (read_slab < w.count) {
            if (read_step == 0)
                open_slab(w, read_slab, kept, columns);
            add_step(w, reading, read_slab, newest, read_step, kept, columns);
            if (++read_step == tiling.steps) {
                if (U::TURNED && U::BACKWARD && read_slab + 1 < w.count)
                    reading.open(read_slab + 1, true);
                among.publish(columns);
                read_step = 0;
                read_slab++;
            }
        }
        load.next(oldest);
        newest = next_slot(newest, tiling.slots);
        oldest = next_slot(oldest, tiling.slots);
    }
}

template <typename U>
__global__ void __launch_bounds__(U::THREADS, 1)
    sequence_cluster(GPU_PARAMETER copes_lrpe_problem problem, GPU_PARAMETER cluster_tiling tiling)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 /* before that there are no clusters, and no launch */
    run_cluster<U>(problem, tiling);
#endif
}

/* The cut of a problem into slabs for clusters of `ranks` blocks; false where it does not fit. */
template <typename U>
bool cut(const queue &to, const copes_lrpe_problem &problem, int ranks, int skew, cluster_tiling *t)
{
    const int64_t units = problem.d / U::N, step = (int64_t)U::BATCH * ranks * U::ROWS;
    const int64_t steps = (problem.n + step - 1) / step, slabs = problem.b * problem.h * (units / U::LANES);
    if (units % U::LANES != 0 || slabs > INT32_MAX || steps > MOST_STEPS)
        return false;
    *t = {.ranks = ranks, .steps = (int)steps, .tiles = (int)(units / U::LANES), .slabs = (int)slabs};
    t->slots = t->steps + U::AHEAD + (skew < t->steps ? skew : t->steps - 1);
    return block_memory<U>::bytes(*t) <= (size_t)to.shared_memory;
}

/* Launches as many clusters as the device runs at once. False where it runs none. */
template <typename U>
bool launch_cut(const queue &to, const copes_lrpe_problem &problem, cluster_tiling t, copes_status *status)
{
    const auto kernel = sequence_cluster<U>;
    const void *function = reinterpret_cast<const void *>(kernel);
    cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeClusterDimension};
    attribute.val.clusterDim = {(unsigned)t.ranks, 1, 1};
    cudaLaunchConfig_t config = {.gridDim = dim3((unsigned)t.ranks), .blockDim = dim3(U::THREADS)};
    config.dynamicSmemBytes = block_memory<U>::bytes(t);
    config.stream = to.stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess ||
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)config.dynamicSmemBytes) !=
            cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&t.clusters, function, &config) != cudaSuccess || t.clusters == 0) {
        (void)cudaGetLastError();
        return false;
    }
    t.clusters = t.clusters < t.slabs ? t.clusters : t.slabs;
    config.gridDim = dim3((unsigned)(t.ranks * t.clusters));
    *status = status_of(cudaLaunchKernelEx(&config, kernel, problem, t), "launch");
    return true;
}

/* With as many steps for the cluster to agree as there is room for. */
template <typename U> bool cut_widely(const queue &to, const copes_lrpe_problem &problem, int ranks, cluster_tiling *t)
{
    for (int skew = SKEW; skew >= 0; skew--)
        if (cut<U>(to, problem, ranks, skew, t))
            return true;
    return false;
}

/* The fewest blocks that hold a slab, or, where there are few slabs, enough to fill the device. */
template <typename U> bool run_width(const queue &to, const copes_lrpe_problem &problem, copes_status *status)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks *= 2) {
        cluster_tiling t;
        if (!cut_widely<U>(to, problem, ranks, &t))
            continue;
        while (ranks * 2 <= MOST_RANKS && t.steps > 1 && (int64_t)t.slabs * ranks < to.multiprocessors)
            cut_widely<U>(to, problem, ranks *= 2, &t);
        return launch_cut<U>(to, problem, t, status);
    }
    return false;
}

/* The widest slabs that fit: narrow ones take more requests to memory's caches for the same bytes. Where halves are turned
 * together, a slab's bytes come in two pieces. */
template <typename T, coding C, role R>
bool run_coding(const queue &to, const copes_lrpe_problem &problem, copes_status *status)
{
    constexpr int WIDE = C != coding::none && R == role::forward ? 8 : 4;
    return run_width<unit_of<T, C, R, WIDE>>(to, problem, status) ||
           run_width<unit_of<T, C, R, WIDE / 2>>(to, problem, status);
}

template <typename T, coding C>
bool run_coding(const queue &to, const copes_lrpe_problem &problem, copes_status *status)
{
    return problem.backward ? run_coding<T, C, role::backward>(to, problem, status)
                            : run_coding<T, C, role::forward>(to, problem, status);
}

/* Whole vectors, and angles that are the position times a step for all tokens. */
template <typename T> bool fits(const queue &to, const copes_lrpe_problem &problem)
{
    const bool cosine = problem.variant == COPES_COSINE;
    const int64_t d = problem.d, encoded = cosine ? 2 * d : d;
    const int64_t plain[] = {problem.b, problem.n, problem.h, d}, wide[] = {problem.b, problem.n, problem.h, encoded};
    const bool turned = problem.k > 0, whole = cosine || problem.k == 0 || 2 * problem.k == d;
    const bool plain_angles = problem.grid_rank == 1 && problem.prefix == 0 && problem.length == problem.n;
    return to.architecture >= 90 && d % vector_length<T> == 0 && whole && (!turned || plain_angles) && problem.n > 0 &&
           problem.n <= INT32_MAX / 2 && problem.b <= INT32_MAX && problem.h <= INT32_MAX &&
           in_vectors<T>(problem.src, problem.backward ? wide : plain, 4) && in_vectors<T>(problem.x, plain, 4) &&
           in_vectors<T>(problem.dst, problem.backward ? plain : wide, 4);
}

template <typename T>
bool run_sequence_fast(const queue &to, const copes_lrpe_problem &problem, bool given, copes_status *status)
{
    if (!fits<T>(to, problem) || problem.b * problem.h * problem.d == 0)
        return false;
    if (problem.variant == COPES_COSINE)
        return run_coding<T, coding::cosine>(to, problem, status);
    if (problem.k == 0 && problem.backward)
        return given && run_coding<T, coding::none, role::given>(to, problem, status);
    if (problem.k == 0)
        return run_coding<T, coding::none, role::forward>(to, problem, status);
    return problem.pairing == COPES_HALF ? run_coding<T, coding::half>(to, problem, status)
                                         : run_coding<T, coding::interleaved>(to, problem, status);
}

template bool run_sequence_fast<f32>(const queue &, const copes_lrpe_problem &, bool, copes_status *);
template bool run_sequence_fast<f16>(const queue &, const copes_lrpe_problem &, bool, copes_status *);
template bool run_sequence_fast<bf16>(const queue &, const copes_lrpe_problem &, bool, copes_status *);

} // namespace COPES_GPU
