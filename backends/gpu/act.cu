/* act: elementwise activations. Bound by memory: one vector a thread, and enough blocks to hide every latency, since on an
 * H200 that launch runs a copy at the rate of cudaMemcpy and longer threads do not. Strided or unaligned tensors go
 * element by element. */
#include "backends/gpu/divide.h"
#include "backends/gpu/functions.h"
#include "backends/gpu/kernels.h"

namespace COPES_GPU {

enum { THREADS = 256 };

/* One unit of V elements. */
template <typename T, int V> DEVICE void act_unit(copes_act act, const T *src, const T *saved, T *dst)
{
    float x[V], y[V];
    const raw<T, V> first = raw<T, V>::read(src);
    if (saved != nullptr) {
        const raw<T, V> second = raw<T, V>::read(saved);
        second.unpack(y);
    }
    first.unpack(x);
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] = saved != nullptr ? activation_gradient(act, x[i], y[i]) : activate(act, x[i]);
    raw<T, V>::write(dst, x);
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

/* Any strides: a unit is V neighbours of the last dimension, `lengths` counts units. */
struct act_strides {
    int rank;
    int64_t length[COPES_MAX_RANK];
    int64_t src[COPES_MAX_RANK], saved[COPES_MAX_RANK], dst[COPES_MAX_RANK]; /* a unit's, in elements */
};

template <typename T, int V, typename Index>
__global__ void act_strided(copes_act act, const T *src, const T *saved, T *dst, int64_t units, GPU_PARAMETER act_strides s)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t unit = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; unit < units; unit += step) {
        Index rest = (Index)unit;
        int64_t from = 0, kept = 0, to = 0;
        for (int i = s.rank - 1; i >= 0; i--) {
            const int64_t index = rest % (Index)s.length[i];
            rest /= (Index)s.length[i];
            from += index * s.src[i];
            kept += index * s.saved[i];
            to += index * s.dst[i];
        }
        act_unit<T, V>(act, src + from, saved == nullptr ? nullptr : saved + kept, dst + to);
    }
}

template <typename T, copes_act ACT> copes_status launch_line(const queue &to, const copes_act_problem &problem)
{
    const int64_t count = problem.shape[0], threads = (count + vector_length<T> - 1) / vector_length<T>;
    const dim3 blocks((unsigned)((threads + THREADS - 1) / THREADS));
    return launch(to, problem.saved.data != nullptr ? act_line<T, ACT, true> : act_line<T, ACT, false>, blocks, THREADS, 0,
                  static_cast<const T *>(problem.src.data), static_cast<const T *>(problem.saved.data),
                  static_cast<T *>(problem.dst.data), count);
}

template <typename T> copes_status run_line(const queue &to, const copes_act_problem &problem)
{
    switch (problem.act) {
    case COPES_RELU: return launch_line<T, COPES_RELU>(to, problem);
    case COPES_SIGMOID: return launch_line<T, COPES_SIGMOID>(to, problem);
    case COPES_SILU: return launch_line<T, COPES_SILU>(to, problem);
    default: return launch_line<T, COPES_NONE>(to, problem);
    }
}

template <typename T, int V> copes_status run_strided(const queue &to, const copes_act_problem &problem)
{
    act_strides s = {.rank = problem.rank};
    int64_t units = 1;
    for (int i = 0; i < s.rank; i++) {
        const int unit = i == s.rank - 1 ? V : 1;
        s.length[i] = problem.shape[i] / unit;
        s.src[i] = problem.src.stride[i] * unit;
        s.saved[i] = problem.saved.stride[i] * unit;
        s.dst[i] = problem.dst.stride[i] * unit;
        units *= s.length[i];
    }
    const int64_t wanted = (units + THREADS - 1) / THREADS, most = INT32_MAX;
    const dim3 blocks((unsigned)(wanted < most ? wanted : most));
    return launch(to, units <= INT32_MAX ? act_strided<T, V, uint32_t> : act_strided<T, V, uint64_t>, blocks, THREADS, 0,
                  problem.act, static_cast<const T *>(problem.src.data), static_cast<const T *>(problem.saved.data),
                  static_cast<T *>(problem.dst.data), units, s);
}

template <typename T> bool fits_vectors(const copes_act_problem &problem)
{
    return in_vectors<T>(problem.src, problem.shape, problem.rank) &&
           in_vectors<T>(problem.saved, problem.shape, problem.rank) &&
           in_vectors<T>(problem.dst, problem.shape, problem.rank);
}

template <typename T> copes_status run_act(const queue &to, const copes_act_problem &problem)
{
    if (!fits_vectors<T>(problem))
        return run_strided<T, 1>(to, problem);
    if (problem.rank == 1)
        return run_line<T>(to, problem);
    return problem.shape[problem.rank - 1] % vector_length<T> == 0 ? run_strided<T, vector_length<T>>(to, problem)
                                                                   : run_strided<T, 1>(to, problem);
}

template copes_status run_act<f32>(const queue &, const copes_act_problem &);
template copes_status run_act<f16>(const queue &, const copes_act_problem &);
template copes_status run_act<bf16>(const queue &, const copes_act_problem &);

} // namespace COPES_GPU
