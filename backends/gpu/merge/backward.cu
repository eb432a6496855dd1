/* The gradient of attention_merge, bound by memory: every share's row is read once and written once. Neighbouring threads have a
 * row, as each share's grad_o . o_s is a sum over it. They leave those sums where the gradients of lse go, and each turns what it
 * left itself into those: they hang on the mean over all shares. */
#include "backends/gpu/merge/methods.h"
#include "backends/gpu/merge/plan_rows.h"
#include "backends/gpu/reduce.h"

namespace COPES_GPU::merge
{

enum { MOST_LANES = 32, AT_ONCE = 4 };

/* A thread's part of a row: vector `lane`, and every `lanes`-th after it. */
struct row_part {
    row_place row;
    int64_t lane;
    int lanes;
    bool exists; /* threads past the last row have the work of one, and write nothing */
};

/* The sums grad_o . o_s of up to AT_ONCE shares, with what their additions round off. */
struct share_dots {
    float sum[AT_ONCE] = {}, lost[AT_ONCE] = {};
};

/* A vector `at` elements into the row: writes the gradients of the shares' o, from share `from` on, and adds to their dots. */
template <typename T, int V>
DEVICE void spread_vector(const copes_merge_problem &problem, const row_part &part, int64_t from, int64_t at,
                          const float (&weight)[AT_ONCE], share_dots &dots)
{
    const copes_view &o = problem.o_shares, &to = problem.grad_o_shares;
    const int64_t o_place = part.row.of(o, 1) + at * o.stride[4], to_place = part.row.of(to, 1) + at * to.stride[4];
    const bool learns = o.data != nullptr;
    raw<T, V> x[AT_ONCE];
    float g[V];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        x[i] = learns && from + i < problem.shares
                   ? raw<T, V>::read(static_cast<const T *>(o.data) + ((from + i) * o.stride[0] + o_place))
                   : raw<T, V>{};
    raw<T, V>::read(static_cast<const T *>(problem.row.data) +
                    (part.row.of(problem.row, 0) + at * problem.row.stride[3]))
        .unpack(g);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const bool empty = weight[i] == EMPTY;
        float grad[V], of_share[V], sum = 0;
        x[i].unpack(of_share);
#pragma unroll
        for (int k = 0; k < V; k++) {
            grad[k] = empty ? 0 : weight[i] * g[k];
            sum = fmaf(g[k], of_share[k], sum);
        }
        if (part.exists && from + i < problem.shares)
            raw<T, V>::write(static_cast<T *>(to.data) + ((from + i) * to.stride[0] + to_place), grad);
        if (learns && !empty)
            add_compensated(dots.sum[i], dots.lost[i], sum);
    }
}

/* The place of a share's gradient of lse. */
DEVICE float *slope_at(const copes_merge_problem &problem, const row_place &row, int64_t s)
{
    return static_cast<float *>(problem.grad_lse_shares.data) + s * problem.grad_lse_shares.stride[0] +
           row.of(problem.grad_lse_shares, 1);
}

/* Every `lanes`-th share's grad_o . o_s, which this thread has left, becomes its gradient of lse. */
template <int V, typename Weights>
DEVICE void finish_slopes(const copes_merge_problem &problem, const row_part &part, const Weights &weights, float mean)
{
    const float ln_base = problem.base == COPES_LOG_BASE_2 ? LN_2 : 1;
    const float grad_lse =
        problem.lse.data == nullptr
            ? 0
            : read_float<V>(static_cast<const float *>(problem.lse.data) + part.row.of(problem.lse, 0));
    for (int64_t s = part.lane; s < problem.shares; s += part.lanes) {
        float *place = slope_at(problem, part.row, s);
        const float weight = weights.weight(read_float<V>(weights.first + s * weights.apart)),
                    slope = fmaf(ln_base, read_float<V>(place) - mean, grad_lse);
        write_float<V>(place, weight == EMPTY ? 0 : weight * slope);
    }
}

template <typename T, int V> DEVICE void merge_row_backward(const copes_merge_problem &problem, const row_part &part)
{
    row_weights<V, AT_ONCE, true> weights(problem, part.row);
    float mean = 0, lost = 0;
    for (int64_t from = 0; from < problem.shares; from += AT_ONCE) {
        float weight[AT_ONCE];
        share_dots dots;
        weights.read(from);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            weight[i] = weights.weight(weights.lse[i]);
        for (int64_t at = part.lane * V; at < problem.e; at += part.lanes * V)
            spread_vector<T, V>(read_again(problem), part, from, at, weight, dots);
        sums_of_lanes(dots.sum, part.lanes);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (weight[i] != EMPTY)
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
template <typename T, int V, typename Index>
__global__ void __launch_bounds__(THREADS) merge_backward(GPU_PARAMETER row_arguments<Index> argument)
{
    const row_arguments<Index> &all = first_argument(argument);
    const Index step = (Index)gridDim.x * blockDim.x;
    for (Index first = (Index)blockIdx.x * blockDim.x; first < all.threads.count; first += step) {
        const row_threads<Index> &threads = read_again(all.threads);
        const Index thread = first + threadIdx.x;
        const bool exists = thread < threads.count;
        const int lanes = (int)threads.by_piece.divisor;
        Index piece;
        const row_place row = find_row(threads, exists ? thread : threadIdx.x % (Index)lanes, &piece);
        merge_row_backward<T, V>(read_again(all.problem), {row, (int64_t)piece, lanes, exists});
    }
}

template <typename T>
inline constexpr const char *name_of_vectors = variant_name<vectors_name, type_name<T>, backward_name>::text;

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
    return take<row_kernel<uint32_t>>(plan, name_of_vectors<T>, run_rows<uint32_t>, merge_backward<T, V, uint32_t>);
}

template <typename T, typename Index> bool take_any(const copes_merge_problem &problem, copes_plan *plan)
{
    set_threads<Index>(problem, lanes_of<1>(problem), plan);
    return take<row_kernel<Index>>(plan, name_of_any<T, true, Index>, run_rows<Index>, merge_backward<T, 1, Index>);
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
    list->add(name_of_vectors<T>);
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
