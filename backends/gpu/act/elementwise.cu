/* act, and its elementwise kernels. Bound by memory: one vector a thread, and enough blocks to hide every latency,
 * since on an H200 that launch runs a copy at the rate of cudaMemcpy and longer threads do not. Strided or unaligned
 * tensors go element by element. */
#include "backends/gpu/act/strides.h"
#include "backends/gpu/functions.h"
#include "backends/gpu/kernels.h"

namespace COPES_GPU
{

enum { THREADS = 256 };

/* One unit of V elements. */
template <typename T, int V> DEVICE void act_unit(copes_act act, const T *src, const T *saved, T *dst)
{
    float x[1][V], y[1][V];
    const raw<T, V> first = raw<T, V>::read(src);
    if (saved != nullptr) {
        const raw<T, V> second = raw<T, V>::read(saved);
        first.unpack(x[0]);
        second.unpack(y[0]);
        activation_gradient_all<T, false, 1>(act, &second, x, y);
    } else {
        first.unpack(x[0]);
        activate_all<T, false, 1>(act, &first, x);
    }
    raw<T, V>::write(dst, x[0]);
}

/* Neighbours in every tensor. The last thread may have less than a vector. */
template <typename T, copes_act ACT, bool BACKWARD>
__global__ void act_line(const T *src, const T *saved, T *dst, int64_t count)
{
    constexpr int V = vector_length<T>;
    const int64_t begin = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (begin + V <= count)
        act_unit<T, V>(ACT, src + begin, BACKWARD ? saved + begin : nullptr, dst + begin);
    else
        for (int64_t i = begin; i < count; i++)
            act_unit<T, 1>(ACT, src + i, BACKWARD ? saved + i : nullptr, dst + i);
}

/* Any strides: a unit is V neighbours of the last dimension. */
template <typename T, int V, typename Index>
__global__ void act_strided(copes_act act, const T *src, const T *saved, T *dst, GPU_PARAMETER act_strides units)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t unit = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; unit < units.count; unit += step) {
        const act_offsets at = find_offsets(units, (Index)unit);
        act_unit<T, V>(act, src + at.src, saved == nullptr ? nullptr : saved + at.saved, dst + at.dst);
    }
}

template <typename T, copes_act ACT> copes_status launch_line(const gpu_queue &queue, const copes_act_problem &problem)
{
    const int64_t count = problem.shape[0], threads = (count + vector_length<T> - 1) / vector_length<T>;
    const dim3 blocks((unsigned)((threads + THREADS - 1) / THREADS));
    return launch(queue, problem.saved.data != nullptr ? act_line<T, ACT, true> : act_line<T, ACT, false>, blocks,
                  THREADS, 0, static_cast<const T *>(problem.src.data), static_cast<const T *>(problem.saved.data),
                  static_cast<T *>(problem.dst.data), count);
}

template <typename T> copes_status run_line(const gpu_queue &queue, const copes_act_problem &problem)
{
    switch (problem.act) {
    case COPES_ACT_RELU: return launch_line<T, COPES_ACT_RELU>(queue, problem);
    case COPES_ACT_SIGMOID: return launch_line<T, COPES_ACT_SIGMOID>(queue, problem);
    case COPES_ACT_SILU: return launch_line<T, COPES_ACT_SILU>(queue, problem);
    default: return launch_line<T, COPES_ACT_NONE>(queue, problem);
    }
}

template <typename T, int V> copes_status run_strided(const gpu_queue &queue, const copes_act_problem &problem)
{
    act_strides units;
    for (int i = 0; i < problem.rank; i++)
        units.add(problem, i, i == problem.rank - 1 ? V : 1);
    const unsigned blocks = blocks_of((units.count + THREADS - 1) / THREADS, THREADS);
    return launch(queue, units.count <= INT32_MAX ? act_strided<T, V, uint32_t> : act_strided<T, V, uint64_t>, blocks,
                  THREADS, 0, problem.act, static_cast<const T *>(problem.src.data),
                  static_cast<const T *>(problem.saved.data), static_cast<T *>(problem.dst.data), units);
}

template <typename T> copes_status run_elementwise(const gpu_queue &queue, const copes_act_problem &problem)
{
    constexpr int V = vector_length<T>;
    if (!in_vectors<T>(problem.src, problem.shape, problem.rank) ||
        !in_vectors<T>(problem.saved, problem.shape, problem.rank) ||
        !in_vectors<T>(problem.dst, problem.shape, problem.rank))
        return run_strided<T, 1>(queue, problem);
    if (problem.rank == 1)
        return run_line<T>(queue, problem);
    return problem.shape[problem.rank - 1] % V == 0 ? run_strided<T, V>(queue, problem)
                                                    : run_strided<T, 1>(queue, problem);
}

/* Softmax along an axis with others inside it is softmax over a sequence, where the dimensions are few enough to be
 * batch, sequence, heads and features. */
static bool as_sequence(const copes_act_problem &problem, copes_lrpe_problem *sequence)
{
    const int axis = problem.axis, after = problem.rank - 1 - axis;
    if (axis > 1 || after < 1 || after > 2)
        return false;
    *sequence = {};
    sequence->variant = COPES_LRPE_ROTATE;
    sequence->act = COPES_ACT_SOFTMAX;
    sequence->softmax = COPES_OVER_SEQUENCE;
    sequence->backward = problem.backward;
    sequence->dtype = problem.dtype;
    sequence->b = axis == 1 ? problem.shape[0] : 1;
    sequence->n = sequence->length = sequence->grid[0] = problem.shape[axis];
    sequence->h = after == 2 ? problem.shape[axis + 1] : 1;
    sequence->d = problem.shape[problem.rank - 1];
    sequence->grid_rank = 1;
    const copes_view *from[] = {&problem.src, &problem.saved, &problem.dst};
    copes_view *to[] = {&sequence->src, &sequence->x, &sequence->dst};
    for (int i = 0; i < 3; i++) {
        to[i]->data = from[i]->data;
        to[i]->stride[0] = axis == 1 ? from[i]->stride[0] : 0;
        to[i]->stride[1] = from[i]->stride[axis];
        to[i]->stride[2] = after == 2 ? from[i]->stride[axis + 1] : 0;
        to[i]->stride[3] = from[i]->stride[problem.rank - 1];
    }
    return true;
}

template <typename T> int64_t act_workspace(const gpu_queue &queue, const copes_act_problem &problem)
{
    copes_lrpe_problem sequence;
    return problem.axis >= 0 && as_sequence(problem, &sequence) ? sequence_workspace<T>(queue, sequence, true) : 0;
}

template <typename T> copes_status run_act(const gpu_queue &queue, const copes_act_problem &problem, void *workspace)
{
    copes_lrpe_problem sequence;
    if (problem.axis < 0)
        return run_elementwise<T>(queue, problem);
    return as_sequence(problem, &sequence) ? run_sequence<T>(queue, sequence, true, workspace)
                                           : run_softmax_rows<T>(queue, problem);
}

/* Some kernel of this build stands for all. */
GPU(Error_t) find_code(int *architecture)
{
    GPU(FuncAttributes) attributes = {};
    const GPU(Error_t) error =
        GPU(FuncGetAttributes)(&attributes, reinterpret_cast<const void *>(act_line<f32, COPES_ACT_NONE, false>));
    *architecture = attributes.ptxVersion;
    return error;
}

#define INSTANTIATE(T)                                                                                                 \
    template int64_t act_workspace<T>(const gpu_queue &, const copes_act_problem &);                                   \
    template copes_status run_act<T>(const gpu_queue &, const copes_act_problem &, void *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU
