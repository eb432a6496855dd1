/* tpa_decode on Hopper's tensor cores, for keys and values of rank 1, and in float32 of any. A block has a query token, 32
 * or 64 of its heads and a part of its keys. One of its warps asks for the cache, stages ahead of two warpgroups: of the
 * same heads, and they take the stages in turn, or of 32 heads each. The blocks that share out a query token's keys are
 * a cluster, and merge what they have gathered in one launch. */
#include "backends/cuda/ptx/tensor_map.h"
#include "backends/cuda/tpa/float32/rows.h"
#include "backends/cuda/tpa/methods.h"
#include "backends/cuda/tpa/wgmma/plan.h"
#include "backends/cuda/tpa/wgmma/rows.h"

#include <type_traits>

namespace COPES_GPU::tpa::wgmma
{

#if COPES_SM90A

/* What differs between storage of 16 bits and float32. */
template <typename T, int WIDTH, int PARTS>
using former_of = std::conditional_t<is_single<T>, float32::query_former<WIDTH, PARTS>, query_former<T, WIDTH, PARTS>>;
template <typename T, int WIDTH>
using outputs_of = std::conditional_t<is_single<T>, float32::group_outputs<WIDTH>, group_outputs<T, WIDTH>>;
template <typename T, int WIDTH>
using row_part_of = std::conditional_t<is_single<T>, float32::row_part<WIDTH>, row_part<T, WIDTH>>;

/* A block's shared memory. */
struct block_memory {
    box_ring ring;
    uint32_t received; /* its barrier: the block's share of the rows has come, to the place of the stages */
    uint32_t rows, bq, query, exchange, weights;
};

template <typename T, int WIDTH, int PARTS> DEVICE block_memory memory_of_block(const wgmma_plan &plan, int slot_bytes)
{
    const block_layout<T, WIDTH, PARTS> layout = {plan.tiles, plan.query.ranks};
    const uint32_t base = shared_address(dynamic_shared()), slots = MOST_SLOTS * 8, exchange = base + layout.BARRIERS;
    const uint32_t query = (base + layout.fixed() + 1023) & ~1023u, weights = query + plan.tiles * layout.QUERY;
    const box_ring ring = {base, base + slots, base + 2 * slots, weights + layout.weights(), plan.slots, slot_bytes};
    const uint32_t rows = is_single<T> ? query : exchange, bq = is_single<T> ? weights : rows + layout.rows_bytes();
    return {ring, ring.partial + 8, rows, bq, query, exchange, weights};
}

/* Where a block's keys come from, or its values. */
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

/* The work of the warp that asks for the cache. */
template <typename T, int WIDTH, bool FLAT>
DEVICE void copy_block(const cache_maps &maps, const copes_tpa_problem &problem, const wgmma_plan &plan,
                       const block_memory &memory, block_task &task, const row_shares &shares)
{
    if (threadIdx.x % 32 == 0) {
#pragma unroll 1 /* short code comes sooner */
        for (int slot = 0; slot < plan.slots; slot++) {
            mbarrier_init_cluster(memory.ring.full + slot * 8, 32);
            mbarrier_init_cluster(memory.ring.empty + slot * 8, plan.tiles * 4);
        }
        mbarrier_init_cluster(memory.ring.partial, 1);
        mbarrier_init_cluster(memory.received, 1);
        mbarrier_arrive_expect_tx(memory.received, (shares.blocks - 1) * shares.of((int)cluster_rank()) *
                                                       (uint32_t)sizeof(gathered_row<WIDTH>));
        fence_proxy_async();
    }
    __syncwarp();
    barrier_arrive(THREADS);
    take_keys<BOX_KEYS>(task, plan.keys, plan.cut, blockIdx.x);
    const box_producer<T, WIDTH, FLAT> producer = {memory.ring, task, layout_of<T, WIDTH, FLAT>(problem, plan.tiles),
                                                   source_of_half<FLAT>(&maps.bk, &maps.ak, problem.ak, problem.rk,
                                                                        problem, task),
                                                   source_of_half<FLAT>(&maps.bv, &maps.av, problem.av, problem.rv,
                                                                        problem, task)};
    producer.run();
}

/* A thread's place in its warpgroup, whose heads are those of its tile. */
template <typename T, int WIDTH, int PARTS>
DEVICE group_place place_of_thread(const wgmma_plan &plan, const block_memory &memory, int group)
{
    typedef block_layout<T, WIDTH, PARTS> layout;
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

/* The work of a warpgroup: its heads over some of the block's stages. */
template <typename T, int WIDTH, int PARTS, bool FLAT>
DEVICE void attend_block(const copes_tpa_problem &problem, const wgmma_plan &plan, const block_memory &memory,
                         block_task &task, const group_place &w, outputs_of<T, WIDTH> &out)
{
    constexpr int slots = SLOTS_OF_STAGE<T>;
    const bool alike = plan.tiles == 1;
    const uint32_t query = memory.query + w.tile * block_layout<T, WIDTH, PARTS>::QUERY;
    const former_of<T, WIDTH, PARTS> former(plan.query, (int)task.b, (int)task.n, task.head, plan.tiles, w, memory.bq,
                                            query);
    take_keys<BOX_KEYS>(task, plan.keys, plan.cut, blockIdx.x);
    out.clear();
    cp_async_commit();
    cp_async_wait<0>();
    barrier_sync(THREADS);
    const float unit = former.run(alike);
    fence_proxy_async();
    barrier_sync(CONSUMERS);
    const int rotations = alike ? GROUPS : 1, first = alike ? w.group : 0;
    slot_reader reader = {memory.ring, {first * slots, 0}};
    for (int key = first * BOX_KEYS; key < task.count; key += rotations * BOX_KEYS) {
        const int left = task.count - key, count = left < BOX_KEYS ? left : BOX_KEYS;
        if constexpr (is_single<T>) {
            const float32::half_coefficients<FLAT> coefficients(layout_of<T, WIDTH, FLAT>(problem, plan.tiles).heads(),
                                                                task.head, problem);
            float32::attend_halves<WIDTH>(reader, rotations * slots, count, w, query, coefficients, problem.weight_unit,
                                          out);
        } else {
            attend_stage<T, WIDTH, PARTS>(reader, rotations, plan.tiles, count, w, query, unit, problem.weight_unit,
                                          out);
        }
    }
}

/* Leaves the block's rows in shared memory, each merged from its groups' parts of it. The first group has all of so few keys
 * that they are one stage. */
template <typename T, int WIDTH>
DEVICE void gather_rows(const wgmma_plan &plan, int keys, const group_place &w, outputs_of<T, WIDTH> &out,
                        gathered_row<WIDTH> *rows)
{
    const bool alike = plan.tiles == 1, alone = alike && keys <= BOX_KEYS;
    if (alone && w.group > 0)
        return;
    gathered_row<WIDTH> *const own = rows + w.tile * TILE_HEADS;
    row_part_of<T, WIDTH> part(w, out);
    if (is_single<T> && !alone)
        barrier_sync(CONSUMERS); /* neither needs the query any more */
    if (alike && !alone) {
        if (w.group > 0)
            part.store(own);
        barrier_sync(CONSUMERS);
        if (w.group > 0)
            return;
        part.add(own);
    }
    part.store(own);
    fence_proxy_async();
}

#endif

/* CUT: the cache is cut into parts. Merging would cost the others registers, and time in every call. */
template <typename T, int WIDTH, int PARTS, bool FLAT, bool CUT>
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
              group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); /* known to be a warp's */
    const bool copies = group == GROUPS;
    const row_shares shares = {plan.tiles * TILE_HEADS, blocks, plan.row_share};
    const block_memory memory =
        memory_of_block<T, WIDTH, PARTS>(plan, layout_of<T, WIDTH, FLAT>(problem, plan.tiles).slot());
    block_task task = {blockIdx.z, n, (int64_t)(blockIdx.x / plan.cut.by_cluster),
                       (int)head_group * plan.tiles * TILE_HEADS};
    if (copies) {
        if constexpr (is_single<T>) {
            setmaxnreg_dec<24>();
            if (threadIdx.x >= THREADS)
                return;
        }
        copy_block<T, WIDTH, FLAT>(maps, problem, plan, memory, task, shares);
        cluster_arrive_relaxed(blocks);
        if constexpr (is_single<T>) { /* has too few registers to go on */
            cluster_wait(blocks);
            cluster_arrive_relaxed(blocks);
            cluster_wait(blocks);
            return;
        }
    } else {
        if constexpr (is_single<T>)
            setmaxnreg_inc<240>();
        const group_place w = place_of_thread<T, WIDTH, PARTS>(plan, memory, group);
        outputs_of<T, WIDTH> out;
        attend_block<T, WIDTH, PARTS, FLAT>(problem, plan, memory, task, w, out);
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
    if constexpr (CUT)
        merge_left<T>(problem, partials, plan.pairs, is_single<T> ? CONSUMERS : THREADS);
#endif
}

/* ---- The host's side
 * ---------------------------------------------------------------------------------------------- */

/* Of (B, M, R, F), or coefficients (B, M, F, 1), the features or heads F in boxes of so many bytes by the keys of a stage. */
template <typename T>
static copes_status map_tensor(CUtensorMap *map, const copes_tpa_problem &problem, const copes_view &view,
                               int64_t length, int64_t ranks, int box_bytes)
{
    /* an axis of 1 has any stride, which need not be one that maps may have */
    const auto stride = [&](int of, int64_t extent) { return extent > 1 ? (uint64_t)view.stride[of] * sizeof(T) : 16; };
    const uint64_t lengths[4] = {(uint64_t)length, (uint64_t)ranks, (uint64_t)problem.m, (uint64_t)problem.b};
    const uint64_t strides[3] = {stride(2, ranks), stride(1, problem.m), stride(0, problem.b)};
    const uint32_t box[4] = {(uint32_t)box_bytes / (uint32_t)sizeof(T), 1, BOX_KEYS, 1};
    const CUtensorMapDataType type = is_single<T> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                     : is_half<T> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
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

template <typename T, int WIDTH, int PARTS, bool FLAT, bool CUT>
static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *workspace)
{
    const wgmma_plan &own = tiling_of<wgmma_plan>(plan);
    const partial_outputs partials(plan.cooperative, problem.tpa, own.cut.cache, workspace);
    cache_maps maps = {};
    COPES_TRY(map_cache<T>(&maps, problem.tpa, FLAT));
    COPES_TRY(launch_ex(queue, {plan.cluster, plan.cooperative}, tpa_wgmma<T, WIDTH, PARTS, FLAT, CUT>, grid_of(plan),
                        block_of(plan), (size_t)plan.shared, own, problem.tpa, maps, partials));
    return merge_partials<T>(queue, problem.tpa, partials, own.pairs);
}

/* By the width of features, the parts that a query's numbers are split in, and how coefficients come: in boxes of heads, or as
 * bytes that follow each other. */
inline constexpr variant_word width_names[] = {"64", "128"}, part_names[] = {"2", "3"},
                              source_names[] = {"boxes", "flat"};

template <typename T, int WIDTH, int PARTS, bool FLAT, bool CUT>
inline constexpr const char *variant = variant_name<name, type_name<T>, width_names[WIDTH / 128], part_names[PARTS - 2],
                                                    source_names[FLAT], cut_names[CUT]>::text;

template <typename T, int WIDTH, int PARTS, bool FLAT> static bool take_cut(bool in_parts, copes_plan *plan)
{
    return in_parts ? take(plan, variant<T, WIDTH, PARTS, FLAT, true>, run<T, WIDTH, PARTS, FLAT, true>)
                    : take(plan, variant<T, WIDTH, PARTS, FLAT, false>, run<T, WIDTH, PARTS, FLAT, false>);
}

template <typename T, bool FLAT>
static bool take_width(const copes_tpa_problem &problem, bool in_parts, copes_plan *plan)
{
    constexpr int least = parts_of_query<T>(false), most = parts_of_query<T>(true);
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
    own.pairs = !is_single<T> && in_vectors<T>(problem.o, output, 4);
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
    if constexpr (is_single<T>)
        if (own.flat)
            return take_width<T, true>(problem, cache.parts > 1, plan);
    return take_width<T, false>(problem, cache.parts > 1, plan);
}

template <typename T, int WIDTH, int PARTS, bool FLAT> static void add_cuts(variant_list *list)
{
    list->add(variant<T, WIDTH, PARTS, FLAT, false>);
    list->add(variant<T, WIDTH, PARTS, FLAT, true>);
}

template <typename T, int PARTS> static void add_widths(variant_list *list)
{
    add_cuts<T, 64, PARTS, false>(list);
    add_cuts<T, 128, PARTS, false>(list);
    if constexpr (is_single<T>) {
        add_cuts<T, 64, PARTS, true>(list);
        add_cuts<T, 128, PARTS, true>(list);
    }
}

template <typename T> void list(variant_list *list)
{
    add_widths<T, parts_of_query<T>(true)>(list);
    if constexpr (parts_of_query<T>(false) != parts_of_query<T>(true))
        add_widths<T, parts_of_query<T>(false)>(list);
}

#define INSTANTIATE(T)                                                                                                 \
    template bool plan<T>(const gpu_device &, const copes_tpa_problem &, copes_plan *);                                \
    template void list<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::tpa::wgmma
