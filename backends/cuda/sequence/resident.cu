/* Softmax over the sequence on Hopper, each element read from memory once and written once. What bounds it is memory,
 * if neither reading nor writing ever stops: so a slab, all tokens of 64 to 256 bytes' worth of columns of a head, lies
 * in the shared memory of a cluster of blocks, or of a group of any number of them, and while the blocks normalize and
 * write one slab, the next takes its place step by step. Several groups work side by side.
 *
 * Each thread has a unit of 16 bytes of columns in every so many tokens, and a ring of places for them in shared memory
 * that no other warp touches. Copies go there some steps before their statistics are taken, and stay for a slab's
 * length and a few steps more, in which the blocks tell each other what they found. That is the work of warps of its own,
 * so that no other ever waits for its block. What the blocks cannot agree on so is recomputed at the end. */
#include "backends/cuda/launch.h"
#include "backends/cuda/sequence/group.h"
#include "backends/cuda/sequence/methods.h"
#include "backends/cuda/sequence/plan.h"
#include "backends/cuda/sequence/recompute.h"
#include "backends/cuda/sequence/stream.h"

namespace COPES_GPU::sequence
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
            mbarrier_init_cluster(shared_address(&memory.received[i]), 1);
    }
}

/* Before anything is sent to a block, its mbarriers are open. */
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

template <typename U> DEVICE void run_slabs(const copes_lrpe_problem &problem, const slab_tiling &tiling)
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
    if constexpr (U::RECOMPUTES)
        if (__syncthreads_or(unfit))
            recomputation<U>(w).run();
}

template <typename U>
__global__ void __launch_bounds__(U::BLOCK, 1)
    sequence_resident(GPU_PARAMETER copes_lrpe_problem problem, GPU_PARAMETER slab_tiling tiling)
{
    run_slabs<U>(problem, tiling);
}

/* What run needs besides the launch. */
struct resident_arguments {
    copes_lrpe_problem problem;
    slab_tiling tiling;
};

template <typename U>
copes_status run_resident(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *workspace)
{
    const resident_arguments &all = tiling_of<resident_arguments>(plan);
    slab_tiling tiling = all.tiling;
    tiling.totals = static_cast<uint64_t *>(workspace);
    return launch_ex(queue, {plan.cluster, plan.cooperative}, sequence_resident<U>, grid_of(plan), block_of(plan),
                     (size_t)plan.shared, all.problem, tiling);
}

template <typename U>
bool take_kind(const copes_lrpe_problem &problem, const sequence_plan &chosen, const char *variant, copes_plan *plan)
{
    const slab_tiling &t = chosen.tiling;
    set_launch(plan, dim3((unsigned)(t.ranks * t.clusters)), U::BLOCK, (int64_t)block_memory<U>::bytes(t));
    plan->cluster = U::GROUPED ? 1 : t.ranks;
    plan->cooperative = U::GROUPED;
    plan->workspace = chosen.workspace;
    set_tiling(plan, resident_arguments{problem, t});
    return take(plan, variant, run_resident<U>);
}

template <typename T, coding C, role R>
bool plan_resident(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    typedef instances<T, C, R> all;
    const sequence_plan chosen = plan_of<T, C, R>(device, problem, plan);
    switch (chosen.kind) {
    case cut_kind::none: return false;
    case cut_kind::cluster:
        return take_kind<typename all::cluster>(problem, chosen,
                                                chosen.tiling.ranks == 1 ? resident_variant<block_name, T, C, R>
                                                                         : resident_variant<cluster_name, T, C, R>,
                                                plan);
    case cut_kind::wide_group:
        return take_kind<typename all::wide_group>(problem, chosen, resident_variant<wide_group_name, T, C, R>, plan);
    case cut_kind::group:
        return take_kind<typename all::group>(problem, chosen, resident_variant<group_name, T, C, R>, plan);
    case cut_kind::narrow_group: break;
    }
    return take_kind<typename all::narrow_group>(problem, chosen, resident_variant<narrow_group_name, T, C, R>, plan);
}

/* One storage type and encoding a source file, as the build says (meson.build). */
#define INSTANTIATE(ROLE)                                                                                              \
    template bool plan_resident<COPES_TYPE, coding::COPES_CODING, role::ROLE>(const gpu_device &,                      \
                                                                              const copes_lrpe_problem &,              \
                                                                              copes_plan *);
INSTANTIATE(forward)
#if COPES_ROTATES
INSTANTIATE(kept)
#else
INSTANTIATE(given)
#endif

} // namespace COPES_GPU::sequence
