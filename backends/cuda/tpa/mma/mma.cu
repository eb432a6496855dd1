/* tpa_decode on tensor cores by warps (mma.sync). Memory binds: all heads share one read of a key's factors. At two
 * tiles of 16 heads, 128 features and rank 1 the arithmetic of a key takes 26 clocks, and its bytes take 35.
 * A block has a query token, some of its heads and some of its keys. Producer warps copy stages of the cache to a
 * ring in shared memory, ahead of the consumers. They only copy, since a warp takes at least 40 clocks to start a
 * copy. A consumer warp has 16 heads. Consumers with the same heads take stages alternately.
 * The blocks of a query token form a cluster where the device runs enough clusters at a time. A cluster merges its
 * blocks' outputs in shared memory, within the launch. */
#include "backends/cuda/tpa/methods.h"
#include "backends/cuda/tpa/mma/plan.h"

namespace COPES_GPU::tpa::mma
{

/* The shared memory of a block, in this order.
 *
 *   what       bytes                     written by                         read by
 *   full       8 * MOST_STAGES           mbarriers: see copy_cache
 *   empty      8 * MOST_STAGES
 *   maxima     floats, f16 alone         consumers, of the query's rows     consumers (query_team::tops)
 *     states   STATE_BYTES               consumers: a row_state for each    all warps (merge_states)
 *                                        row of each key group
 *   merged     STATE_BYTES               the first key group                the cluster's blocks (finish_outputs)
 *   queries    head_tiles * query_bytes  consumers                          consumers of the same heads
 *   stages     stages * ring.bytes       producers: cp.async                consumers
 *     outputs  block_outputs_bytes       consumers (store_outputs)          the cluster's blocks (finish_outputs)
 *
 * An indented line takes the place of the line above it, once nobody reads that any more. Outputs begin at `queries`. */
struct block_memory {
    uint32_t full, empty, queries, stages;
};

/* Along x, blocks are numbered by (query token, part, block of the cluster), along y by group of heads. Code for
 * devices before 8.0 has no use for it. */
[[maybe_unused]] DEVICE block_task task_of_block(const copes_tpa_problem &problem, const mma_plan &plan)
{
    uint32_t place, n;
    const uint32_t token = divide(blockIdx.x, plan.cut.by_place, &place), b = divide(token, plan.cut.by_n, &n);
    block_task task = {b, n, (int64_t)(place / plan.cut.by_cluster), (int)blockIdx.y * plan.head_tiles * WARP_HEADS};
    take_keys<ALIGNMENT>(task, key_range(problem), plan.cut, place);
    return task;
}

/* The producer's loop: copies every stage whose number is `producer` modulo `producers`. The mbarriers of a slot:
 *   mbarrier  arrivals of a phase              who arrives                       who waits
 *   full      32                               the lanes of the slot's producer  the consumers of the slot's key
 *                                              warp, once their copies landed    group, before they read it
 *   empty     32 * head_tiles                  the lanes of the slot's key       its producer's lanes, before they
 *                                              group, after they read it         fill it again
 * Filling i of a slot ends phase i of `full`, and its reading i ends phase i of `empty`. Phase i has parity i % 2. A
 * reading waits for its phase of `full`. A filling waits for the phase of `empty` before its own, and the first for
 * nothing: the producer's parity starts at 1. Both sides flip theirs when they pass the end of the ring. */
template <typename T, int WIDTH>
DEVICE void copy_cache(const copes_tpa_problem &problem, const mma_plan &plan, const block_memory &memory,
                       const block_task &task, int producer)
{
    constexpr int size = keys_of_stage(WIDTH * (int)sizeof(T));
    const int slots = plan.ring.stages;
    cache_producer<T, WIDTH> source(problem, task.b, task.begin + producer * size);
    uint32_t parity = 1; /* the phase before the first */
    for (int stage = producer; stage * size < task.count; stage += plan.producers) {
        const int slot = stage & (slots - 1), left = task.count - stage * size;
        if (stage >= slots)
            mbarrier_wait(memory.empty + slot * 8, parity);
        source.fill(problem, plan.ring, memory.stages + slot * plan.ring.bytes, left < size ? left : size,
                    plan.producers);
        cp_async_mbarrier_arrive(memory.full + slot * 8);
        if (slot + plan.producers >= slots)
            parity ^= 1;
    }
}

/* The consumer's loop: a warp attends to every stage whose number is `key_group` modulo `consumers`. */
template <typename T, int WIDTH>
DEVICE void attend_cache(const copes_tpa_problem &problem, const mma_plan &plan, const block_memory &memory, int keys,
                         int key_group, const warp_place &w, const warp_query<T, WIDTH> &q, warp_outputs<T, WIDTH> &out)
{
    constexpr int size = keys_of_stage(WIDTH * (int)sizeof(T));
    const int slots = plan.ring.stages;
    uint32_t parity = 0;
    for (int stage = key_group; stage * size < keys; stage += plan.consumers) {
        const int slot = stage & (slots - 1), left = keys - stage * size;
        mbarrier_wait(memory.full + slot * 8, parity);
        attend<T, WIDTH>(problem, plan.ring, memory.stages + slot * plan.ring.bytes, left < size ? left : size, w, q,
                         out);
        /* every lane arrives: racecheck does not follow an arrival by one lane after __syncwarp */
        mbarrier_arrive(memory.empty + slot * 8);
        if (slot + plan.consumers >= slots)
            parity ^= 1;
    }
}

/* A consumer's place among the warps of the block. Head tiles are innermost. `first` is its first row among the
 * block's. `reads`: its key group reads keys. */
struct consumer_place {
    int key_group, head_tile, first;
    bool reads;

    __device__ __forceinline__ consumer_place(const mma_plan &plan, uint32_t warp)
        : key_group((int)(warp / plan.by_tile)), head_tile(warp - key_group * plan.head_tiles),
          first(head_tile * WARP_HEADS), reads(key_group < plan.consumers)
    {
    }
};

/* The work of a consumer: it forms the query with the other consumers of its heads, and then reads keys. */
template <typename T, int WIDTH>
DEVICE void attend_block(const copes_tpa_problem &problem, const mma_plan &plan, const block_memory &memory,
                         const block_task &task, int warp, warp_outputs<T, WIDTH> &out)
{
    const consumer_place at(plan, warp);
    const warp_place w = place_of_warp(task.head + at.first, (int)problem.h, (int)problem.e);
    warp_query<T, WIDTH> q;
    const query_team team = {at.key_group, plan.key_groups, plan.head_tiles * plan.key_groups * 32,
                             reinterpret_cast<float *>(dynamic_shared() + BARRIER_BYTES) + at.first,
                             plan.head_tiles * WARP_HEADS};
    q.form(problem, {task.b, task.n, task.head + at.first},
           memory.queries + at.head_tile * query_bytes(WIDTH, plan.query_slices), team);
    if (!at.reads)
        return;
    out.clear();
    attend_cache<T, WIDTH>(problem, plan, memory, task.count, at.key_group, w, q, out);
}

/* Outputs take the place of the query and the stages. */
template <typename T, int WIDTH> DEVICE block_outputs<T, WIDTH> outputs_of_block(const mma_plan &plan)
{
    char *states = dynamic_shared() + BARRIER_BYTES;
    return {plan.consumers, plan.head_tiles, reinterpret_cast<row_state *>(states),
            reinterpret_cast<row_state *>(states + STATE_BYTES), reinterpret_cast<float4 *>(states + 2 * STATE_BYTES)};
}

/* Merges the outputs of the block's warps, and then those of the cluster's blocks. Barriers, which all threads of
 * the block pass:
 *   __syncthreads            states are stored, and nobody reads stages any more
 *   __syncthreads, twice     outputs and merged states are stored
 *   cluster_sync             every block has merged its groups: blocks may read each other's shared memory
 *   cluster_arrive, _wait    every block has read: blocks may end */
template <typename T, int WIDTH>
DEVICE void finish(const copes_tpa_problem &problem, const mma_plan &plan, const block_task &task, int warp,
                   warp_outputs<T, WIDTH> &out, const partial_outputs *partials)
{
    const block_outputs<T, WIDTH> block = outputs_of_block<T, WIDTH>(plan);
    const consumer_place at(plan, warp);
    if (at.reads)
        store_states(block, at.key_group, at.first, out);
    __syncthreads();
    if (at.reads)
        store_outputs(block, at.key_group, at.head_tile, out);
    __syncthreads();
    __syncthreads(); /* for racecheck alone: without it racecheck reports the producers' reads */
    merge_groups(block);
    const output_place to = {task.b, task.n, task.head, task.part, partials, plan.pairs};
    cluster_sync(plan.cut.cluster);
    finish_outputs(problem, plan.cut, to, block);
    cluster_arrive_relaxed(plan.cut.cluster);
    cluster_wait(plan.cut.cluster); /* a block must not end while another reads its memory */
}

/* CUT: the cache is cut into parts. Kernels without CUT have no code that merges parts, as it would cost them
 * registers and time. */
template <typename T, int WIDTH, bool CUT>
__global__ void __launch_bounds__(most_warps(WIDTH) * 32, 1)
    tpa_mma(GPU_PARAMETER copes_tpa_problem problem, GPU_PARAMETER mma_plan plan,
            GPU_PARAMETER partial_outputs partials)
{
#if __CUDA_ARCH__ >= 800
    const uint32_t base = shared_address(dynamic_shared()), queries = base + BARRIER_BYTES + 2 * STATE_BYTES;
    const block_memory memory = {base, base + MOST_STAGES * 8, queries,
                                 queries + plan.head_tiles * query_bytes(WIDTH, plan.query_slices)};
    const int warp = threadIdx.x / 32, with_heads = plan.head_tiles * plan.key_groups;
    if (threadIdx.x < plan.ring.stages) {
        mbarrier_init(memory.full + threadIdx.x * 8, 32);
        mbarrier_init(memory.empty + threadIdx.x * 8, plan.head_tiles * 32);
    }
    __syncthreads();
    const block_task task = task_of_block(problem, plan);
    warp_outputs<T, WIDTH> out;
    if (warp < with_heads)
        attend_block<T, WIDTH>(problem, plan, memory, task, warp, out);
    else
        copy_cache<T, WIDTH>(problem, plan, memory, task, warp - with_heads);
    finish(problem, plan, task, warp, out, CUT ? &partials : nullptr);
    if constexpr (CUT)
        merge_left<T>(problem, partials, plan.pairs, blockDim.x);
#endif
}

/* ---- The host's side --------------------------------------------------------------------------------------------- */

/* The cheapest plan over all numbers of groups that divide the heads. dispatch.cu has asked refuse_block, so there
 * is one. */
template <typename T> static void plan_of(const gpu_device &device, const copes_tpa_problem &problem, mma_plan *plan)
{
    double least = INFINITY;
    const int tiles = head_tiles_of(problem);
    for (int groups = 1; groups <= tiles; groups++) {
        mma_plan next = {};
        if (tiles % groups != 0 || plan_block<T>(device, problem, groups, &next) != nullptr)
            continue;
        const double cost = plan_blocks<T>(device, problem, &next);
        if (cost < least)
            least = cost, *plan = next;
    }
}

template <typename T> const char *refuse_block(const gpu_device &device, const copes_tpa_problem &problem)
{
    mma_plan plan;
    return plan_block<T>(device, problem, head_tiles_of(problem), &plan);
}

typedef void mma_kernel(copes_tpa_problem, mma_plan, partial_outputs);

template <typename T>
static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *workspace)
{
    const mma_plan &own = tiling_of<mma_plan>(plan);
    const partial_outputs partials(plan.cooperative, problem.tpa, own.cut.cache, workspace);
    COPES_TRY(launch_ex(queue, {plan.cluster, plan.cooperative}, planned<mma_kernel>(plan), grid_of(plan),
                        block_of(plan), (size_t)plan.shared, problem.tpa, own, partials));
    return merge_partials<T>(queue, problem.tpa, partials, own.pairs);
}

inline constexpr variant_word width_names[] = {"64", "128", "256"};

template <typename T, int WIDTH, bool CUT>
inline constexpr const char *variant = variant_name<name, type_name<T>, width_names[WIDTH / 128], cut_names[CUT]>::text;

template <typename T, int WIDTH> static void take_width(bool in_parts, copes_plan *plan)
{
    if (in_parts)
        take<mma_kernel>(plan, variant<T, WIDTH, true>, run<T>, tpa_mma<T, WIDTH, true>);
    else
        take<mma_kernel>(plan, variant<T, WIDTH, false>, run<T>, tpa_mma<T, WIDTH, false>);
}

template <typename T> void plan(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan)
{
    const int64_t output[] = {problem.b, problem.n, problem.h, problem.e};
    mma_plan own;
    plan_of<T>(device, problem, &own);
    own.pairs = !is_f32<T> && in_vectors<T>(problem.o, output, 4);
    const cache_cut &cache = own.cut.cache;
    const int64_t blocks = own.cut.cluster * cache.parts * problem.b * problem.n;
    const int warps = own.head_tiles * own.key_groups + own.producers;
    set_launch(plan, dim3((unsigned)blocks, (unsigned)own.head_groups), dim3((unsigned)warps * 32), own.shared);
    set_tiling(plan, own);
    plan->cluster = own.cut.cluster;
    plan->cooperative = device.cooperative && cache.parts > 1;
    plan->workspace = partials_bytes(problem, cache);
    switch (own.width) {
    case 64: take_width<T, 64>(cache.parts > 1, plan); break;
    case 128: take_width<T, 128>(cache.parts > 1, plan); break;
    default: take_width<T, 256>(cache.parts > 1, plan); break;
    }
}

template <typename T, int... WIDTH> static void list_widths(variant_list *list)
{
    (list->add(variant<T, WIDTH, false>), ...);
    (list->add(variant<T, WIDTH, true>), ...);
}

template <typename T> void list(variant_list *list)
{
    list_widths<T, 64, 128, 256>(list);
}

#define INSTANTIATE(T)                                                                                                 \
    template const char *refuse_block<T>(const gpu_device &, const copes_tpa_problem &);                               \
    template void plan<T>(const gpu_device &, const copes_tpa_problem &, copes_plan *);                                \
    template void list<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::tpa::mma
