/* Softmax over the sequence on Hopper, each element read from memory once and written once. What bounds it is memory,
 * if neither reading nor writing ever stops: so a slab, all tokens of 64 bytes' worth of columns of a head, lies in the
 * shared memory of a cluster of blocks, and while the blocks normalize and write one slab, the next takes its place
 * step by step.
 *
 * Each thread has a unit of 16 bytes of columns in every so many tokens, and a ring of places for them in shared memory
 * that no other warp touches. Copies go there some steps before their statistics are taken, and stay for a slab's
 * length and a few steps more, in which the blocks of the cluster tell each other what they found. That is one warp's
 * work, so that no other ever waits for its block. Where x and the gradient do not both fit, the gradient is read
 * again, from the L2 cache. */
#include "backends/cuda/clusters.h"
#include "backends/cuda/sequence_exchange.h"
#include "backends/cuda/sequence_stream.h"

namespace COPES_GPU
{

enum { MOST_STEPS = 1 << 10, SKEW = 3 };

template <typename U> DEVICE void open_mailboxes()
{
    block_memory<U> &memory = *block_memory<U>::get();
    open_mailbox(shared_address(&memory.summed), U::THREADS);
    open_mailbox(shared_address(&memory.agreed), 32);
    for (int i = 0; i < 2; i++) {
        open_mailbox(shared_address(&memory.prepared[i]), 32);
        open_mailbox(shared_address(&memory.mail[i]), 1);
    }
}

template <typename U> DEVICE void run_cluster(const copes_lrpe_problem &problem, const cluster_tiling &tiling)
{
    const worker<U> w(problem, tiling);
    const bool exchanges = threadIdx.x >= U::THREADS;
    loader<U> load(w);
    step_place place = {0, 0};
    for (int i = 0; i < U::AHEAD && !exchanges; i++, place.next<U>(tiling)) {
        const bool written = i >= tiling.steps + tiling.skew;
        load.copy(place, load.fresh.tokens(), written ? load.again.tokens() : 0);
        load.advance(written, 1);
    }
    if (threadIdx.x == U::THREADS)
        open_mailboxes<U>();
    synchronize_cluster(); /* before anything is sent to a block, its mailboxes are open */
    if (exchanges)
        exchange<U>(w).run();
    else
        stream<U>(w, load).run();
}

template <typename U>
__global__ void __launch_bounds__(U::THREADS + 32, 1)
    sequence_cluster(GPU_PARAMETER copes_lrpe_problem problem, GPU_PARAMETER cluster_tiling tiling)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 /* before that there are no clusters, and no launch */
    run_cluster<U>(problem, tiling);
#endif
}

/* Shares slabs out among as many clusters as the device runs at once. */
inline void share_out(int64_t active, cluster_tiling *t)
{
    const int64_t slabs = (int64_t)t->pairs * t->batch;
    t->clusters = (int)(active < slabs ? active : slabs);
    t->whole = t->pairs / t->clusters * t->clusters;
    t->rounds = t->whole / t->clusters * t->batch;
}

/* The cut of a problem into slabs for clusters of `ranks` blocks, with as many steps for the cluster to agree as there
 * is room for; false where it does not fit, or the device has no such clusters. */
template <typename U> bool cut(const queue &to, const copes_lrpe_problem &problem, int ranks, cluster_tiling *t)
{
    const int64_t units = problem.d / U::N, step = (int64_t)U::BATCH * ranks * U::ROWS;
    const int64_t steps = (problem.n + step - 1) / step, pairs = problem.h * (units / U::LANES);
    const int active = active_clusters(to, ranks);
    if (active == 0 || units % U::LANES != 0 || pairs * problem.b > INT32_MAX / 2 || steps > MOST_STEPS)
        return false;
    const int64_t tokens = ranks * U::ROWS; /* between a thread's */
    *t = {.ranks = ranks,
          .steps = (int)steps,
          .tiles = (int)(units / U::LANES),
          .pairs = (int)pairs,
          .batch = (int)problem.b,
          .x_step = tokens * problem.x.stride[1],
          .g_step = tokens * problem.src.stride[1],
          .to_step = tokens * problem.dst.stride[1]};
    share_out(active, t);
    for (t->skew = SKEW < steps ? SKEW : (int)steps - 1; t->skew >= 0; t->skew--) {
        t->slots = t->steps + U::AHEAD + t->skew;
        if (block_memory<U>::bytes(*t) <= (size_t)to.shared_memory)
            return true;
    }
    return false;
}

/* The time of a cut, in units of a thread: slabs that a cluster takes one after another, and a step more for what each
 * begins and ends with, or two where blocks have to agree. */
template <typename U> double cost_of(const cluster_tiling &t)
{
    const int64_t slabs = (int64_t)t.pairs * t.batch, rounds = (slabs + t.clusters - 1) / t.clusters;
    return (double)rounds * (t.steps + (t.ranks > 1 ? 2 : 1)) * U::BATCH * U::THREADS;
}

/* The cheapest cut over all sizes of clusters; infinity: there is none. */
template <typename U> double choose(const queue &to, const copes_lrpe_problem &problem, cluster_tiling *best)
{
    double least = INFINITY;
    for (int ranks = 1; ranks <= U::MOST_RANKS; ranks++) {
        cluster_tiling t;
        if (cut<U>(to, problem, ranks, &t) && cost_of<U>(t) < least) {
            least = cost_of<U>(t);
            *best = t;
        }
    }
    return least;
}

template <typename U>
copes_status launch_cut(const queue &to, const copes_lrpe_problem &problem, const cluster_tiling &t)
{
    return launch_clusters(to, sequence_cluster<U>, dim3((unsigned)(t.ranks * t.clusters)), t.ranks, U::THREADS + 32,
                           block_memory<U>::bytes(t), problem, t);
}

/* Backward, where x alone fits. An encoding besides would make it slower than the kernel that reads slabs twice. */
template <typename T, coding C, role R>
bool run_passing(const queue &to, const copes_lrpe_problem &problem, copes_status *status)
{
    if constexpr (R != role::forward && C == coding::none) {
        typedef unit_of<T, C, R, 4, gradient::passing> unit;
        cluster_tiling t;
        if (choose<unit>(to, problem, &t) < INFINITY) {
            *status = launch_cut<unit>(to, problem, t);
            return true;
        }
    }
    return false;
}

/* What a slab of 64 bytes costs beside one of 128, a line of the caches, as measured: more, most where it is in halves
 * of 32 and no arithmetic hides that; less where the second vector of a gradient takes the room of more tokens. */
template <typename T, coding C, role R>
inline constexpr double NARROW_COST = C == coding::half && sizeof(T) == 4       ? 2
                                      : R == role::backward                     ? 0.85
                                      : C == coding::none && R == role::forward ? 1.05
                                                                                : 1.15;

template <typename T, coding C, role R>
bool run_coding(const queue &to, const copes_lrpe_problem &problem, copes_status *status)
{
    typedef unit_of<T, C, R, 8, gradient::resting> wide_unit;
    typedef unit_of<T, C, R, 4, gradient::resting> narrow_unit;
    cluster_tiling wide = {}, narrow = {};
    const double cost = choose<wide_unit>(to, problem, &wide);
    const double narrow_cost = choose<narrow_unit>(to, problem, &narrow) * NARROW_COST<T, C, R>;
    if (cost <= narrow_cost && cost < INFINITY)
        *status = launch_cut<wide_unit>(to, problem, wide);
    else if (narrow_cost < INFINITY)
        *status = launch_cut<narrow_unit>(to, problem, narrow);
    else
        return run_passing<T, C, R>(to, problem, status);
    return true;
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
