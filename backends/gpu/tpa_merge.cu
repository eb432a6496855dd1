/* Merges the partial outputs of tpa_decode. Bound by latency, a few kilobytes a row: a block has a row, the threads a
 * part each to weigh it, then a feature each to sum over the parts, 8 reads at a time. */
#include "backends/gpu/tpa_merge.h"

namespace COPES_GPU
{

enum { THREADS = 128, AT_ONCE = 8 };

/* The first `count` parts of a row, to be merged: what is shared by the block's threads. */
struct merged_parts {
    row_state state[THREADS];
    float weight[THREADS];
};

/* Takes the states of some parts in, and gives each its weight. What was gathered before shrinks by the result. */
DEVICE float weigh_parts(const float *partial, int64_t step, int count, merged_parts &parts, row_state &row)
{
    __syncthreads(); /* the weights before have been used */
    if ((int)threadIdx.x < count)
        parts.state[threadIdx.x] = {partial[threadIdx.x * step], partial[threadIdx.x * step + 1]};
    __syncthreads();
    const float before = row.most;
    for (int part = 0; part < count; part++)
        row.most = fmaxf(row.most, parts.state[part].most);
    const float shrink = exp2_term(before - shift_of(row.most));
    if ((int)threadIdx.x < count)
        parts.weight[threadIdx.x] = exp2_term(parts.state[threadIdx.x].most - shift_of(row.most));
    __syncthreads();
    row.sum *= shrink;
    for (int part = 0; part < count; part++)
        row.sum = fmaf(parts.weight[part], parts.state[part].sum, row.sum);
    return shrink;
}

/* The weighted sum of a feature. */
DEVICE float sum_parts(const float *feature, int64_t step, int count, const merged_parts &parts)
{
    float sum = 0;
    for (int first = 0; first < count; first += AT_ONCE) {
        float x[AT_ONCE], weight[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) { /* always at a part that exists, so that no read waits for another */
            const int part = first + i < count ? first + i : count - 1;
            x[i] = feature[part * step];
            weight[i] = parts.weight[part];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            sum = first + i < count ? fmaf(weight[i], x[i], sum) : sum;
    }
    return sum;
}

/* A block has 128 features of a row, that is of a query token and head. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    tpa_merge(GPU_PARAMETER copes_tpa_problem problem, GPU_PARAMETER cache_cut cut, float *partials)
{
    __shared__ merged_parts parts;
    const int64_t h = blockIdx.y, b = blockIdx.z / problem.n, n = blockIdx.z % problem.n;
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x, step = problem.e + 2;
    const int64_t visible = key_range(problem).visible(b, n), used = (visible + cut.part - 1) / cut.part;
    const float *partial = partial_at(problem, cut, partials, blockIdx.z * problem.h + h, 0);
    row_state row = {-INFINITY, 0};
    float o = 0;
    for (int64_t part = 0; part < used; part += THREADS) {
        const int count = (int)(used - part < THREADS ? used - part : (int64_t)THREADS);
        const float *first = partial + part * step;
        o *= weigh_parts(first, step, count, parts, row);
        if (e < problem.e)
            o += sum_parts(first + 2 + e, step, count, parts);
    }
    if (e == 0)
        write_lse(problem, b, n, h, row);
    if (e < problem.e)
        write_scalar(output_at<T>(problem, b, n, h) + e * problem.o.stride[3],
                     used > 0 ? o * ((float)problem.value_scale / row.sum) : 0);
}

template <typename T>
copes_status merge_partials(const queue &to, const copes_tpa_problem &problem, const cache_cut &cut, float *partials)
{
    const int64_t chunks = problem.e < 1 ? 1 : (problem.e + THREADS - 1) / THREADS;
    const dim3 blocks((unsigned)chunks, (unsigned)problem.h, (unsigned)(problem.b * problem.n));
    return launch(to, tpa_merge<T>, blocks, THREADS, 0, problem, cut, partials);
}

/* The grid's two outer dimensions are short; larger problems have rows enough without parts. */
bool can_merge(const copes_tpa_problem &problem)
{
    return problem.h <= 65535 && problem.b * problem.n <= 65535;
}

template copes_status merge_partials<f32>(const queue &, const copes_tpa_problem &, const cache_cut &, float *);
template copes_status merge_partials<f16>(const queue &, const copes_tpa_problem &, const cache_cut &, float *);
template copes_status merge_partials<bf16>(const queue &, const copes_tpa_problem &, const cache_cut &, float *);

} // namespace COPES_GPU
