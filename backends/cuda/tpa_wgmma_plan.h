/* How the host plans tpa_decode for Hopper's tensor cores: what a block has, and the cut of a query token's keys. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_PLAN_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_PLAN_H

#include "backends/cuda/tpa_parts.h"
#include "backends/cuda/tpa_wgmma_box.h"

namespace COPES_GPU
{

inline constexpr int GROUPS = 2, READERS = GROUPS * 128, THREADS = READERS + 32;
inline constexpr int MOST_RANKS = 64, MOST_ALONG_GRID = 65535; /* blocks, along y or z */

struct wgmma_plan {
    query_source query; /* first, as a block reads it first */
    cluster_cut cut;
    int head_groups; /* blocks, or clusters of them, that a query token's heads are shared out among */
    divider by_group;
    int tiles;     /* of 32 heads, of a block: one for both warpgroups, or one each */
    int row_share; /* rows that a block of a cluster finishes */
    int slots;     /* of the ring */
    int shared;    /* bytes */
    bool pairs;    /* neighbours of the output are written as one word */
};

/* A block's shared memory: barriers, rows, bq; then, from a multiple of 1024 on, the query and the ring of stages. */
template <int WIDTH, int PARTS> struct block_layout {
    static constexpr int ROWS = 256;
    static constexpr int QUERY = (PARTS - 1) * WIDTH / 64 * QUERY_PIECE; /* a tile's matrices */

    static __host__ __device__ constexpr int bq(int tiles)
    {
        return ROWS + tiles * TILE_HEADS * (WIDTH + 8) * 4;
    }
    static __host__ __device__ constexpr int before(int tiles, int ranks)
    {
        return bq(tiles) + (ranks + 15) / 16 * 16 * FEATURE_ROW<WIDTH>;
    }
};

inline bool is_narrow(const copes_tpa_problem &problem)
{
    return problem.d <= 64 && problem.e <= 64;
}

/* A view's stride in bytes; that of an axis of one element, which is not to be had, is 0. */
template <typename T> inline int32_t step_of(const copes_view &view, int axis, int64_t extent)
{
    return extent > 1 ? (int32_t)(view.stride[axis] * (int64_t)sizeof(T)) : 0;
}

template <typename T> inline query_source source_of(const copes_tpa_problem &p)
{
    const int64_t ranks[] = {p.b, p.n, p.rq, p.d};
    const auto aq = [&](int axis, int64_t extent) { return step_of<T>(p.aq, axis, extent); };
    const auto bq = [&](int axis, int64_t extent) { return step_of<T>(p.bq, axis, extent); };
    return {static_cast<const char *>(p.aq.data),
            static_cast<const char *>(p.bq.data),
            aq(0, p.b),
            aq(1, p.n),
            aq(2, p.h),
            aq(3, p.rq),
            bq(0, p.b),
            bq(1, p.n),
            bq(2, p.rq),
            (int32_t)p.rq,
            (int32_t)p.d,
            (int32_t)p.h,
            score_scale(p),
            in_vectors<T>(p.bq, ranks, 4)};
}

/* False: a block's shared memory does not suffice. */
template <typename T, int WIDTH>
inline bool plan_of(const queue &to, const copes_tpa_problem &problem, wgmma_plan *plan)
{
    const bool thirds = parts_of_query<T>(problem.lse.data != nullptr) > 2;
    plan->tiles = problem.h > TILE_HEADS ? 2 : 1;
    plan->head_groups = (int)divide_up(problem.h, plan->tiles * TILE_HEADS);
    plan->by_group = divider(plan->head_groups);
    const int stage = stage_layout<WIDTH>::bytes(plan->tiles), ranks = (int)problem.rq;
    const int query = thirds ? block_layout<WIDTH, 3>::QUERY : block_layout<WIDTH, 2>::QUERY;
    const int before = block_layout<WIDTH, 2>::before(plan->tiles, ranks) + 1023 + plan->tiles * query;
    const int slots = (to.shared_memory - before) / stage;
    plan->slots = slots < MOST_SLOTS ? slots : MOST_SLOTS;
    plan->shared = before + plan->slots * stage;
    const double bytes = bytes_of_key<T>(problem);
    const cut_cost cost = {
        (double)(problem.b * problem.n * plan->head_groups),
        (double)to.multiprocessors,
        bytes,
        /* measured: 14 clocks a key of 128 features and one tile, whose bytes take 35 */
        (WIDTH + 128) * plan->tiles / bytes,
        1,
        1e5 / bytes, /* measured: some 5,500 clocks, for its query and its outputs */
        problem.m,
        plan->tiles == 1 ? GROUPS * BOX_KEYS : BOX_KEYS,
    };
    choose_cut(to, problem, cost, BOX_KEYS, &plan->cut);
    plan->row_share = (int)divide_up(plan->tiles * TILE_HEADS, plan->cut.cluster);
    return plan->slots >= 2;
}

template <typename T> inline bool plan_of(const queue &to, const copes_tpa_problem &problem, wgmma_plan *plan)
{
    return is_narrow(problem) ? plan_of<T, 64>(to, problem, plan) : plan_of<T, 128>(to, problem, plan);
}

/* Are the strides of keys and batch entries such as maps have? */
inline bool in_boxes(const copes_tpa_problem &problem, const copes_view &view)
{
    const auto fits = [](int64_t stride, int64_t extent) {
        return extent == 1 || (stride > 0 && stride < (int64_t)1 << 38);
    };
    return fits(view.stride[1], problem.m) && fits(view.stride[0], problem.b);
}

/* Are the steps of the query's factors such as query_source has? */
inline bool has_short_steps(const copes_tpa_problem &problem)
{
    const auto fits = [](int64_t stride, int64_t extent) {
        return extent == 1 || (stride > INT32_MIN / 4 && stride < INT32_MAX / 4);
    };
    const int64_t *aq = problem.aq.stride, *bq = problem.bq.stride;
    return fits(aq[0], problem.b) && fits(aq[1], problem.n) && fits(aq[2], problem.h) && fits(aq[3], problem.rq) &&
           fits(bq[0], problem.b) && fits(bq[1], problem.n) && fits(bq[2], problem.rq);
}

/* What devices, maps, a grid and the kernel's arithmetic hold. */
template <typename T> inline bool takes_boxes(const queue &to, const copes_tpa_problem &p, wgmma_plan *plan)
{
    return COPES_WGMMA && to.architecture == 90 && p.rk == 1 && p.rv == 1 && p.rq <= MOST_RANKS && p.h % 8 == 0 &&
           p.d <= 128 && p.e <= 128 && p.b <= MOST_ALONG_GRID && has_short_steps(p) && in_boxes(p, p.ak) &&
           in_boxes(p, p.bk) && in_boxes(p, p.av) && in_boxes(p, p.bv) && plan_of<T>(to, p, plan) &&
           p.n * plan->head_groups <= MOST_ALONG_GRID;
}

} // namespace COPES_GPU

#endif
