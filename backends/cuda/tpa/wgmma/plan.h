/* How the host plans tpa_wgmma: the heads and the shared memory of a block, and the cut of a query token's keys. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_PLAN_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_PLAN_H

#include "backends/cuda/tpa/float32/query.h"

namespace COPES_GPU::tpa::wgmma
{

inline constexpr int THREADS = CONSUMERS + 32;

/* Threads of a launch. The producer is one warp. In float32 it is one warp of a whole warpgroup, since only a
 * warpgroup can give registers to the consumers (setmaxnreg), which need more than an equal share. The other three
 * warps end at once. */
template <typename T> inline constexpr int LAUNCHED = is_f32<T> ? CONSUMERS + 128 : THREADS;
inline constexpr int MOST_RANKS = 64, MOST_ALONG_GRID = 65535; /* blocks, along y or z */

struct wgmma_plan {
    query_source query; /* first, because a block reads it first */
    key_range keys;     /* near to it, because the copies need it next */
    cluster_cut cut;
    int head_groups; /* groups of a query token's heads; blocks of one group share its keys */
    divider by_group;
    int tiles;     /* of 32 heads, of a block: 1, which both warpgroups have, or 2, one each */
    int row_share; /* most rows that a block of a cluster finishes */
    int slots;     /* of the ring */
    int shared;    /* bytes */
    bool flat;     /* coefficients come as bytes that follow each other, not as boxes of heads */
    bool pairs;    /* two neighbours of the output are written as one word */
};

/* The shared memory of a block, in this order. `query` begins at a multiple of 1024 bytes.
 *
 *   16-bit       bytes                  written by                       read by
 *   barriers     BARRIERS               mbarriers: see box_ring, block_memory
 *   exchange     GROUPS * EXCHANGE      consumers, f16: rows' maxima     consumers, while they form the query
 *     rows       rows_bytes()           consumers: gathered rows         bulk copies to other blocks; finish_rows
 *   bq           factors_bytes()        consumers: cp.async              consumers, while they form the query
 *   query        tiles * QUERY          consumers                        tensor cores
 *   stages       slots * slot           bulk copies; producer: the tail  tensor cores and consumers
 *     received   the block's rows       bulk copies of other blocks      finish_rows
 *
 *   float32
 *   barriers     BARRIERS
 *   exchange     GROUPS * EXCHANGE      consumers: reductions of rows    consumers of the same group
 *   query        tiles * QUERY          consumers                        tensor cores
 *     rows       rows_bytes()           consumers: gathered rows         bulk copies to other blocks; finish_rows
 *   bq, aq       factors_bytes()        consumers: cp.async              consumers, while they form the query
 *     weights    GROUPS * WEIGHTS       consumers of one group each      tensor cores
 *   stages       slots * slot           bulk copies; producer: the tail  consumers
 *     received   the block's rows       bulk copies of other blocks      finish_rows
 *
 * An indented line takes the place of the line above it, once nobody reads that any more. Float32 shares more
 * places, as its stages are large. */
template <typename T, int WIDTH, int SLICES> struct block_layout {
    static constexpr int BARRIERS = 256;
    static constexpr int QUERY =
        WIDTH / 64 * (is_f32<T> ? float32::F32_PIECE : (SLICES - 1) * QUERY_PIECE); /* of a tile */
    static constexpr int WEIGHTS = float32::F32_PIECE;                              /* of a group */
    int tiles, ranks;

    __host__ __device__ constexpr int rows_bytes() const
    {
        return tiles * TILE_HEADS * (WIDTH + 8) * 4;
    }
    /* Of bq, and in float32 of aq. */
    __host__ __device__ constexpr int factors_bytes() const
    {
        return (ranks + 15) / 16 * 16 * (FEATURE_ROW<T, WIDTH> + (is_f32<T> ? float32::coefficient_row(tiles) : 0));
    }

    /* Before the query. */
    __host__ __device__ constexpr int fixed() const
    {
        return BARRIERS + (is_f32<T> ? GROUPS * EXCHANGE : rows_bytes() + factors_bytes());
    }
    /* Between it and the stages. */
    __host__ __device__ constexpr int weights() const
    {
        const int most = GROUPS * WEIGHTS > factors_bytes() ? GROUPS * WEIGHTS : factors_bytes();
        return is_f32<T> ? (most + 1023) / 1024 * 1024 : 0;
    }
    __host__ __device__ constexpr int before_stages() const
    {
        return fixed() + 1023 + tiles * QUERY + weights();
    }
};

inline bool is_narrow(const copes_tpa_problem &problem)
{
    return problem.d <= 64 && problem.e <= 64;
}

/* A stride in bytes. It is 0 for an axis of one element, because the stride of such an axis may be any number. */
template <typename T> inline int32_t byte_stride_of(const copes_view &view, int axis, int64_t extent)
{
    return extent > 1 ? (int32_t)(view.stride[axis] * (int64_t)sizeof(T)) : 0;
}

template <typename T> inline query_source source_of(const copes_tpa_problem &p)
{
    const int64_t ranks[] = {p.b, p.n, p.rq, p.d};
    const auto aq = [&](int axis, int64_t extent) { return byte_stride_of<T>(p.aq, axis, extent); };
    const auto bq = [&](int axis, int64_t extent) { return byte_stride_of<T>(p.bq, axis, extent); };
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

template <typename T, int WIDTH, bool FLAT>
__host__ __device__ __forceinline__ stage_layout<T, WIDTH, FLAT> layout_of(const copes_tpa_problem &problem, int tiles)
{
    const int ranks = (int)(problem.rk > problem.rv ? problem.rk : problem.rv);
    return {tiles, ranks, (int)problem.h * ranks * (int)sizeof(T)};
}

/* Plans a block and the cut. Returns why shared memory does not suffice; nullptr: it does. */
template <typename T, int WIDTH, bool FLAT>
inline const char *plan_of(const gpu_device &device, const copes_tpa_problem &problem, wgmma_plan *plan)
{
    const bool thirds = slices_of_query<T>(problem.lse.data != nullptr) > 2;
    plan->tiles = problem.h > TILE_HEADS ? 2 : 1;
    plan->head_groups = (int)divide_up(problem.h, plan->tiles * TILE_HEADS);
    plan->by_group = divider(plan->head_groups);
    const int slot = layout_of<T, WIDTH, FLAT>(problem, plan->tiles).slot(), ranks = (int)problem.rq;
    const int before = thirds ? block_layout<T, WIDTH, 3>{plan->tiles, ranks}.before_stages()
                              : block_layout<T, WIDTH, 2>{plan->tiles, ranks}.before_stages();
    const int slots = (device.shared_memory - before) / slot;
    plan->slots = slots < MOST_SLOTS ? slots : MOST_SLOTS;
    plan->shared = before + plan->slots * slot;
    const double bytes = bytes_of_key<T>(problem);
    const cut_cost cost = {
        (double)(problem.b * problem.n * plan->head_groups),
        (double)device.multiprocessors,
        bytes,
        (is_f32<T> ? fitted::WGMMA_F32_SLOWDOWN : 1) *
            (WIDTH * fitted::WGMMA_BYTES_OF_FEATURE * (double)(problem.rk + problem.rv) + fitted::WGMMA_BYTES_OF_KEY) *
            plan->tiles / bytes,
        1,
        (is_f32<T> ? fitted::WGMMA_F32_BYTES_OF_BLOCK : fitted::WGMMA_BYTES_OF_BLOCK) / bytes,
        problem.m,
        plan->tiles == 1 ? GROUPS * BOX_KEYS : BOX_KEYS,
    };
    choose_cut(device, problem, cost, BOX_KEYS, &plan->cut);
    plan->row_share = (int)divide_up(plan->tiles * TILE_HEADS, plan->cut.cluster);
    /* ring_place::advance passes the end of the ring at most once. So the ring needs as many slots as a group passes
     * at once: 3 in float32 where two groups alternate, else 2. */
    if (plan->slots < (is_f32<T> && plan->tiles == 1 ? 3 : 2))
        return "a block's shared memory does not hold enough stages of the cache beside the query";
    return nullptr;
}

template <typename T, bool FLAT>
inline const char *plan_of(const gpu_device &device, const copes_tpa_problem &p, wgmma_plan *plan)
{
    plan->flat = FLAT;
    return is_narrow(p) ? plan_of<T, 64, FLAT>(device, p, plan) : plan_of<T, 128, FLAT>(device, p, plan);
}

/* Can a tensor map have the strides of ranks, keys and batch entries? */
inline bool in_boxes(const copes_tpa_problem &problem, const copes_view &view, int64_t ranks)
{
    const auto fits = [](int64_t stride, int64_t extent) {
        return extent == 1 || (stride > 0 && stride < (int64_t)1 << 38);
    };
    return fits(view.stride[2], ranks) && fits(view.stride[1], problem.m) && fits(view.stride[0], problem.b);
}

/* Can a tensor map have the coefficients, which are contiguous? */
template <typename T> inline bool has_boxes_of_heads(const copes_tpa_problem &p)
{
    return p.rk == 1 && p.rv == 1 && p.h % vector_length<T> == 0 && in_boxes(p, p.ak, 1) && in_boxes(p, p.av, 1);
}

/* Can query_source have the strides of aq and bq, in bytes of 32 bits? */
inline bool has_short_strides(const copes_tpa_problem &problem)
{
    const auto fits = [](int64_t stride, int64_t extent) {
        return extent == 1 || (stride > INT32_MIN / 4 && stride < INT32_MAX / 4);
    };
    const int64_t *aq = problem.aq.stride, *bq = problem.bq.stride;
    return fits(aq[0], problem.b) && fits(aq[1], problem.n) && fits(aq[2], problem.h) && fits(aq[3], problem.rq) &&
           fits(bq[0], problem.b) && fits(bq[1], problem.n) && fits(bq[2], problem.rq);
}

/* Why this kernel does not take a problem that tensor cores take; nullptr: it does, and `plan` says how. Its limits
 * come from the device, tensor maps, the grid, shared memory and 32-bit strides. */
template <typename T>
inline const char *refuse_problem(const gpu_device &device, const copes_tpa_problem &p, wgmma_plan *plan)
{
    if (device.capability != 90 || device.architecture < 90)
        return "the device is not of compute capability 9.0, or COPES_GPU_ARCH is less";
    if (p.rq > MOST_RANKS || p.d > 128 || p.e > 128 || p.b > MOST_ALONG_GRID)
        return "there are queries of more than 64 ranks, more than 128 features or more than 65535 batch entries";
    if (!has_short_strides(p) || !in_boxes(p, p.bk, p.rk) || !in_boxes(p, p.bv, p.rv))
        return "a stride is too long, or not positive";
    if (is_f32<T> && p.kv_stride != 1)
        return "keys are not neighbours, and float32's kernel has no registers for a division";
    const bool boxes = has_boxes_of_heads<T>(p);
    if (!boxes && !is_f32<T>)
        return "ranks of keys or values are not 1, or heads are not whole vectors of 16 bytes";
    const char *why = nullptr;
    if constexpr (is_f32<T>)
        why = boxes ? plan_of<T, false>(device, p, plan) : plan_of<T, true>(device, p, plan);
    else
        why = plan_of<T, false>(device, p, plan);
    if (why != nullptr)
        return why;
    return p.n * plan->head_groups <= MOST_ALONG_GRID ? nullptr
                                                      : "there are more than 65535 query tokens and groups of heads";
}

} // namespace COPES_GPU::tpa::wgmma

#endif
