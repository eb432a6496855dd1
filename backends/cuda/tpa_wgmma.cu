/* tpa_decode on Hopper's tensor cores, for 16-bit storage and keys and values of rank 1. A block has a query token, 32
 * or 64 of its heads and a part of its keys. One of its warps asks for the cache, stages ahead of two warpgroups: of the
 * same heads, and they take the stages in turn, or of 32 heads each. The blocks that share out a query token's keys are
 * a cluster, and merge what they have gathered in one launch. */
#include "backends/cuda/tensor_map.h"
#include "backends/cuda/tpa_wgmma.h"
#include "backends/cuda/tpa_wgmma_plan.h"
#include "backends/cuda/tpa_wgmma_rows.h"

namespace COPES_GPU
{

#if COPES_SM90A

/* A block's shared memory. */
struct block_memory {
    box_ring ring;
    uint32_t received; /* its barrier: the block's share of the rows has come, to the place of the stages */
    uint32_t rows, bq, query;
};

template <int WIDTH, int PARTS> DEVICE block_memory memory_of_block(const wgmma_plan &plan)
{
    typedef block_layout<WIDTH, PARTS> layout;
    const uint32_t base = shared_address(dynamic_shared()), slots = MOST_SLOTS * 8;
    const uint32_t query = (base + layout::before(plan.tiles, plan.query.ranks) + 1023) & ~1023u;
    const box_ring ring = {base, base + slots, base + 2 * slots, query + plan.tiles * layout::QUERY, plan.slots};
    return {ring, ring.partial + 8, base + layout::ROWS, base + layout::bq(plan.tiles), query};
}

/* The work of the warp that asks for the cache. */
template <int WIDTH>
DEVICE void copy_block(const cache_maps &maps, const copes_tpa_problem &problem, const wgmma_plan &plan,
                       const block_memory &memory, block_task &task, const row_shares &shares)
{
    if (threadIdx.x % 32 == 0) {
        for (int slot = 0; slot < plan.slots; slot++) {
            open_mailbox(memory.ring.full + slot * 8, 32);
            open_mailbox(memory.ring.empty + slot * 8, plan.tiles * 4);
        }
        open_mailbox(memory.ring.partial, 1);
        open_mailbox(memory.received, 1);
        expect_mail(memory.received,
                    (shares.blocks - 1) * shares.of((int)cluster_rank()) * (uint32_t)sizeof(gathered_row<WIDTH>));
        fence_shared();
    }
    __syncwarp();
    pass_some(THREADS);
    take_keys<BOX_KEYS>(task, problem, plan.cut, blockIdx.x);
    copy_boxes<WIDTH>(maps, memory.ring, task, plan.tiles);
}

/* The work of a warpgroup: its heads over some of the block's stages. */
template <typename T, int WIDTH, int PARTS>
DEVICE void attend_block(const copes_tpa_problem &problem, const wgmma_plan &plan, const block_memory &memory,
                         block_task &task, int group, group_outputs<T, WIDTH> &out)
{
    const lane_place lane = place_of_lane();
    const bool alike = plan.tiles == 1;
    const group_place w = {lane.lane, lane.g, lane.t, (int)threadIdx.x / 32 % 4, alike ? 0 : group};
    const int b = (int)task.b, n = (int)task.n;
    copy_features<WIDTH>(plan.query, b, n, memory.bq, READERS);
    const query_ranks ranks(plan.query, b, n, task.head + w.head(), w.t, 0);
    take_keys<BOX_KEYS>(task, problem, plan.cut, blockIdx.x);
    out.clear();
    end_copies();
    wait_for_copies<0>();
    synchronize_some(THREADS);
    const uint32_t query = memory.query + w.tile * block_layout<WIDTH, PARTS>::QUERY;
    const query_former<T, WIDTH, PARTS> former = {plan.query, b, n, w, ranks, memory.bq, query};
    const float unit = alike ? former.run(group, group + 1) : former.run(0, 2);
    fence_shared();
    synchronize_some(READERS);
    const int turns = alike ? GROUPS : 1, first = alike ? group : 0;
    ring_place at = {first, 0};
    for (int key = first * BOX_KEYS; key < task.count; key += turns * BOX_KEYS) {
        const int left = task.count - key;
        const uint32_t stage = memory.ring.stages + at.slot * stage_layout<WIDTH>::bytes(plan.tiles);
        await(memory.ring.full + at.slot * 8, at.parity);
        attend_stage<T, WIDTH, PARTS>(stage, plan.tiles, left < BOX_KEYS ? left : BOX_KEYS, w, query, unit, out);
        __syncwarp();
        if (w.lane == 0)
            arrive(memory.ring.empty + at.slot * 8);
        at.advance(turns, plan.slots);
    }
}

/* Leaves the block's rows in shared memory, each merged from its groups' parts of it. */
template <typename T, int WIDTH>
DEVICE void gather_rows(const wgmma_plan &plan, int group, const group_outputs<T, WIDTH> &out,
                        gathered_row<WIDTH> *rows)
{
    const lane_place lane = place_of_lane();
    const bool alike = plan.tiles == 1;
    gathered_row<WIDTH> &row = rows[(alike ? 0 : group * TILE_HEADS) + threadIdx.x / 32 % 4 * 8 + lane.g];
    row_part<WIDTH> part(out);
    if (alike) {
        if (group > 0)
            part.store(row, lane.t);
        synchronize_some(READERS);
        if (group > 0)
            return;
        part.add(row, lane.t);
        __syncwarp(); /* all its lanes have read the row's state */
    }
    part.store(row, lane.t);
    fence_shared();
}

#endif

template <typename T, int WIDTH, int PARTS>
__global__ void __launch_bounds__(THREADS, 1)
    tpa_wgmma(GPU_PARAMETER wgmma_plan plan, GPU_PARAMETER copes_tpa_problem problem, GPU_PARAMETER cache_maps maps,
              float *partials)
{
#if COPES_SM90A
    uint32_t head_group;
    const uint32_t n = divide(blockIdx.y, plan.by_group, &head_group);
    const int blocks = plan.cut.cluster,
              group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); /* known to be a warp's */
    const row_shares shares = {plan.tiles * TILE_HEADS, blocks, plan.row_share};
    const block_memory memory = memory_of_block<WIDTH, PARTS>(plan);
    block_task task = {blockIdx.z, n, (int64_t)(blockIdx.x / plan.cut.by_cluster),
                       (int)head_group * plan.tiles * TILE_HEADS};
    if (group == GROUPS) {
        copy_block<WIDTH>(maps, problem, plan, memory, task, shares);
        arrive_at_cluster(blocks);
        await_cluster(blocks);
        arrive_at_cluster(blocks);
    } else {
        gathered_row<WIDTH> *const rows = at_shared<gathered_row<WIDTH>>(memory.rows);
        group_outputs<T, WIDTH> out;
        attend_block<T, WIDTH, PARTS>(problem, plan, memory, task, group, out);
        arrive_at_cluster(blocks);
        gather_rows<T, WIDTH>(plan, group, out, rows);
        synchronize_some(READERS);
        await_cluster(blocks);
        send_rows<WIDTH>(shares, memory.rows, memory.ring.stages, memory.received);
        await(memory.received, 0);
        arrive_at_cluster(blocks);
        finish_rows<T, WIDTH>(problem, plan.cut.cache, {task.b, task.n, task.head, task.part, partials, plan.pairs},
                              shares, rows, at_shared<gathered_row<WIDTH>>(memory.ring.stages), READERS);
    }
    await_cluster(blocks);
#endif
}

/* ---- The host's side
 * ---------------------------------------------------------------------------------------------- */

/* Of (B, M, 1, F) or (B, M, F, 1) the features or heads F in boxes of so many bytes by the keys of a stage. */
template <typename T>
static copes_status map_tensor(CUtensorMap *map, const copes_tpa_problem &problem, const copes_view &view,
                               int64_t length, int box_bytes)
{
    /* an axis of 1 has any stride, which need not be one that maps may have */
    const auto stride = [&](int of, int64_t extent) { return extent > 1 ? (uint64_t)view.stride[of] * sizeof(T) : 16; };
    const uint64_t lengths[3] = {(uint64_t)length, (uint64_t)problem.m, (uint64_t)problem.b};
    const uint64_t strides[2] = {stride(1, problem.m), stride(0, problem.b)};
    const uint32_t box[3] = {(uint32_t)box_bytes / (uint32_t)sizeof(T), BOX_KEYS, 1};
    return encode_map(map, is_half<T> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, view.data,
                      lengths, strides, box, box_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B);
}

template <typename T> static copes_status map_cache(cache_maps *maps, const copes_tpa_problem &p)
{
    COPES_TRY(map_tensor<T>(&maps->ak, p, p.ak, p.h, TILE_HEADS * 2));
    COPES_TRY(map_tensor<T>(&maps->av, p, p.av, p.h, TILE_HEADS * 2));
    COPES_TRY(map_tensor<T>(&maps->bk, p, p.bk, p.d, 128));
    return map_tensor<T>(&maps->bv, p, p.bv, p.e, 128);
}

template <typename T> bool wgmma_tpa_workspace(const queue &to, const copes_tpa_problem &problem, size_t *bytes)
{
    wgmma_plan plan;
    if (!takes_boxes<T>(to, problem, &plan))
        return false;
    *bytes = partials_bytes(problem, plan.cut.cache);
    return true;
}

template <typename T, int WIDTH, int PARTS>
static copes_status launch_wgmma(const queue &to, const copes_tpa_problem &problem, const wgmma_plan &plan,
                                 const cache_maps &maps, float *partials)
{
    const dim3 blocks((unsigned)(plan.cut.cluster * plan.cut.cache.parts), (unsigned)(problem.n * plan.head_groups),
                      (unsigned)problem.b);
    return launch_clusters(to, tpa_wgmma<T, WIDTH, PARTS>, blocks, plan.cut.cluster, dim3(THREADS), (size_t)plan.shared,
                           plan, problem, maps, partials);
}

template <typename T>
static copes_status run_plan(const queue &to, const copes_tpa_problem &problem, const wgmma_plan &plan, void *workspace)
{
    constexpr int least = parts_of_query<T>(false), most = parts_of_query<T>(true);
    const bool narrow = is_narrow(problem), all = problem.lse.data != nullptr;
    const auto run = narrow ? (all ? launch_wgmma<T, 64, most> : launch_wgmma<T, 64, least>)
                            : (all ? launch_wgmma<T, 128, most> : launch_wgmma<T, 128, least>);
    float *partials = place_of_partials(plan.cut, workspace);
    cache_maps maps;
    COPES_TRY(map_cache<T>(&maps, problem));
    COPES_TRY(run(to, problem, plan, maps, partials));
    return partials == nullptr ? COPES_OK : merge_partials<T>(to, problem, plan.cut.cache, partials);
}

template <typename T>
bool run_wgmma_tpa(const queue &to, const copes_tpa_problem &problem, void *workspace, copes_status *status)
{
    const int64_t output[] = {problem.b, problem.n, problem.h, problem.e};
    wgmma_plan plan;
    if (!takes_boxes<T>(to, problem, &plan))
        return false;
    plan.pairs = !is_single<T> && in_vectors<T>(problem.o, output, 4);
    plan.query = source_of<T>(problem);
    *status = run_plan<T>(to, problem, plan, workspace);
    return true;
}

#define INSTANTIATE(T)                                                                                                 \
    template bool wgmma_tpa_workspace<T>(const queue &, const copes_tpa_problem &, size_t *);                          \
    template bool run_wgmma_tpa<T>(const queue &, const copes_tpa_problem &, void *, copes_status *);
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU
