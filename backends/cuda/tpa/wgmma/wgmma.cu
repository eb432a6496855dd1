/* tpa_decode on Hopper's tensor cores (wgmma), for keys and values of rank 1; in float32 for any rank. A block has a
 * query token, 32 or 64 of its heads, and some of its keys. One warp, the producer, asks for the cache, stages ahead
 * of two warpgroups, the consumers. With one tile of 32 heads both consumers have the same heads, and take stages
 * alternately. With two tiles each has its own. The blocks that share a query token's keys are a cluster, which
 * merges their rows within the launch (rows.h).
 *
 * The steps of a block and its barriers. Barrier 1 is a named barrier: of the 256 consumers, and in its first use of
 * the producer's 32 threads too. A and B are the phases of the cluster's barrier. A cluster of one block skips them.
 *
 *   producer                consumers                         when the barrier is passed
 *   initialize mbarriers    copy bq, in float32 aq too
 *   barrier 1: arrive       barrier 1: sync                   mbarriers are initialized, bq is there
 *   copy stages             form the query (f16 may sync)
 *                           barrier 1: sync                   the query is there
 *                           attend to stages
 *   A: arrive               A: arrive
 *   16-bit: warm_up         gather_rows (may sync)
 *                           barrier 1: sync                   the block's rows are there
 *   A: wait                 A: wait                           no block reads its stages: rows may replace them
 *                           send_rows; wait for `received`    the other blocks' rows are there
 *   B: arrive               B: arrive
 *                           finish_rows
 *   B: wait                 B: wait                           every block has received its rows: blocks may end
 *
 * Every thread arrives at A and B once and waits for each once. The three idle warps of float32 have exited, and the
 * cluster's barrier does not count exited threads. The producer of float32 ends after B, as it has too few registers
 * to merge parts. */
#include "backends/cuda/ptx/tensor_map.h"
#include "backends/cuda/tpa/float32/rows.h"
#include "backends/cuda/tpa/methods.h"
#include "backends/cuda/tpa/wgmma/plan.h"
#include "backends/cuda/tpa/wgmma/rows.h"

#include <type_traits>

namespace COPES_GPU::tpa::wgmma
{

#if COPES_SM90A

/* The types that differ between 16-bit storage and float32. */
template <typename T, int WIDTH, int SLICES>
using former_of = std::conditional_t<is_f32<T>, float32::query_former<WIDTH, SLICES>, query_former<T, WIDTH, SLICES>>;
template <typename T, int WIDTH>
using outputs_of = std::conditional_t<is_f32<T>, float32::group_outputs<WIDTH>, group_outputs<T, WIDTH>>;
template <typename T, int WIDTH>
using row_partial_of = std::conditional_t<is_f32<T>, float32::row_partial<WIDTH>, row_partial<T, WIDTH>>;

/* The places of a block's shared memory (block_layout), and an mbarrier more:
 *   mbarrier  arrivals  who arrives                   bytes                            who waits, once, for parity 0
 *   received  1         lane 0 of the producer; it    the block's share of the rows    all consumers, before they read
 *                       expects the bytes             of each other block              the received rows
 * Received rows take the place of the stages. Barrier A, which the senders wait for, tells them that nobody reads
 * these any more. */
struct block_memory {
    box_ring ring;
    uint32_t received; /* mbarrier of the received rows */
    uint32_t rows, bq, query, exchange, weights;
};

template <typename T, int WIDTH, int SLICES> DEVICE block_memory memory_of_block(const wgmma_plan &plan, int slot_bytes)
{
    const block_layout<T, WIDTH, SLICES> layout = {plan.tiles, plan.query.ranks};
    const uint32_t base = shared_address(dynamic_shared()), slots = MOST_SLOTS * 8, exchange = base + layout.BARRIERS;
    const uint32_t query = (base + layout.fixed() + 1023) & ~1023u, weights = query + plan.tiles * layout.QUERY;
    const box_ring ring = {base, base + slots, base + 2 * slots, weights + layout.weights(), plan.slots, slot_bytes};
    const uint32_t rows = is_f32<T> ? query : exchange, bq = is_f32<T> ? weights : rows + layout.rows_bytes();
    return {ring, ring.tail + 8, rows, bq, query, exchange, weights};
}

/* The source of a block's keys, or of its values. */
template <bool FLAT>
DEVICE half_source source_of_half(const CUtensorMap *features, const CUtensorMap *heads, const copes_view &view,
                                  int64_t ranks, const copes_tpa_problem &problem, const block_task &task)
{
    if (!FLAT)
        return {features, heads};
    const float *first = static_cast<const float *>(view.data);
    const int64_t at = task.b * view.stride[0] + task.begin * problem.h * ranks;
    return {features, heads, (int)ranks, (int)(problem.h * ranks * 4), reinterpret_cast<const char *>(first + at)};
}

/* The work of the producer. */
template <typename T, int WIDTH, bool FLAT>
DEVICE void copy_block(const cache_maps &maps, const copes_tpa_problem &problem, const wgmma_plan &plan,
                       const block_memory &memory, block_task &task, const row_shares &shares)
{
    if (threadIdx.x % 32 == 0) {
#pragma unroll 1 /* short code is fetched sooner */
        for (int slot = 0; slot < plan.slots; slot++) {
            mbarrier_init_cluster(memory.ring.full + slot * 8, 32);
            mbarrier_init_cluster(memory.ring.empty + slot * 8, plan.tiles * 4);
        }
        mbarrier_init_cluster(memory.ring.tail, 1);
        mbarrier_init_cluster(memory.received, 1);
        mbarrier_arrive_expect_tx(memory.received, (shares.blocks - 1) * shares.of((int)cluster_rank()) *
                                                       (uint32_t)sizeof(gathered_row<WIDTH>));
        fence_proxy_async();
    }
    __syncwarp();
    barrier_arrive(THREADS);
    take_keys<BOX_KEYS, is_f32<T>>(task, plan.keys, plan.cut, blockIdx.x);
    const box_producer<T, WIDTH, FLAT> producer = {memory.ring, task, layout_of<T, WIDTH, FLAT>(problem, plan.tiles),
                                                   source_of_half<FLAT>(&maps.bk, &maps.ak, problem.ak, problem.rk,
                                                                        problem, task),
                                                   source_of_half<FLAT>(&maps.bv, &maps.av, problem.av, problem.rv,
                                                                        problem, task)};
    producer.run();
}

/* A consumer thread's place in its warpgroup. */
template <typename T, int WIDTH, int SLICES>
DEVICE group_place place_of_thread(const wgmma_plan &plan, const block_memory &memory, int group)
{
    typedef block_layout<T, WIDTH, SLICES> layout;
    const lane_place lane = place_of_lane();
    return {lane.lane,
            lane.g,
            lane.t,
            (int)threadIdx.x / 32 % 4,
            group,
            plan.tiles == 1 ? 0 : group,
            memory.exchange + group * EXCHANGE,
            memory.weights + group * layout::WEIGHTS};
}

/* The work of a consumer warpgroup: it attends with its heads to some of the block's stages. */
template <typename T, int WIDTH, int SLICES, bool FLAT>
DEVICE void attend_block(const copes_tpa_problem &problem, const wgmma_plan &plan, const block_memory &memory,
                         block_task &task, const group_place &w, outputs_of<T, WIDTH> &out)
{
    constexpr int slots = SLOTS_OF_STAGE<T>;
    const bool same_heads = plan.tiles == 1;
    const uint32_t query = memory.query + w.tile * block_layout<T, WIDTH, SLICES>::QUERY;
    const former_of<T, WIDTH, SLICES> former(plan.query, (int)task.b, (int)task.n, task.head, plan.tiles, w, memory.bq,
                                             query);
    take_keys<BOX_KEYS, is_f32<T>>(task, plan.keys, plan.cut, blockIdx.x);
    out.clear();
    cp_async_commit();
    cp_async_wait<0>();
    barrier_sync(THREADS);
    const float descale = former.run(same_heads);
    fence_proxy_async();
    barrier_sync(CONSUMERS);
    const int interleave = same_heads ? GROUPS : 1, first = same_heads ? w.group : 0;
    slot_reader reader = {memory.ring, {first * slots, 0}};
    for (int key = first * BOX_KEYS; key < task.count; key += interleave * BOX_KEYS) {
        const int left = task.count - key, count = left < BOX_KEYS ? left : BOX_KEYS;
        if constexpr (is_f32<T>) {
            const float32::half_coefficients<FLAT> coefficients(layout_of<T, WIDTH, FLAT>(problem, plan.tiles).heads(),
                                                                task.head, problem);
            float32::attend_halves<WIDTH>(reader, interleave * slots, count, w, query, coefficients,
                                          problem.weight_scale, out);
        } else {
            attend_stage<T, WIDTH, SLICES>(reader, interleave, plan.tiles, count, w, query, descale,
                                           problem.weight_scale, out);
        }
    }
}

/* Stores the block's rows in shared memory. Groups with the same heads merge theirs. If all keys are one stage, the
 * first group has them alone, and the second has nothing to merge. */
template <typename T, int WIDTH>
DEVICE void gather_rows(const wgmma_plan &plan, int keys, const group_place &w, outputs_of<T, WIDTH> &out,
                        gathered_row<WIDTH> *rows)
{
    const bool same_heads = plan.tiles == 1, alone = same_heads && keys <= BOX_KEYS;
    if (alone && w.group > 0)
        return;
    gathered_row<WIDTH> *const own = rows + w.tile * TILE_HEADS;
    row_partial_of<T, WIDTH> partial(w, out);
    if (is_f32<T> && !alone)
        barrier_sync(CONSUMERS); /* rows take the place of the query, which neither group reads any more */
    if (same_heads && !alone) {
        if (w.group > 0)
            partial.store(own);
        barrier_sync(CONSUMERS);
        if (w.group > 0)
            return;
        partial.add(own);
    }
    partial.store(own);
    fence_proxy_async();
}

#endif

/* CUT: the cache is cut into parts. Kernels without CUT have no code that merges parts, as it would cost them
 * registers and time. */
template <typename T, int WIDTH, int SLICES, bool FLAT, bool CUT>
__global__ void __launch_bounds__(LAUNCHED<T>, 1)
    tpa_wgmma(GPU_PARAMETER wgmma_plan plan, GPU_PARAMETER copes_tpa_problem problem, GPU_PARAMETER cache_maps maps,
              GPU_PARAMETER partial_outputs partials)
{
#if COPES_SM90A
    if (threadIdx.x == CONSUMERS)
        prefetch_maps<FLAT>(maps);
    uint32_t head_group;
    const uint32_t n = divide(blockIdx.y, plan.by_group, &head_group);
    const int blocks = plan.cut.cluster,
              group = __shfl_sync(0xffffffffu, threadIdx.x / 128,
                                  0); /* the shuffle tells the compiler that a warp has one value */
    const bool copies = group == GROUPS;
    const row_shares shares = {plan.tiles * TILE_HEADS, blocks, plan.row_share};
    const block_memory memory =
        memory_of_block<T, WIDTH, SLICES>(plan, layout_of<T, WIDTH, FLAT>(problem, plan.tiles).slot());
    block_task task = {blockIdx.z, n, (int64_t)(blockIdx.x / plan.cut.by_cluster),
                       (int)head_group * plan.tiles * TILE_HEADS};
    if (copies) {
        if constexpr (is_f32<T>) {
            setmaxnreg_dec<24>();
            if (threadIdx.x >= THREADS)
                return;
        }
        copy_block<T, WIDTH, FLAT>(maps, problem, plan, memory, task, shares);
        cluster_arrive_relaxed(blocks);
        if constexpr (is_f32<T>) { /* too few registers to go on */
            cluster_wait(blocks);
            cluster_arrive_relaxed(blocks);
            cluster_wait(blocks);
            return;
        }
    } else {
        if constexpr (is_f32<T>)
            setmaxnreg_inc<240>();
        const group_place w = place_of_thread<T, WIDTH, SLICES>(plan, memory, group);
        outputs_of<T, WIDTH> out;
        attend_block<T, WIDTH, SLICES, FLAT>(problem, plan, memory, task, w, out);
        cluster_arrive_relaxed(blocks);
        gather_rows<T, WIDTH>(plan, task.count, w, out, at_shared<gathered_row<WIDTH>>(memory.rows));
        barrier_sync(CONSUMERS);
        cluster_wait(blocks);
        send_rows<WIDTH>(shares, memory.rows, memory.ring.stages, memory.received);
        mbarrier_wait(memory.received, 0);
        cluster_arrive_relaxed(blocks);
    }
    finish_rows<T, WIDTH>(problem, {task.b, task.n, task.head, task.part, CUT ? &partials : nullptr, plan.pairs},
                          shares, at_shared<gathered_row<WIDTH>>(memory.rows),
                          at_shared<gathered_row<WIDTH>>(memory.ring.stages), copies);
    if (copies) {
        cluster_wait(blocks);
        cluster_arrive_relaxed(blocks);
    }
    cluster_wait(blocks);
    /* compute-sanitizer's racecheck does not come to an end on tpa_wgmma<f32, ..., flat, parts>: float32's producer
     * and its idle warps have exited before the grid_sync in here. memcheck and synccheck pass. */
    if constexpr (CUT)
        merge_left<T>(problem, partials, plan.pairs, is_f32<T> ? CONSUMERS : THREADS);
#endif
}

/* ---- The host's side --------------------------------------------------------------------------------------------- */

/* Makes the tensor map of a view (B, M, R, F), or of coefficients as (B, M, F, 1). A box has the keys of a stage and
 * `box_bytes` of features or heads. */
template <typename T>
static copes_status map_tensor(CUtensorMap *map, const copes_tpa_problem &problem, const copes_view &view,
                               int64_t length, int64_t ranks, int box_bytes)
{
    /* an axis of one element may have a stride that no map may have */
    const auto stride = [&](int of, int64_t extent) { return extent > 1 ? (uint64_t)view.stride[of] * sizeof(T) : 16; };
    const uint64_t lengths[4] = {(uint64_t)length, (uint64_t)ranks, (uint64_t)problem.m, (uint64_t)problem.b};
    const uint64_t strides[3] = {stride(2, ranks), stride(1, problem.m), stride(0, problem.b)};
    const uint32_t box[4] = {(uint32_t)box_bytes / (uint32_t)sizeof(T), 1, BOX_KEYS, 1};
    const CUtensorMapDataType type = is_f32<T>   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                     : is_f16<T> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    return encode_tensormap(map, type, view.data, lengths, strides, box,
                            box_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B);
}

template <typename T> static copes_status map_cache(cache_maps *maps, const copes_tpa_problem &p, bool flat)
{
    if (!flat) {
        COPES_TRY(map_tensor<T>(&maps->ak, p, p.ak, p.h, 1, HEAD_ROW<T>));
        COPES_TRY(map_tensor<T>(&maps->av, p, p.av, p.h, 1, HEAD_ROW<T>));
    }
    COPES_TRY(map_tensor<T>(&maps->bk, p, p.bk, p.d, p.rk, 128));
    return map_tensor<T>(&maps->bv, p, p.bv, p.e, p.rv, 128);
}

typedef void wgmma_kernel(wgmma_plan, copes_tpa_problem, cache_maps, partial_outputs);

template <typename T, bool FLAT>
static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *workspace)
{
    const wgmma_plan &own = tiling_of<wgmma_plan>(plan);
    const partial_outputs partials(plan.cooperative, problem.tpa, own.cut.cache, workspace);
    cache_maps maps = {};
    COPES_TRY(map_cache<T>(&maps, problem.tpa, FLAT));
    COPES_TRY(launch_ex(queue, {plan.cluster, plan.cooperative}, planned<wgmma_kernel>(plan), grid_of(plan),
                        block_of(plan), (size_t)plan.shared, own, problem.tpa, maps, partials));
    return merge_partials<T>(queue, problem.tpa, partials, own.pairs);
}

/* A variant's name has the width of features, the slices of the query, and how coefficients come: in boxes of heads,
 * or flat, as bytes that follow each other. */
inline constexpr variant_word width_names[] = {"64", "128"}, slice_names[] = {"2", "3"},
                              source_names[] = {"boxes", "flat"};

template <typename T, int WIDTH, int SLICES, bool FLAT, bool CUT>
inline constexpr const char *variant = variant_name<name, type_name<T>, width_names[WIDTH / 128],
                                                    slice_names[SLICES - 2], source_names[FLAT], cut_names[CUT]>::text;

template <typename T, int WIDTH, int SLICES, bool FLAT> static bool take_cut(bool in_parts, copes_plan *plan)
{
    if (in_parts)
        return take<wgmma_kernel>(plan, variant<T, WIDTH, SLICES, FLAT, true>, run<T, FLAT>,
                                  tpa_wgmma<T, WIDTH, SLICES, FLAT, true>);
    return take<wgmma_kernel>(plan, variant<T, WIDTH, SLICES, FLAT, false>, run<T, FLAT>,
                              tpa_wgmma<T, WIDTH, SLICES, FLAT, false>);
}

template <typename T, bool FLAT>
static bool take_width(const copes_tpa_problem &problem, bool in_parts, copes_plan *plan)
{
    constexpr int least = slices_of_query<T>(false), most = slices_of_query<T>(true);
    const bool all = problem.lse.data != nullptr;
    if (is_narrow(problem))
        return all ? take_cut<T, 64, most, FLAT>(in_parts, plan) : take_cut<T, 64, least, FLAT>(in_parts, plan);
    return all ? take_cut<T, 128, most, FLAT>(in_parts, plan) : take_cut<T, 128, least, FLAT>(in_parts, plan);
}

template <typename T> bool plan(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan)
{
    const int64_t output[] = {problem.b, problem.n, problem.h, problem.e};
    wgmma_plan own;
    if (const char *why = refuse_problem<T>(device, problem, &own))
        return refuse(plan, name, why);
    own.pairs = !is_f32<T> && in_vectors<T>(problem.o, output, 4);
    own.query = source_of<T>(problem);
    own.keys = key_range(problem);
    const cache_cut &cache = own.cut.cache;
    set_launch(plan,
               dim3((unsigned)(own.cut.cluster * cache.parts), (unsigned)(problem.n * own.head_groups),
                    (unsigned)problem.b),
               LAUNCHED<T>, own.shared);
    set_tiling(plan, own);
    plan->cluster = own.cut.cluster;
    plan->cooperative = device.cooperative && cache.parts > 1;
    plan->workspace = partials_bytes(problem, cache);
    if constexpr (is_f32<T>)
        if (own.flat)
            return take_width<T, true>(problem, cache.parts > 1, plan);
    return take_width<T, false>(problem, cache.parts > 1, plan);
}

template <typename T, int WIDTH, int SLICES, bool FLAT> static void add_cuts(variant_list *list)
{
    list->add(variant<T, WIDTH, SLICES, FLAT, false>);
    list->add(variant<T, WIDTH, SLICES, FLAT, true>);
}

template <typename T, int SLICES> static void add_widths(variant_list *list)
{
    add_cuts<T, 64, SLICES, false>(list);
    add_cuts<T, 128, SLICES, false>(list);
    if constexpr (is_f32<T>) {
        add_cuts<T, 64, SLICES, true>(list);
        add_cuts<T, 128, SLICES, true>(list);
    }
}

template <typename T> void list(variant_list *list)
{
    add_widths<T, slices_of_query<T>(true)>(list);
    if constexpr (slices_of_query<T>(false) != slices_of_query<T>(true))
        add_widths<T, slices_of_query<T>(false)>(list);
}

#define INSTANTIATE(T)                                                                                                 \
    template bool plan<T>(const gpu_device &, const copes_tpa_problem &, copes_plan *);                                \
    template void list<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::tpa::wgmma
