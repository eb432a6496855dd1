/* Softmax over the sequence on Hopper, each element read from memory once and written once. What bounds it is memory,
 * if neither reading nor writing ever stops: so a slab, all tokens of 64 to 256 bytes' worth of columns of a head, lies
 * in the shared memory of a cluster of blocks, or of a group of any number of them, and while the blocks normalize and
 * write one slab, the next takes its place step by step. Several clusters or groups work side by side.
 *
 * Each thread has a unit of 16 bytes of columns in every so many tokens, and a ring of places for them in shared memory
 * that no other warp touches. Copies go there some steps before their statistics are taken, and stay for a slab's
 * length and a few steps more, in which the blocks tell each other what they found. That is the work of warps of its own,
 * so that no other ever waits for its block. What the blocks cannot agree on so is done over at the end. */
#include "backends/cuda/launch.h"
#include "backends/cuda/sequence/group.h"
#include "backends/cuda/sequence/plan.h"
#include "backends/cuda/sequence/recompute.h"
#include "backends/cuda/sequence/stream.h"

namespace COPES_GPU
{

template <typename U> DEVICE void init_mbarriers()
{
    block_memory<U> &memory = *block_memory<U>::get();
    mbarrier_init_cluster(shared_address(&memory.summed[0]), U::THREADS);
    for (int i = 0; i < block_memory<U>::OPEN; i++)
        mbarrier_init_cluster(shared_address(&memory.agreed[i]), 32);
    for (int i = 0; i < block_memory<U>::SETS; i++)
        mbarrier_init_cluster(shared_address(&memory.prepared[i]), 32);
    if (U::GROUPED) {
        mbarrier_init_cluster(shared_address(&memory.taken[0]), 32);
        for (int i = 0; i < block_memory<U>::OPEN; i++)
            mbarrier_init_cluster(shared_address(&memory.done[i]), 32);
    } else {
        for (int i = 0; i < 2; i++)
            mbarrier_init_cluster(shared_address(&memory.mail[i]), 1);
    }
}

/* Before anything is sent to a block, its mailboxes are open. */
template <typename U> DEVICE void init_mbarriers_of_all(const worker<U> &w)
{
    if (threadIdx.x == U::THREADS)
        init_mbarriers<U>();
    for (int i = (int)threadIdx.x; i < block_memory<U>::MOST / 32; i += U::BLOCK)
        block_memory<U>::get()->unfit[i] = 0;
    if constexpr (U::GROUPED) {
        group_totals<U>(w).open();
        grid_sync();
    } else {
        cluster_sync();
    }
}

template <typename U> DEVICE void run_cluster(const copes_lrpe_problem &problem, const cluster_tiling &tiling)
{
    const worker<U> w(problem, tiling);
    const bool others = threadIdx.x >= U::THREADS;
    loader<U> load(w);
    for (uint32_t i = 0; i < U::AHEAD && !others; i++) {
        load.template copy<true>(i * U::SLOT);
        load.advance(1);
    }
    init_mbarriers_of_all(w);
    bool unfit = false;
    if (others)
        unfit = run_other<U>(w);
    else
        stream<U>(w, load).run();
    if constexpr (U::MAY_REDO)
        if (__syncthreads_or(unfit))
            redo<U>(w).run();
}

template <typename U>
__global__ void __launch_bounds__(U::BLOCK, 1)
    sequence_cluster(GPU_PARAMETER copes_lrpe_problem problem, GPU_PARAMETER cluster_tiling tiling)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 /* before that there are no clusters, and no launch */
    run_cluster<U>(problem, tiling);
#endif
}

template <typename U>
copes_status launch_cut(const gpu_queue &queue, const copes_lrpe_problem &problem, const cluster_tiling &t)
{
    const launch_attributes blocks = {U::GROUPED ? 1 : t.ranks, U::GROUPED};
    return launch_ex(queue, blocks, sequence_cluster<U>, dim3((unsigned)(t.ranks * t.clusters)), U::BLOCK,
                     block_memory<U>::bytes(t), problem, t);
}

template <typename T, coding C, role R>
copes_status launch_plan(const gpu_queue &queue, const copes_lrpe_problem &problem, sequence_plan &plan,
                         void *workspace)
{
    typedef instances<T, C, R> all;
    plan.tiling.totals = static_cast<uint64_t *>(workspace);
    switch (plan.kind) {
    case cut_kind::cluster: return launch_cut<typename all::cluster>(queue, problem, plan.tiling);
    case cut_kind::wide_group: return launch_cut<typename all::wide_group>(queue, problem, plan.tiling);
    case cut_kind::group: return launch_cut<typename all::group>(queue, problem, plan.tiling);
    default: return launch_cut<typename all::narrow_group>(queue, problem, plan.tiling);
    }
}

/* Whole vectors, and angles that are the position times a step for all tokens. */
template <typename T> bool fits(const gpu_queue &queue, const copes_lrpe_problem &problem)
{
    const bool cosine = problem.variant == COPES_LRPE_COSINE;
    const int64_t d = problem.d, encoded = cosine ? 2 * d : d;
    const int64_t plain[] = {problem.b, problem.n, problem.h, d}, wide[] = {problem.b, problem.n, problem.h, encoded};
    const bool turned = problem.k > 0, whole = cosine || problem.k == 0 || 2 * problem.k == d;
    const bool plain_angles = problem.grid_rank == 1 && problem.prefix == 0 && problem.length == problem.n;
    return queue.architecture >= 90 && d % vector_length<T> == 0 && whole && (!turned || plain_angles) &&
           problem.n > 0 && problem.n <= INT32_MAX / 2 && problem.b <= INT32_MAX && problem.h <= INT32_MAX &&
           in_vectors<T>(problem.src, problem.backward ? wide : plain, 4) && in_vectors<T>(problem.x, plain, 4) &&
           in_vectors<T>(problem.dst, problem.backward ? plain : wide, 4);
}

/* Calls `take` with the encoding and role of a problem that fits; false where none does. */
template <typename T, typename Take>
bool with_coding(const gpu_queue &queue, const copes_lrpe_problem &problem, bool given, Take take)
{
    const auto turned = [&]<coding C>() {
        return !problem.backward             ? take.template operator()<C, role::forward>()
               : problem.lse.data != nullptr ? take.template operator()<C, role::kept>()
                                             : take.template operator()<C, role::backward>();
    };
    if (!fits<T>(queue, problem) || problem.b * problem.h * problem.d == 0)
        return false;
    if (problem.variant == COPES_LRPE_COSINE)
        return turned.template operator()<coding::cosine>();
    if (problem.k > 0 && problem.pairing == COPES_LRPE_HALF)
        return turned.template operator()<coding::half>();
    if (problem.k > 0)
        return turned.template operator()<coding::interleaved>();
    if (!problem.backward)
        return take.template operator()<coding::none, role::forward>();
    return given && take.template operator()<coding::none, role::given>();
}

/* Wherever the tensors start. */
template <typename T>
int64_t fast_sequence_workspace(const gpu_queue &queue, const copes_lrpe_problem &problem, bool given)
{
    copes_lrpe_problem anywhere = problem;
    for (copes_view *view : {&anywhere.src, &anywhere.x, &anywhere.dst})
        *view = aligned(*view);
    int64_t bytes = 0;
    with_coding<T>(queue, anywhere, given, [&]<coding C, role R>() {
        bytes = plan_of<T, C, R>(queue, anywhere).workspace;
        return true;
    });
    return bytes;
}

template <typename T>
bool run_sequence_fast(const gpu_queue &queue, const copes_lrpe_problem &problem, bool given, void *workspace,
                       copes_status *status)
{
    return with_coding<T>(queue, problem, given, [&]<coding C, role R>() {
        sequence_plan plan = plan_of<T, C, R>(queue, problem);
        if (plan.kind == cut_kind::none)
            return false;
        *status = launch_plan<T, C, R>(queue, problem, plan, workspace);
        return true;
    });
}

#define INSTANTIATE(T)                                                                                                 \
    template int64_t fast_sequence_workspace<T>(const gpu_queue &, const copes_lrpe_problem &, bool);                  \
    template bool run_sequence_fast<T>(const gpu_queue &, const copes_lrpe_problem &, bool, void *, copes_status *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU
