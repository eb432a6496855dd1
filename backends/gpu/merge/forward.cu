/* attention_merge, bound by memory: every share's row is read once. A thread has one vector of a row of all shares, and
 * starts as many reads at once as there are shares, up to 8, before it looks at their lse, which it has asked for first. Every
 * thread of a row computes all the weights: they are few, and all but the first find their lse in a cache. Fewer shares take
 * kernels of fewer registers, so that more threads are under way. */
#include "backends/gpu/merge/methods.h"
#include "backends/gpu/merge/plan_rows.h"

namespace COPES_GPU::merge
{

/* The vectors of up to AT_ONCE shares at one place of a row. */
template <typename T, int V, int AT_ONCE> struct share_vectors {
    raw<T, V> x[AT_ONCE];

    __device__ __forceinline__ void read(const T *first, int64_t apart, int64_t count)
    {
        const int left = (int)min(count, (int64_t)AT_ONCE);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            x[i] = i < left ? raw<T, V>::read(first + i * apart) : raw<T, V>{};
    }
    /* Their sum by their weights: shares whose lse has been read last. */
    template <typename Weights> __device__ __forceinline__ void sum(const Weights &weights, float (&to)[V]) const
    {
#pragma unroll
        for (int k = 0; k < V; k++)
            to[k] = 0;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const float weight = weights.weight(i);
            float of_share[V];
            x[i].unpack(of_share);
#pragma unroll
            for (int k = 0; k < V; k++) /* an empty share may hold anything */
                to[k] = is_empty(weight) ? to[k] : fmaf(weight, of_share[k], to[k]);
        }
    }
};

/* The sum of all shares, AT_ONCE of them at a time, with what the sums of those round off. */
template <typename T, int V, int AT_ONCE, typename Weights>
DEVICE void sum_of_more(Weights &weights, const T *first, int64_t apart, float (&sum)[V])
{
    float lost[V] = {};
    for (int k = 0; k < V; k++)
        sum[k] = 0;
    for (int64_t s = 0; s < weights.shares; s += AT_ONCE) {
        share_vectors<T, V, AT_ONCE> vectors;
        float part[V];
        vectors.read(first + s * apart, apart, weights.shares - s);
        weights.read(s);
        vectors.sum(weights, part);
#pragma unroll
        for (int k = 0; k < V; k++)
            add_compensated(sum[k], lost[k], part[k]);
    }
}

/* MORE: there may be more shares than AT_ONCE. */
template <typename T, int V, int AT_ONCE, bool MORE, typename Index>
DEVICE void merge_piece(const copes_merge_problem &problem, const row_place &row, Index piece)
{
    const int64_t feature = (int64_t)piece * V, apart = problem.o_shares.stride[0];
    const bool exists = V > 1 || feature < problem.e; /* a row of no features has a thread for its lse */
    const share_place at(problem, row);
    const T *first =
        static_cast<const T *>(problem.o_shares.data) + at.o + to_feature<V>(feature, problem.o_shares.stride[4]);
    row_weights<V, AT_ONCE, MORE> weights(problem, at);
    share_vectors<T, V, AT_ONCE> vectors;
    float sum[V];
    if (!MORE)
        vectors.read(first, apart, exists ? problem.shares : 0);
    weights.find();
    if (!MORE)
        vectors.sum(weights, sum);
    else if (exists)
        sum_of_more<T, V, AT_ONCE>(weights, first, apart, sum);
    const copes_merge_problem &end = read_again(problem);
    if (exists)
        raw<T, V>::write(static_cast<T *>(end.row.data) +
                             (row.of(end.row, 0) + to_feature<V>(feature, end.row.stride[3])),
                         sum);
    if (piece == 0 && end.lse.data != nullptr)
        write_float<V>(static_cast<float *>(end.lse.data) + row.of(end.lse, 0), weights.log_sum());
}

/* Blocks that a multiprocessor has at a time, at least, where more registers would leave it too few threads that read. */
template <int AT_ONCE, bool MORE>
inline constexpr int forward_blocks = AT_ONCE == 8            ? 8
                                      : AT_ONCE == 4 && !MORE ? 10
                                                              : 1;

template <typename T, int V, int AT_ONCE, bool MORE, typename Index>
__global__ void LAUNCH_BOUNDS(THREADS, (forward_blocks<AT_ONCE, MORE>))
    merge_forward(GPU_PARAMETER row_arguments<Index> argument)
{
    const row_arguments<Index> &all = first_argument(argument);
    for_block_threads<MORE>(all.threads.count, [&](Index first) {
        const Index thread = first + threadIdx.x;
        if (thread >= read_again(all.threads).count)
            return;
        Index piece;
        const row_place row = find_row(read_again(all.threads), thread, &piece);
        merge_piece<T, V, AT_ONCE, MORE>(read_again(all.problem), row, piece);
    });
}

template <typename T>
bool plan_vectors(const gpu_device &device, const copes_merge_problem &problem, double elements, copes_plan *plan)
{
    if (!is_in_vectors<T>(device, problem, elements / vector_length<T>, plan))
        return false;
    set_threads<uint32_t>(problem, problem.e / vector_length<T>, plan);
    return take_by_shares(problem.shares, [&]<int AT_ONCE, bool MORE>() {
        return take<row_kernel<uint32_t>>(plan, name_of_vectors<T, false, AT_ONCE, MORE>, run_rows<uint32_t>,
                                          merge_forward<T, vector_length<T>, AT_ONCE, MORE, uint32_t>);
    });
}

template <typename T, typename Index>
bool take_any(const copes_merge_problem &problem, int64_t pieces, copes_plan *plan)
{
    set_threads<Index>(problem, pieces, plan);
    return take<row_kernel<Index>>(plan, name_of_any<T, false, Index>, run_rows<Index>,
                                   merge_forward<T, 1, 4, true, Index>);
}

template <typename T>
copes_status plan_forward(const gpu_device &device, const copes_merge_problem &problem, copes_plan *plan)
{
    const int64_t pieces = greater(problem.e, (int64_t)1);
    const double elements = rows_of(problem) * (double)pieces;
    if (!plan_vectors<T>(device, problem, elements, plan))
        elements > INT32_MAX ? take_any<T, uint64_t>(problem, pieces, plan)
                             : take_any<T, uint32_t>(problem, pieces, plan);
    return COPES_OK;
}

template <typename T> void list_forward(variant_list *list)
{
    list_vectors<T, false>(list);
    list->add(name_of_any<T, false, uint32_t>);
    list->add(name_of_any<T, false, uint64_t>);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status plan_forward<T>(const gpu_device &, const copes_merge_problem &, copes_plan *);              \
    template void list_forward<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::merge
