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
 *   numbers.h       what the planner knows of a kernel
 *   plan.h, costs.h the planner, and the numbers fitted to measurements */
#include "backends/cuda/launch.h"
#include "backends/cuda/sequence/group.h"
#include "backends/cuda/sequence/methods.h"
#include "backends/cuda/sequence/numbers.h"
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
    for (int i = (int)threadIdx.x; i < MOST_SLABS / 32; i += K::BLOCK)
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

template <typename K> constexpr resident_kernel describe(const char *variant, const char *alone)
{
    return {.variant = variant,
            .alone = alone,
            .kernel = sequence_resident<K>,
            .after_softmax = K::C,
            .backward = K::BACKWARD,
            .cooperative = K::COOPERATIVE,
            .element = (int)sizeof(typename K::T),
            .vector = K::N,
            .units = K::UNITS,
            .batch = K::BATCH,
            .ahead = K::AHEAD,
            .rows = K::ROWS,
            .threads = K::THREADS,
            .block = K::BLOCK,
            .sets = block_memory<K>::SETS,
            .memory = block_memory<K>::needs(),
            .columns = K::COLUMNS,
            .totals = group_totals<K>::OF_SLAB};
}

template <typename T, coding C, role R> constexpr resident_kernel describe_cluster()
{
    return describe<kernel_of<T, C, R, 8>>(resident_variant<cluster_name, T, C, R>,
                                           resident_variant<block_name, T, C, R>);
}

template <variant_word METHOD, typename T, coding C, role R, int UNITS> constexpr resident_kernel describe_group()
{
    constexpr const char *name = resident_variant<METHOD, T, C, R>;
    return describe<kernel_of<T, C, R, UNITS, scope::cooperative>>(name, name);
}

template <typename T, coding C, role R> const resident_kernel *resident_kernels()
{
    static constexpr resident_kernel all[RESIDENT_WIDTHS] = {describe_cluster<T, C, R>(),
                                                             describe_group<wide_group_name, T, C, R, 16>(),
                                                             describe_group<group_name, T, C, R, 8>(),
                                                             describe_group<narrow_group_name, T, C, R, 4>()};
    return all;
}

/* The build compiles this file once for each storage type and encoding (meson.build). */
#define INSTANTIATE(ROLE)                                                                                              \
    template const resident_kernel *resident_kernels<COPES_TYPE, coding::COPES_CODING, role::ROLE>();
INSTANTIATE(forward)
#if COPES_ROTATES
INSTANTIATE(kept)
#else
INSTANTIATE(given)
#endif

} // namespace COPES_GPU::sequence
