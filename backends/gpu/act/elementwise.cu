/* Elementwise activations, bound by memory. Each thread takes one vector: on an H200 such a launch copies at the rate
 * of cudaMemcpy; threads that take more do not. Strided or unaligned tensors go by vectors where their rows allow it,
 * else by elements. */
#include "backends/gpu/act/methods.h"
#include "backends/gpu/act/strides.h"
#include "backends/gpu/functions.h"
#include "backends/gpu/names.h"

namespace COPES_GPU::act
{

enum { THREADS = 256 };

/* What a kernel computes: act(x), or its gradient from x, or sigmoid's from o = act(x). relu's result serves as its argument. */
enum act_pass { FORWARD, OF_X, OF_OUTPUT };

/* One unit of V elements. */
template <typename T, int V> DEVICE void act_unit(copes_act act, act_pass pass, const T *src, const T *saved, T *dst)
{
    float x[1][V], y[1][V];
    const raw<T, V> first = raw<T, V>::read(src);
    if (pass == FORWARD) {
        first.unpack(x[0]);
        activate_all<T, false, 1>(act, are_usual<T, 1>(&first), x);
    } else {
        const raw<T, V> second = raw<T, V>::read(saved);
        first.unpack(x[0]);
        second.unpack(y[0]);
        if (pass == OF_X) {
            activation_gradient_all<T, false, 1>(act, are_usual<T, 1>(&second), x, y);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++)
                x[0][i] = sigmoid_gradient_of_output(x[0][i], y[0][i]);
        }
    }
    raw<T, V>::write(dst, x[0]);
}

/* Every tensor is contiguous. The last thread may have less than a vector. */
template <typename T, copes_act ACT, act_pass PASS>
__global__ void act_line(const T *src, const T *saved, T *dst, int64_t count)
{
    constexpr int V = vector_length<T>;
    const int64_t begin = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (begin + V <= count)
        act_unit<T, V>(ACT, PASS, src + begin, PASS == FORWARD ? nullptr : saved + begin, dst + begin);
    else
        for (int64_t i = begin; i < count; i++)
            act_unit<T, 1>(ACT, PASS, src + i, PASS == FORWARD ? nullptr : saved + i, dst + i);
}

/* Any strides. A unit is V neighbours along the last dimension. */
template <typename T, int V>
__global__ void act_strided(copes_act act, act_pass pass, const T *src, const T *saved, T *dst,
                            GPU_PARAMETER act_strides units)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t unit = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; unit < units.count; unit += step) {
        const act_offsets at = find_offsets(units, unit);
        act_unit<T, V>(act, pass, src + at.src, saved + at.saved, dst + at.dst);
    }
}

inline constexpr variant_word line_name = "act_line", strided_name = "act_strided";
inline constexpr variant_word act_names[] = {"none", "relu", "sigmoid", "silu"};
inline constexpr variant_word pass_names[] = {"forward", "backward", "of_output"};
inline constexpr variant_word unit_names[] = {"scalar", "vector"};

template <typename T, copes_act ACT, act_pass PASS>
inline constexpr const char *name_of_line =
    variant_name<line_name, type_name<T>, act_names[ACT], pass_names[PASS]>::text;
template <typename T, int V>
inline constexpr const char *name_of_strided = variant_name<strided_name, type_name<T>, unit_names[V > 1]>::text;

/* The gradient of none is a copy, as its forward is. */
inline act_pass pass_of(const copes_act_problem &problem)
{
    if (problem.saved.data == nullptr)
        return FORWARD;
    return problem.of_output && problem.act == COPES_ACT_SIGMOID ? OF_OUTPUT : OF_X;
}

template <typename T> using line_kernel = void(const T *, const T *, T *, int64_t);

template <typename T>
copes_status run_line(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    return launch_plan<line_kernel<T>>(queue, plan, static_cast<const T *>(p.src.data),
                                       static_cast<const T *>(p.saved.data), static_cast<T *>(p.dst.data), p.shape[0]);
}

template <typename T, copes_act ACT, act_pass PASS> bool take_line(copes_plan *plan)
{
    return take<line_kernel<T>>(plan, name_of_line<T, ACT, PASS>, run_line<T>, act_line<T, ACT, PASS>);
}

template <typename T, copes_act ACT> bool take_line(const copes_act_problem &problem, copes_plan *plan)
{
    const int64_t threads = (problem.shape[0] + vector_length<T> - 1) / vector_length<T>;
    set_launch(plan, dim3((unsigned)((threads + THREADS - 1) / THREADS)), THREADS, 0);
    if constexpr (ACT == COPES_ACT_SIGMOID)
        if (pass_of(problem) == OF_OUTPUT)
            return take_line<T, ACT, OF_OUTPUT>(plan);
    if constexpr (ACT != COPES_ACT_NONE)
        if (pass_of(problem) == OF_X)
            return take_line<T, ACT, OF_X>(plan);
    return take_line<T, ACT, FORWARD>(plan);
}

/* Can all tensors be read and written in whole vectors? */
template <typename T> bool in_vectors(const copes_act_problem &problem)
{
    return COPES_GPU::in_vectors<T>(problem.src, problem.shape, problem.rank) &&
           COPES_GPU::in_vectors<T>(problem.saved, problem.shape, problem.rank) &&
           COPES_GPU::in_vectors<T>(problem.dst, problem.shape, problem.rank);
}

template <typename T> bool plan_line(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan)
{
    if (!is_allowed(device, line_name, plan))
        return false;
    if (problem.rank > 1)
        return refuse(plan, line_name, "the tensors' strides do not merge into one dimension");
    if (!in_vectors<T>(problem))
        return refuse(plan, line_name, "a tensor is not contiguous, or not aligned to 16 bytes");
    switch (problem.act) {
    case COPES_ACT_RELU: return take_line<T, COPES_ACT_RELU>(problem, plan);
    case COPES_ACT_SIGMOID: return take_line<T, COPES_ACT_SIGMOID>(problem, plan);
    case COPES_ACT_SILU: return take_line<T, COPES_ACT_SILU>(problem, plan);
    default: return take_line<T, COPES_ACT_NONE>(problem, plan);
    }
}

template <typename T> using strided_kernel = void(copes_act, act_pass, const T *, const T *, T *, act_strides);

template <typename T>
copes_status run_strided(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    return launch_plan<strided_kernel<T>>(queue, plan, p.act, pass_of(p), static_cast<const T *>(p.src.data),
                                          static_cast<const T *>(p.saved.data), static_cast<T *>(p.dst.data),
                                          tiling_of<act_strides>(plan));
}

template <typename T, int V> void take_strided(const copes_act_problem &problem, copes_plan *plan)
{
    act_strides units;
    for (int i = 0; i < problem.rank; i++)
        units.add(problem, i, i == problem.rank - 1 ? V : 1);
    set_launch(plan, blocks_of((units.count + THREADS - 1) / THREADS, THREADS), THREADS, 0);
    set_tiling(plan, units);
    take<strided_kernel<T>>(plan, name_of_strided<T, V>, run_strided<T>, act_strided<T, V>);
}

template <typename T>
copes_status plan_elementwise(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan)
{
    constexpr int V = vector_length<T>;
    if (plan_line<T>(device, problem, plan))
        return COPES_OK;
    if (in_vectors<T>(problem) && problem.shape[problem.rank - 1] % V == 0)
        take_strided<T, V>(problem, plan);
    else
        take_strided<T, 1>(problem, plan);
    return COPES_OK;
}

template <typename T, copes_act... ACT> void list_lines(variant_list *list)
{
    list->add(name_of_line<T, COPES_ACT_NONE, FORWARD>);
    ((list->add(name_of_line<T, ACT, FORWARD>), list->add(name_of_line<T, ACT, OF_X>)), ...);
    list->add(name_of_line<T, COPES_ACT_SIGMOID, OF_OUTPUT>);
}

template <typename T> void list_elementwise(variant_list *list)
{
    list_lines<T, COPES_ACT_RELU, COPES_ACT_SIGMOID, COPES_ACT_SILU>(list);
    list->add(name_of_strided<T, 1>);
    list->add(name_of_strided<T, vector_length<T>>);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status plan_elementwise<T>(const gpu_device &, const copes_act_problem &, copes_plan *);            \
    template void list_elementwise<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::act

#ifdef COPES_PORTABLE
#error "the kernel below is to tell what it was compiled for: backends/cuda/meson.build"
#endif

/* One kernel of this build stands for all. */
GPU(Error_t) COPES_GPU::find_code(int *architecture)
{
    GPU(FuncAttributes) attributes = {};
    const auto kernel = act::act_line<f32, COPES_ACT_NONE, act::FORWARD>;
    const GPU(Error_t) error = GPU(FuncGetAttributes)(&attributes, reinterpret_cast<const void *>(kernel));
    *architecture = attributes.ptxVersion;
    return error;
}
