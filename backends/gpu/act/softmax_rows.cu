/* Softmax along an axis whose row is given to neighbouring threads. A row of up to 32 lanes' vectors rests in
 * registers, so that memory is read once and binds; any other (longer, strided or unaligned) is a block's, which reads
 * it again. */
#include "backends/gpu/act/strides.h"
#include "backends/gpu/kernels.h"
#include "backends/gpu/softmax.h"

namespace COPES_GPU
{

enum { THREADS = 128, MOST_LANES = 32 };

/* A row as its lanes hold it: P vectors each, lane by lane. */
template <typename T, int P> struct row_part {
    static constexpr int V = vector_length<T>;
    float x[P][V];

    __device__ __forceinline__ void read(const T *row, int lane, int lanes, int units, float fill)
    {
        raw<T, V> words[P];
#pragma unroll
        for (int p = 0; p < P; p++)
            if (lane + p * lanes < units)
                words[p] = raw<T, V>::read(row + (lane + p * lanes) * V);
#pragma unroll
        for (int p = 0; p < P; p++) {
            if (lane + p * lanes < units)
                words[p].unpack(x[p]);
            else
                for (int i = 0; i < V; i++)
                    x[p][i] = fill;
        }
    }
    __device__ __forceinline__ void write(T *row, int lane, int lanes, int units) const
    {
#pragma unroll
        for (int p = 0; p < P; p++)
            if (lane + p * lanes < units)
                raw<T, V>::write(row + (lane + p * lanes) * V, x[p]);
    }
};

template <typename T, int LANES, int P, bool BACKWARD>
__global__ void softmax_lanes(const T *src, const T *saved, T *dst, int units, GPU_PARAMETER act_strides rows)
{
    const int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const int lane = (int)threadIdx.x % LANES, live = row < rows.count ? units : 0;
    const act_offsets at = find_offsets(rows, (uint64_t)row);
    row_part<T, P> x, y;
    x.read(src + at.src, lane, LANES, live, BACKWARD ? 0 : -INFINITY);
    if (BACKWARD) {
        y.read(saved + at.saved, lane, LANES, live, 0);
        softmax_gradient_row<P>(y.x, x.x, LANES);
    } else {
        softmax_row<T, P>(x.x, LANES);
    }
    x.write(dst + at.dst, lane, LANES, live);
}

/* A row along any axis, in any strides. */
template <typename T> struct strided_row {
    const T *src, *saved;
    T *dst;
    int64_t length, src_step, saved_step, dst_step;

    __device__ __forceinline__ float at(int64_t i) const
    {
        return read_scalar(src + i * src_step);
    }
    __device__ __forceinline__ float saved_at(int64_t i) const
    {
        return read_scalar(saved + i * saved_step);
    }
};

template <typename T> DEVICE void softmax_any_row(const strided_row<T> &row, float *memory)
{
    float most = -INFINITY;
    long_sum sum;
    for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
        most = fmaxf(most, row.at(i));
    most = max_of_block(most, memory);
    for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
        sum.add(softmax_term(row.at(i), most));
    const float scale = 1 / sum_of_block(sum.sum, memory);
    for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
        write_scalar(row.dst + i * row.dst_step, softmax_term(row.at(i), most) * scale);
}

template <typename T> DEVICE void softmax_gradient_any_row(const strided_row<T> &row, float *memory)
{
    long_sum dot;
    for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
        dot.add(row.at(i) * row.saved_at(i));
    const float all = sum_of_block(dot.sum, memory);
    for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
        write_scalar(row.dst + i * row.dst_step, row.saved_at(i) * (row.at(i) - all));
}

template <typename T> __global__ void softmax_any(GPU_PARAMETER strided_row<T> first, GPU_PARAMETER act_strides rows)
{
    __shared__ float memory[THREADS];
    for (int64_t i = blockIdx.x; i < rows.count; i += gridDim.x) {
        const act_offsets at = find_offsets(rows, (uint64_t)i);
        strided_row<T> row = first;
        row.src += at.src;
        row.saved += at.saved;
        row.dst += at.dst;
        if (row.saved == nullptr)
            softmax_any_row(row, memory);
        else
            softmax_gradient_any_row(row, memory);
    }
}

template <typename T>
copes_status run_any(const gpu_queue &queue, const copes_act_problem &problem, const act_strides &rows)
{
    const strided_row<T> first = {static_cast<const T *>(problem.src.data), static_cast<const T *>(problem.saved.data),
                                  static_cast<T *>(problem.dst.data),       problem.shape[problem.axis],
                                  problem.src.stride[problem.axis],         problem.saved.stride[problem.axis],
                                  problem.dst.stride[problem.axis]};
    return launch(queue, softmax_any<T>, blocks_of(rows.count, THREADS), THREADS, 0, first, rows);
}

template <typename T, int LANES, int P, bool BACKWARD>
copes_status launch_lanes(const gpu_queue &queue, const copes_act_problem &problem, const act_strides &rows)
{
    const int units = (int)problem.shape[problem.axis] / vector_length<T>;
    const int64_t blocks = (rows.count * LANES + THREADS - 1) / THREADS;
    return launch(queue, softmax_lanes<T, LANES, P, BACKWARD>, (unsigned)blocks, THREADS, 0,
                  static_cast<const T *>(problem.src.data), static_cast<const T *>(problem.saved.data),
                  static_cast<T *>(problem.dst.data), units, rows);
}

/* With as few lanes as have the row in two vectors each, or in four if there are not more. */
template <typename T, bool BACKWARD, int LANES = MOST_LANES>
copes_status run_lanes(const gpu_queue &queue, const copes_act_problem &problem, const act_strides &rows)
{
    const int units = (int)problem.shape[problem.axis] / vector_length<T>;
    if constexpr (LANES > 1)
        if (units <= LANES)
            return run_lanes<T, BACKWARD, LANES / 2>(queue, problem, rows);
    if constexpr (LANES == MOST_LANES)
        if (units > 2 * LANES)
            return launch_lanes<T, LANES, 4, BACKWARD>(queue, problem, rows);
    return launch_lanes<T, LANES, 2, BACKWARD>(queue, problem, rows);
}

template <typename T> copes_status run_softmax_rows(const gpu_queue &queue, const copes_act_problem &problem)
{
    constexpr int V = vector_length<T>;
    act_strides rows;
    for (int i = 0; i < problem.rank; i++)
        if (i != problem.axis)
            rows.add(problem, i, 1);
    const int64_t length = problem.shape[problem.axis];
    if (problem.axis != problem.rank - 1 || length % V != 0 || length > 4 * MOST_LANES * V ||
        !in_vectors<T>(problem.src, problem.shape, problem.rank) ||
        !in_vectors<T>(problem.saved, problem.shape, problem.rank) ||
        !in_vectors<T>(problem.dst, problem.shape, problem.rank))
        return run_any<T>(queue, problem, rows);
    return problem.backward ? run_lanes<T, true>(queue, problem, rows) : run_lanes<T, false>(queue, problem, rows);
}

template copes_status run_softmax_rows<f32>(const gpu_queue &, const copes_act_problem &);
template copes_status run_softmax_rows<f16>(const gpu_queue &, const copes_act_problem &);
template copes_status run_softmax_rows<bf16>(const gpu_queue &, const copes_act_problem &);

} // namespace COPES_GPU
