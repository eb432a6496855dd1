/* The gradient of attention_merge, bound by memory: every share's row is read once and written once. Neighbouring threads have a
 * row, as each share's grad_o . o_s is a sum over it. The gradients of lse hang on the mean of those sums over all shares. Of up to
 * 8 shares and a vector for each thread, those sums stay in registers, and a thread starts all its reads before it looks at any lse.
 * Else threads leave them where the gradients of lse go, and each turns what it left itself into those. */
#include "backends/gpu/merge/methods.h"
#include "backends/gpu/merge/plan_rows.h"
#include "backends/gpu/reduce.h"

namespace COPES_GPU::merge
{

enum { MOST_LANES = 32 };

/* Blocks that a multiprocessor has at a time, at least: what binds is how many threads read. */
template <int AT_ONCE, bool MORE>
inline constexpr int blocks_on_each = MORE           ? 1
                                      : AT_ONCE == 8 ? 6
                                      : AT_ONCE == 4 ? 8
                                                     : 10;

/* A thread's part of a row: vector `lane`, and every `lanes`-th after it. */
struct row_part {
    row_place row;
    share_place shares;
    int64_t lane;
    int lanes;
    bool exists; /* threads past the last row have the work of one, and write nothing */
};

/* The sums grad_o . o_s of up to AT_ONCE shares; LONG: of rows of any length, with what additions round off. */
template <int AT_ONCE, bool LONG> struct share_dots {
    float sum[AT_ONCE] = {}, lost[LONG ? AT_ONCE : 1] = {};

    __device__ __forceinline__ void add(int i, float term)
    {
        if constexpr (LONG)
            add_compensated(sum[i], lost[i], term);
        else
            sum[i] += term;
    }
};

/* What a thread reads of a row at a time: a vector of up to AT_ONCE shares' o, from share `from` on, and of grad_o. */
template <typename T, int V, int AT_ONCE> struct row_vectors {
    raw<T, V> x[AT_ONCE], g;

    __device__ __forceinline__ void read(const copes_merge_problem &problem, const row_part &part, int64_t from,
                                         int64_t at)
    {
        const copes_view &o = problem.o_shares, &grad = problem.row;
        const int64_t place = part.shares.o + to_feature<V>(at, o.stride[4]);
        const int left = o.data == nullptr ? 0 : (int)min(problem.shares - from, (int64_t)AT_ONCE);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            x[i] = i < left ? raw<T, V>::read(static_cast<const T *>(o.data) + ((from + i) * o.stride[0] + place))
                            : raw<T, V>{};
        g = raw<T, V>::read(static_cast<const T *>(grad.data) +
                            (part.row.of(grad, 0) + to_feature<V>(at, grad.stride[3])));
    }
    /* Writes the gradients of the shares' o, and adds to their dots. */
    template <bool LONG>
    __device__ __forceinline__ void spread(const copes_merge_problem &problem, const row_part &part, int64_t from,
                                           int64_t at, const float (&weight)[AT_ONCE],
                                           share_dots<AT_ONCE, LONG> &dots) const
    {
        const copes_view &to = problem.grad_o_shares;
        const int64_t place = part.row.of(to, 1) + to_feature<V>(at, to.stride[4]);
        const int left = part.exists ? (int)min(problem.shares - from, (int64_t)AT_ONCE) : 0;
        float grad_o[V];
        g.unpack(grad_o);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            float grad[V] = {}, of_share[V], sum = 0;
            if (!is_empty(weight[i])) {
                x[i].unpack(of_share);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    grad[k] = weight[i] * grad_o[k];
                    sum = fmaf(grad_o[k], of_share[k], sum);
                }
                dots.add(i, sum);
            }
            if (i < left)
                raw<T, V>::write(static_cast<T *>(to.data) + ((from + i) * to.stride[0] + place), grad);
        }
    }
};

/* The place of a share's gradient of lse. */
DEVICE float *slope_at(const copes_merge_problem &problem, const row_place &row, int64_t s)
{
    return static_cast<float *>(problem.grad_lse_shares.data) + s * problem.grad_lse_shares.stride[0] +
           row.of(problem.grad_lse_shares, 1);
}

/* What a row's gradients of lse have in common. */
struct row_slope {
    float mean, ln_base, grad_lse;

    template <int V>
    static __device__ __forceinline__ row_slope of(const copes_merge_problem &problem, const row_place &row, float mean)
    {
        const float *const lse = static_cast<const float *>(problem.lse.data);
        return {mean, problem.base == COPES_LOG_BASE_2 ? LN_2 : 1,
                lse == nullptr ? 0 : read_float<V>(lse + row.of(problem.lse, 0))};
    }
    /* The gradient of a share's lse from its grad_o . o_s. */
    __device__ __forceinline__ float of_share(float weight, float dot) const
    {
        return is_empty(weight) ? 0 : weight * fmaf(ln_base, dot - mean, grad_lse);
    }
};

/* Of up to AT_ONCE shares, and rows of a vector for each lane. */
template <typename T, int V, int AT_ONCE>
DEVICE void merge_few_backward(const copes_merge_problem &problem, const row_part &part)
{
    share_dots<AT_ONCE, false> dots;
    float weight[AT_ONCE], mean = 0;
    row_vectors<T, V, AT_ONCE> vectors;
    const int64_t at = part.lane * V;
    if (at < problem.e)
        vectors.read(problem, part, 0, at);
    row_weights<V, AT_ONCE, false> weights(problem, part.shares);
    weights.find();
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        weight[i] = weights.weight(i);
    if (at < read_again(problem).e)
        vectors.spread(read_again(problem), part, 0, at, weight, dots);
    const copes_merge_problem &end = read_again(problem);
    if (end.grad_lse_shares.data == nullptr)
        return;
    sums_by_loop(dots.sum, part.lanes);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        mean = !is_empty(weight[i]) ? fmaf(weight[i], dots.sum[i], mean) : mean;
    if (!part.exists)
        return;
    const row_slope slope = row_slope::of<V>(end, part.row, mean);
#pragma unroll 1
    for (int s = (int)part.lane; s < (int)end.shares; s += part.lanes) {
        float own = EMPTY, dot = 0;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) { /* an index would put the sums into memory */
            own = i == s ? weight[i] : own;
            dot = i == s ? dots.sum[i] : dot;
        }
        write_float<V>(slope_at(end, part.row, s), slope.of_share(own, dot));
    }
}

/* Every `lanes`-th share's grad_o . o_s, which this thread has left, becomes its gradient of lse. */
template <int V, typename Weights>
DEVICE void finish_slopes(const copes_merge_problem &problem, const row_part &part, const Weights &weights, float mean)
{
    const row_slope slope = row_slope::of<V>(problem, part.row, mean);
    for (int64_t s = part.lane; s < problem.shares; s += part.lanes) {
        float *place = slope_at(problem, part.row, s);
        write_float<V>(place, slope.of_share(weights.weight_of(read_float<V>(weights.first + s * weights.apart)),
                                             read_float<V>(place)));
    }
}

/* Of any number of shares, AT_ONCE at a time. */
template <typename T, int V, int AT_ONCE>
DEVICE void merge_many_backward(const copes_merge_problem &problem, const row_part &part)
{
    row_weights<V, AT_ONCE, true> weights(problem, part.shares);
    weights.find();
    float mean = 0, lost = 0;
    for (int64_t from = 0; from < problem.shares; from += AT_ONCE) {
        float weight[AT_ONCE];
        share_dots<AT_ONCE, true> dots;
        weights.read(from);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            weight[i] = weights.weight(i);
        for (int64_t at = part.lane * V; at < problem.e; at += part.lanes * V) {
            row_vectors<T, V, AT_ONCE> vectors;
            vectors.read(read_again(problem), part, from, at);
            vectors.spread(read_again(problem), part, from, at, weight, dots);
        }
        sums_by_loop(dots.sum, part.lanes);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (!is_empty(weight[i]))
                add_compensated(mean, lost, weight[i] * dots.sum[i]);
            if (from + i < problem.shares && (from + i) % part.lanes == part.lane && part.exists &&
                problem.grad_lse_shares.data != nullptr)
                write_float<V>(slope_at(read_again(problem), part.row, from + i), dots.sum[i]);
        }
    }
    if (part.exists && problem.grad_lse_shares.data != nullptr)
        finish_slopes<V>(read_again(problem), part, weights, mean);
}

/* Every thread of a warp goes on as long, as shuffles need all of its lanes. */
template <typename T, int V, int AT_ONCE, bool MORE, typename Index>
__global__ void LAUNCH_BOUNDS(THREADS, (blocks_on_each<AT_ONCE, MORE>))
    merge_backward(GPU_PARAMETER row_arguments<Index> argument)
{
    const row_arguments<Index> &all = first_argument(argument);
    for_block_threads<MORE>(all.threads.count, [&](Index first) {
        const row_threads<Index> &threads = read_again(all.threads);
        const Index thread = first + threadIdx.x;
        const bool exists = thread < threads.count;
        const int lanes = (int)threads.by_piece.divisor; /* a power of two */
        Index piece;
        const row_place row = find_row(threads, exists ? thread : threadIdx.x & (Index)(lanes - 1), &piece);
        const row_part part = {row, share_place(read_again(all.problem), row), (int64_t)piece, lanes, exists};
        if constexpr (MORE)
            merge_many_backward<T, V, AT_ONCE>(read_again(all.problem), part);
        else
            merge_few_backward<T, V, AT_ONCE>(read_again(all.problem), part);
    });
}

/* As many threads as a row has vectors, or elements, rounded up to a power of two. */
template <int V> int64_t lanes_of(const copes_merge_problem &problem)
{
    int64_t lanes = 1;
    while (lanes < MOST_LANES && lanes * V < problem.e)
        lanes *= 2;
    return lanes;
}

template <typename T> bool plan_vectors(const gpu_device &device, const copes_merge_problem &problem, copes_plan *plan)
{
    constexpr int V = vector_length<T>;
    const int64_t lanes = lanes_of<V>(problem);
    if (!is_in_vectors<T>(device, problem, rows_of(problem) * (double)lanes, plan))
        return false;
    set_threads<uint32_t>(problem, lanes, plan);
    const bool fits = problem.e <= lanes * V; /* a row in a vector for each lane */
    return take_by_shares(fits ? problem.shares : INT64_MAX, [&]<int AT_ONCE, bool MORE>() {
        return take<row_kernel<uint32_t>>(plan, name_of_vectors<T, true, AT_ONCE, MORE>, run_rows<uint32_t>,
                                          merge_backward<T, V, AT_ONCE, MORE, uint32_t>);
    });
}

template <typename T, typename Index> bool take_any(const copes_merge_problem &problem, copes_plan *plan)
{
    set_threads<Index>(problem, lanes_of<1>(problem), plan);
    return take<row_kernel<Index>>(plan, name_of_any<T, true, Index>, run_rows<Index>,
                                   merge_backward<T, 1, 4, true, Index>);
}

template <typename T>
copes_status plan_backward(const gpu_device &device, const copes_merge_problem &problem, copes_plan *plan)
{
    if (!plan_vectors<T>(device, problem, plan))
        rows_of(problem) * (double)lanes_of<1>(problem) > INT32_MAX ? take_any<T, uint64_t>(problem, plan)
                                                                    : take_any<T, uint32_t>(problem, plan);
    return COPES_OK;
}

template <typename T> void list_backward(variant_list *list)
{
    list_vectors<T, true>(list);
    list->add(name_of_any<T, true, uint32_t>);
    list->add(name_of_any<T, true, uint64_t>);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status plan_backward<T>(const gpu_device &, const copes_merge_problem &, copes_plan *);             \
    template void list_backward<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::merge
