/* tpa_decode on tensor cores. Bound by memory: a key's factors are read once for all heads, and at two tiles of 16
 * heads, 128 features and rank 1 the arithmetic takes 26 clocks of the 35 that its bytes do. A block has a query token
 * and a part of its keys; a few of its warps only copy, stages ahead of the others through a ring in shared memory,
 * since a warp starts a copy in no less than 40 clocks; the others have 16 heads each and take the stages in turn. The
 * blocks of a query token are a cluster where enough clusters fit the device at a time: those merge through each
 * other's shared memory, in one launch. */
#include "backends/cuda/tpa/mma/plan.h"
#include "backends/cuda/tpa/wgmma/wgmma.h"
#include "backends/gpu/tpa/fast.h"

namespace COPES_GPU
{

/* A block's shared memory: barriers, the states of rows, the query, the ring of stages. */
struct block_memory {
    uint32_t full, empty, queries, stages;
};

/* Along x, blocks are (query tokens, parts, blocks of a cluster); along y, groups of heads. Before 8.0 there is no kernel to
 * ask. */
[[maybe_unused]] DEVICE block_task task_of_block(const copes_tpa_problem &problem, const mma_plan &plan)
{
    uint32_t place, n;
    const uint32_t token = divide(blockIdx.x, plan.cut.by_place, &place), b = divide(token, plan.cut.by_n, &n);
    block_task task = {b, n, (int64_t)(place / plan.cut.by_cluster), (int)blockIdx.y * plan.head_tiles * WARP_HEADS};
    take_keys<UNIT>(task, key_range(problem), plan.cut, place);
    return task;
}

/* Copies every copiers-th stage; one is filled again once its readers have left it. */
template <typename T, int WIDTH>
DEVICE void copy_cache(const copes_tpa_problem &problem, const mma_plan &plan, const block_memory &memory,
                       const block_task &task, int copier)
{
    constexpr int size = keys_of_stage(WIDTH * (int)sizeof(T));
    const int slots = plan.ring.stages;
    cache_copier<T, WIDTH> source(problem, task.b, task.begin + copier * size);
    uint32_t parity = 1; /* of the phase before the first: every slot is empty */
    for (int step = copier; step * size < task.count; step += plan.copiers) {
        const int slot = step & (slots - 1), left = task.count - step * size;
        if (step >= slots)
            mbarrier_wait(memory.empty + slot * 8, parity);
        source.fill(problem, plan.ring, memory.stages + slot * plan.ring.bytes, left < size ? left : size,
                    plan.copiers);
        cp_async_mbarrier_arrive(memory.full + slot * 8);
        if (slot + plan.copiers >= slots)
            parity ^= 1;
    }
}

/* A warp's outputs over every readers-th stage, from key_group on. */
template <typename T, int WIDTH>
DEVICE void attend_cache(const copes_tpa_problem &problem, const mma_plan &plan, const block_memory &memory, int keys,
                         int key_group, const warp_place &w, const warp_query<T, WIDTH> &q, warp_outputs<T, WIDTH> &out)
{
    constexpr int size = keys_of_stage(WIDTH * (int)sizeof(T));
    const int slots = plan.ring.stages;
    uint32_t parity = 0;
    for (int step = key_group; step * size < keys; step += plan.readers) {
        const int slot = step & (slots - 1), left = keys - step * size;
        mbarrier_wait(memory.full + slot * 8, parity);
        attend<T, WIDTH>(problem, plan.ring, memory.stages + slot * plan.ring.bytes, left < size ? left : size, w, q,
                         out);
        mbarrier_arrive(memory.empty +
                        slot * 8); /* every lane, as racecheck does not see a warp meet before one does */
        if (slot + plan.readers >= slots)
            parity ^= 1;
    }
}

/* Where a warp that has heads stands among the block's: head tiles are innermost. Its rows are those from `first` on of
 * the block's. */
struct reader_place {
    int key_group, head_tile, first;
    bool reads;

    __device__ __forceinline__ reader_place(const mma_plan &plan, uint32_t warp)
        : key_group((int)(warp / plan.by_tile)), head_tile(warp - key_group * plan.head_tiles),
          first(head_tile * WARP_HEADS), reads(key_group < plan.readers)
    {
    }
};

/* The work of a warp that has heads. */
template <typename T, int WIDTH>
DEVICE void attend_block(const copes_tpa_problem &problem, const mma_plan &plan, const block_memory &memory,
                         const block_task &task, int warp, warp_outputs<T, WIDTH> &out)
{
    const reader_place at(plan, warp);
    const warp_place w = place_of_warp(task.head + at.first, (int)problem.h, (int)problem.e);
    warp_query<T, WIDTH> q;
    const query_team team = {at.key_group, plan.key_groups, plan.head_tiles * plan.key_groups * 32,
                             reinterpret_cast<float *>(dynamic_shared() + BARRIER_BYTES) + at.first,
                             plan.head_tiles * WARP_HEADS};
    q.form(problem, {task.b, task.n, task.head + at.first},
           memory.queries + at.head_tile * query_bytes(WIDTH, plan.query_parts), team);
    if (!at.reads)
        return;
    out.clear();
    attend_cache<T, WIDTH>(problem, plan, memory, task.count, at.key_group, w, q, out);
}

/* Outputs take the stages' place. */
template <typename T, int WIDTH> DEVICE block_outputs<T, WIDTH> outputs_of_block(const mma_plan &plan)
{
    char *states = dynamic_shared() + BARRIER_BYTES;
    return {plan.readers, plan.head_tiles, reinterpret_cast<row_state *>(states),
            reinterpret_cast<row_state *>(states + STATE_BYTES), reinterpret_cast<float4 *>(states + 2 * STATE_BYTES)};
}

/* Merges what the block's warps have gathered, and then the blocks of its cluster. */
template <typename T, int WIDTH>
DEVICE void finish(const copes_tpa_problem &problem, const mma_plan &plan, const block_task &task, int warp,
                   warp_outputs<T, WIDTH> &out, const partial_outputs *partials)
{
    const block_outputs<T, WIDTH> block = outputs_of_block<T, WIDTH>(plan);
    const reader_place at(plan, warp);
    if (at.reads)
        store_states(block, at.key_group, at.first, out);
    __syncthreads();
    if (at.reads)
        store_outputs(block, at.key_group, at.head_tile, out);
    __syncthreads();
    __syncthreads(); /* once more for racecheck, which else calls it a race that warps which only copied read here */
    merge_groups(block);
    const output_place to = {task.b, task.n, task.head, task.part, partials, plan.pairs};
    cluster_sync(plan.cut.cluster);
    finish_outputs(problem, plan.cut, to, block);
    cluster_arrive_relaxed(plan.cut.cluster);
    cluster_wait(plan.cut.cluster); /* none ends while another reads its memory */
}

/* CUT: the cache is cut into parts. Merging would cost the others registers, and time in every call. */
template <typename T, int WIDTH, bool CUT>
__global__ void __launch_bounds__(most_warps(WIDTH) * 32, 1)
    tpa_mma(GPU_PARAMETER copes_tpa_problem problem, GPU_PARAMETER mma_plan plan,
            GPU_PARAMETER partial_outputs partials)
{
#if __CUDA_ARCH__ >= 800
    const uint32_t base = shared_address(dynamic_shared()), queries = base + BARRIER_BYTES + 2 * STATE_BYTES;
    const block_memory memory = {base, base + MOST_STAGES * 8, queries,
                                 queries + plan.head_tiles * query_bytes(WIDTH, plan.query_parts)};
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

/* ---- The host's side
 * ---------------------------------------------------------------------------------------------- */

/* The cheapest plan over all numbers of blocks that the heads can be shared out among, if there is one. */
template <typename T> static bool plan_of(const gpu_queue &queue, const copes_tpa_problem &problem, mma_plan *plan)
{
    double least = INFINITY;
    const int tiles = head_tiles_of(problem);
    for (int groups = 1; groups <= tiles; groups++) {
        mma_plan next = {};
        if (tiles % groups != 0 || !plan_block<T>(queue, problem, groups, &next))
            continue;
        const double cost = plan_blocks<T>(queue, problem, &next);
        if (cost < least)
            least = cost, *plan = next;
    }
    return least < INFINITY;
}

/* Is a tensor of coefficients one piece in memory for each batch entry? */
template <typename T> static bool in_one_piece(const copes_view &view, const copes_tpa_problem &problem, int64_t rank)
{
    return (rank == 1 || view.stride[3] == 1) && (problem.h == 1 || view.stride[2] == rank) &&
           (problem.m == 1 || view.stride[1] == problem.h * rank) &&
           (problem.b == 1 || view.stride[0] % vector_length<T> == 0);
}

/* Are its features rows of whole vectors, wherever it begins? */
template <typename T>
static bool in_rows(const copes_view &view, const copes_tpa_problem &problem, int64_t rank, int64_t width)
{
    const int64_t lengths[4] = {problem.b, problem.m, rank, width};
    return width % vector_length<T> == 0 && in_vectors<T>(aligned(view), lengths, 4);
}

/* Shapes and strides that tensor cores take, here or in tpa_wgmma.cu. */
template <typename T> static bool is_fast(const gpu_queue &queue, const copes_tpa_problem &problem)
{
    const copes_tpa_problem &p = problem;
    const int64_t heads = (int)MOST_WARPS * (int)WARP_HEADS, features = 256, ranks = 64,
                  tokens = INT32_MAX / MOST_CLUSTER;
    const bool sizes = p.h >= 1 && p.h <= heads && p.d <= features && p.e >= 1 && p.e <= features && p.rk <= ranks &&
                       p.rv <= ranks && p.rq <= 4096 && p.m >= 1 && p.m <= INT32_MAX / 2 && p.b >= 1 && p.n >= 1 &&
                       p.b <= tokens / p.n;
    const bool ordinary = p.score_exponent == 0 && p.value_exponent == 0; /* scales */
    mma_plan plan;
    return queue.architecture >= 80 && sizes && ordinary && p.bq.stride[3] == 1 && in_rows<T>(p.bk, p, p.rk, p.d) &&
           in_rows<T>(p.bv, p, p.rv, p.e) && in_one_piece<T>(p.ak, p, p.rk) && in_one_piece<T>(p.av, p, p.rv) &&
           plan_block<T>(queue, p, head_tiles_of(p), &plan);
}

template <typename T> static bool is_aligned(const copes_tpa_problem &problem)
{
    const auto address = [](const copes_view &view) { return reinterpret_cast<uintptr_t>(view.data); };
    const uintptr_t cache = address(problem.ak) | address(problem.bk) | address(problem.av) | address(problem.bv);
    return cache % 16 == 0 && (address(problem.aq) | address(problem.bq)) % sizeof(T) == 0;
}

template <typename T> bool fast_tpa_workspace(const gpu_queue &queue, const copes_tpa_problem &problem, int64_t *bytes)
{
    if (!is_fast<T>(queue, problem))
        return false;
    if (wgmma_tpa_workspace<T>(queue, problem, bytes))
        return true;
    mma_plan plan;
    plan_of<T>(queue, problem, &plan);
    *bytes = partials_bytes(problem, plan.cut.cache);
    return true;
}

template <typename T, int WIDTH>
static copes_status launch_mma(const gpu_queue &queue, const copes_tpa_problem &problem, const mma_plan &plan,
                               const partial_outputs &partials)
{
    const int64_t tokens = problem.b * problem.n;
    const dim3 blocks((unsigned)(plan.cut.cluster * plan.cut.cache.parts * tokens), (unsigned)plan.head_groups);
    const int warps = plan.head_tiles * plan.key_groups + plan.copiers;
    const auto kernel = partials.sums != nullptr ? tpa_mma<T, WIDTH, true> : tpa_mma<T, WIDTH, false>;
    return launch_ex(queue, {plan.cut.cluster, partials.merged}, kernel, blocks, dim3((unsigned)warps * 32),
                     (size_t)plan.shared, problem, plan, partials);
}

template <typename T>
static copes_status run_mma(const gpu_queue &queue, const copes_tpa_problem &problem, void *workspace)
{
    const int64_t output[] = {problem.b, problem.n, problem.h, problem.e};
    mma_plan plan;
    plan_of<T>(queue, problem, &plan);
    plan.pairs = !is_single<T> && in_vectors<T>(problem.o, output, 4);
    const partial_outputs partials(queue.cooperative, problem, plan.cut.cache, workspace);
    switch (plan.width) {
    case 64: COPES_TRY((launch_mma<T, 64>(queue, problem, plan, partials))); break;
    case 128: COPES_TRY((launch_mma<T, 128>(queue, problem, plan, partials))); break;
    default: COPES_TRY((launch_mma<T, 256>(queue, problem, plan, partials))); break;
    }
    return merge_partials<T>(queue, problem, partials, plan.pairs);
}

template <typename T>
bool run_fast_tpa(const gpu_queue &queue, const copes_tpa_problem &problem, void *workspace, copes_status *status)
{
    if (!is_aligned<T>(problem) || !is_fast<T>(queue, problem))
        return false;
    if (!run_wgmma_tpa<T>(queue, problem, workspace, status))
        *status = run_mma<T>(queue, problem, workspace);
    return true;
}

FAST_TPA_INSTANTIATE(f32)
FAST_TPA_INSTANTIATE(f16)
FAST_TPA_INSTANTIATE(bf16)

} // namespace COPES_GPU
