/* Softmax over the sequence on Hopper. Each element is read from memory once and written once. Memory bounds the
 * kernel, if reading and writing never stop. So a slab, all tokens of 64 to 256 bytes of columns, lies in the shared
 * memory of a group of blocks: a cluster, or some blocks of a cooperative launch. While the group writes one slab,
 * it reads the next one into the same places, step by step. Several groups work side by side.
 *
 * Each token thread has one unit, 16 bytes of columns, in every so many tokens. Each warp has a ring in shared
 * memory that no other warp touches. Tokens are copied there some steps before the thread adds them to its sums
 * (stream.h), and stay for the steps of a slab and the skew. During the skew the blocks exchange their sums.
 * Exchange warps do this (exchange.h), so that token threads never wait for their whole block. Slabs that the
 * exchange does not suit are recomputed at the end (recompute.h).
 *
 *   file            has
 *   kernels.h       the table of kernels
 *   tiling.h        the cut at run time, and a group's walk over its slabs
 *   shared.h        shared memory, and the table of mbarriers
 *   worker.h        a thread's tokens, columns and places
 *   copies.h, work.h, stream.h            token threads: copying; reading and writing; the order of both
 *   sums.h, rotations.h                   a column's sums, a unit's rotations
 *   exchange.h, group.h, preparation.h    exchange warps
 *   totals.h        sums over a cooperative launch's group
 *   recompute.h     slabs at the end
 *   plan.h, costs.h the planner, and the numbers fitted to measurements */
#include "backends/cuda/launch.h"
#include "backends/cuda/sequence/group.h"
#include "backends/cuda/sequence/methods.h"
#include "backends/cuda/sequence/plan.h"
#include "backends/cuda/sequence/recompute.h"
#include "backends/cuda/sequence/stream.h"

namespace COPES_GPU::sequence
{

/* The table in shared.h explains the arrivals. */
template <typename K> DEVICE void init_mbarriers()
{
    block_memory<K> &memory = *block_memory<K>::get();
    mbarrier_init_cluster(shared_address(&memory.summed[0]), K::THREADS);
    for (int i = 0; i < block_memory<K>::OPEN; i++)
        mbarrier_init_cluster(shared_address(&memory.agreed[i]), 32);
    for (int i = 0; i < block_memory<K>::SETS; i++)
        mbarrier_init_cluster(shared_address(&memory.prepared[i]), 32);
    if (K::COOPERATIVE) {
        mbarrier_init_cluster(shared_address(&memory.taken[0]), 32);
        for (int i = 0; i < block_memory<K>::OPEN; i++)
            mbarrier_init_cluster(shared_address(&memory.done[i]), 32);
    } else {
        for (int i = 0; i < 2; i++)
            mbarrier_init_cluster(shared_address(&memory.received[i]), 1);
    }
}

/* A block's mbarriers are initialized, and the totals empty, before any block sends to them. */
template <typename K> DEVICE void init_exchange(const worker<K> &w)
{
    if (threadIdx.x == K::THREADS)
        init_mbarriers<K>();
    for (int i = (int)threadIdx.x; i < block_memory<K>::MOST_SLABS / 32; i += K::BLOCK)
        block_memory<K>::get()->unfit[i] = 0;
    if constexpr (K::COOPERATIVE) {
        group_totals<K>(w).empty();
        grid_sync();
    } else {
        cluster_sync();
    }
}

template <typename K> DEVICE void run_slabs(const copes_lrpe_problem &problem, const slab_tiling &tiling)
{
    const worker<K> w(problem, tiling);
    const bool exchanges = threadIdx.x >= K::THREADS;
    loader<K> load(w);
    for (uint32_t i = 0; i < K::AHEAD && !exchanges; i++) {
        load.template copy<true>(i * K::STAGE_BYTES);
        load.advance(1);
    }
    init_exchange(w);
    bool unfit = false;
    if (exchanges)
        unfit = run_exchange_warp<K>(w);
    else
        stream<K>(w, load).run();
    if constexpr (K::RECOMPUTES)
        if (any_of_block(unfit))
            recomputation<K>(w).run();
}

template <typename K>
__global__ void __launch_bounds__(K::BLOCK, 1)
    sequence_resident(GPU_PARAMETER copes_lrpe_problem problem, GPU_PARAMETER slab_tiling tiling)
{
    run_slabs<K>(problem, tiling);
}

/* The kernel's arguments. */
struct resident_arguments {
    copes_lrpe_problem problem;
    slab_tiling tiling;
};

template <typename K>
copes_status run_resident(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *workspace)
{
    const resident_arguments &all = tiling_of<resident_arguments>(plan);
    slab_tiling tiling = all.tiling;
    tiling.totals = static_cast<uint64_t *>(workspace);
    return launch_ex(queue, {plan.cluster, plan.cooperative}, sequence_resident<K>, grid_of(plan), block_of(plan),
                     (size_t)plan.shared, all.problem, tiling);
}

template <typename K>
bool take_kind(const copes_lrpe_problem &problem, const sequence_plan &chosen, const char *variant, copes_plan *plan)
{
    const slab_tiling &t = chosen.tiling;
    set_launch(plan, dim3((unsigned)(t.blocks * t.groups)), K::BLOCK, (int64_t)block_memory<K>::bytes(t));
    plan->cluster = K::COOPERATIVE ? 1 : t.blocks;
    plan->cooperative = K::COOPERATIVE;
    plan->workspace = chosen.workspace;
    set_tiling(plan, resident_arguments{problem, t});
    return take(plan, variant, run_resident<K>);
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
                                                chosen.tiling.blocks == 1 ? resident_variant<block_name, T, C, R>
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

/* The build compiles this file once for each storage type and encoding (meson.build). */
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
