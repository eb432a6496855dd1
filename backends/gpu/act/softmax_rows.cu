/* Softmax along an axis, where neighbouring threads share a row. Up to 32 lanes hold a row of up to 128 vectors in
 * registers, so that memory is read once and binds. A block takes any other row (longer, strided or unaligned) and
 * reads it two or three times. */
#include "backends/gpu/act/lanes.h"
#include "backends/gpu/act/methods.h"

namespace COPES_GPU::act
{

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

/* A row along any axis, with any strides. */
template <typename T> struct strided_row {
    const T *src, *saved;
    T *dst;
    float *sums; /* of one pass alone */
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

template <typename T, copes_passes P> DEVICE void softmax_any_row(const strided_row<T> &row, float *memory)
{
    float most = -INFINITY, scale = 1;
    if (P == COPES_SECOND_PASS) {
        most = read_scalar(row.sums);
    } else {
        long_sum sum;
        for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
            most = fmaxf(most, row.at(i));
        most = max_of_block(most, memory);
        for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
            sum.add(softmax_term(row.at(i), P == COPES_FIRST_PASS && most == -INFINITY ? 0 : most));
        const float all = sum_of_block(sum.sum, memory);
        scale = 1 / all;
        if (P == COPES_FIRST_PASS && threadIdx.x == 0)
            write_scalar(row.sums, most + logf(all));
    }
    for (int64_t i = threadIdx.x; i < row.length && P != COPES_FIRST_PASS; i += blockDim.x)
        write_scalar(row.dst + i * row.dst_step, softmax_term(row.at(i), most) * scale);
}

template <typename T, copes_passes P> DEVICE void softmax_gradient_any_row(const strided_row<T> &row, float *memory)
{
    float all = 0;
    if (P == COPES_SECOND_PASS) {
        all = read_scalar(row.sums);
    } else {
        long_sum dot;
        for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
            dot.add(row.at(i) * row.saved_at(i));
        all = sum_of_block(dot.sum, memory);
        if (P == COPES_FIRST_PASS && threadIdx.x == 0)
            write_scalar(row.sums, all);
    }
    for (int64_t i = threadIdx.x; i < row.length && P != COPES_FIRST_PASS; i += blockDim.x)
        write_scalar(row.dst + i * row.dst_step, row.saved_at(i) * (row.at(i) - all));
}

template <typename T, copes_passes P>
__global__ void softmax_any(GPU_PARAMETER strided_row<T> first, GPU_PARAMETER act_strides rows)
{
    __shared__ float memory[THREADS];
    for (int64_t i = blockIdx.x; i < rows.count; i += gridDim.x) {
        const act_offsets at = find_offsets(rows, (uint64_t)i);
        strided_row<T> row = first;
        row.src += at.src;
        row.saved += at.saved;
        row.dst += at.dst;
        row.sums += at.sums;
        if (row.saved == nullptr)
            softmax_any_row<T, P>(row, memory);
        else
            softmax_gradient_any_row<T, P>(row, memory);
    }
}

inline constexpr variant_word lanes_name = "softmax_lanes", any_name = "softmax_any";
inline constexpr variant_word lane_counts[] = {"1", "2", "4", "8", "16", "32"};

constexpr int log2_of(int power)
{
    return power == 1 ? 0 : 1 + log2_of(power / 2);
}

template <typename T, int LANES, int P, bool BACKWARD>
inline constexpr const char *name_of_lanes = variant_name<lanes_name, type_name<T>, lane_counts[log2_of(LANES)],
                                                          vector_counts[P / 4], direction_names[BACKWARD]>::text;
template <typename T, copes_passes P>
inline constexpr const char *name_of_any = variant_name<any_name, type_name<T>, passes_names[P]>::text;
template <typename T>
inline constexpr const char *name_of_any<T, COPES_BOTH_PASSES> = variant_name<any_name, type_name<T>>::text;

/* It names its kernel itself: where a pointer's type chooses a kernel of which a const parameter's type depends on T, Clang 15 looks for
 * a symbol that does not exist. */
template <typename T, copes_passes P>
copes_status run_any(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    const strided_row<T> first = {static_cast<const T *>(p.src.data),
                                  static_cast<const T *>(p.saved.data),
                                  static_cast<T *>(p.dst.data),
                                  static_cast<float *>(p.sums.data),
                                  p.shape[p.axis],
                                  p.src.stride[p.axis],
                                  p.saved.stride[p.axis],
                                  p.dst.stride[p.axis]};
    return launch(queue, softmax_any<T, P>, grid_of(plan), block_of(plan), 0, first, tiling_of<act_strides>(plan));
}

template <typename T> using lanes_kernel = void(const T *, const T *, T *, int, act_strides);

template <typename T>
copes_status run_lanes(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    return launch_plan<lanes_kernel<T>>(queue, plan, static_cast<const T *>(p.src.data),
                                        static_cast<const T *>(p.saved.data), static_cast<T *>(p.dst.data),
                                        (int)p.shape[p.axis] / vector_length<T>, tiling_of<act_strides>(plan));
}

template <typename T, int LANES, int P, bool BACKWARD> bool take_lanes(int64_t rows, copes_plan *plan)
{
    set_launch(plan, (unsigned)((rows * LANES + THREADS - 1) / THREADS), THREADS, 0);
    return take<lanes_kernel<T>>(plan, name_of_lanes<T, LANES, P, BACKWARD>, run_lanes<T>,
                                 softmax_lanes<T, LANES, P, BACKWARD>);
}

/* Takes the fewest lanes that hold the row in two vectors each; MOST_LANES may hold four each. */
template <typename T, bool BACKWARD, int LANES = MOST_LANES>
bool choose_lanes(int units, int64_t rows, copes_plan *plan)
{
    if constexpr (LANES > 1)
        if (units <= LANES)
            return choose_lanes<T, BACKWARD, LANES / 2>(units, rows, plan);
    if constexpr (LANES == MOST_LANES)
        if (units > 2 * LANES)
            return take_lanes<T, LANES, 4, BACKWARD>(rows, plan);
    return take_lanes<T, LANES, 2, BACKWARD>(rows, plan);
}

template <typename T>
bool plan_lanes(const gpu_device &device, const copes_act_problem &problem, int64_t rows, copes_plan *plan)
{
    const int units = (int)(problem.shape[problem.axis] / vector_length<T>);
    if (!is_allowed(device, lanes_name, plan))
        return false;
    if (problem.passes != COPES_BOTH_PASSES)
        return refuse(plan, lanes_name, "the axis lies in shares");
    if (const char *why = refuse_lanes<T>(problem))
        return refuse(plan, lanes_name, why);
    return problem.backward ? choose_lanes<T, true>(units, rows, plan) : choose_lanes<T, false>(units, rows, plan);
}

template <typename T>
copes_status plan_softmax_rows(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan)
{
    act_strides rows;
    for (int i = 0; i < problem.rank; i++)
        if (i != problem.axis)
            rows.add(problem, i, 1);
    set_tiling(plan, rows);
    if (plan_lanes<T>(device, problem, rows.count, plan) || plan_softmax_shares<T>(device, problem, rows.count, plan))
        return COPES_OK;
    set_launch(plan, blocks_of(rows.count, THREADS), THREADS, 0);
    if (problem.passes == COPES_FIRST_PASS)
        take(plan, name_of_any<T, COPES_FIRST_PASS>, run_any<T, COPES_FIRST_PASS>);
    else if (problem.passes == COPES_SECOND_PASS)
        take(plan, name_of_any<T, COPES_SECOND_PASS>, run_any<T, COPES_SECOND_PASS>);
    else
        take(plan, name_of_any<T, COPES_BOTH_PASSES>, run_any<T, COPES_BOTH_PASSES>);
    return COPES_OK;
}

template <typename T, int LANES, int P> void add_lanes(variant_list *list)
{
    list->add(name_of_lanes<T, LANES, P, false>);
    list->add(name_of_lanes<T, LANES, P, true>);
}

template <typename T> void list_softmax_rows(variant_list *list)
{
    add_lanes<T, 1, 2>(list);
    add_lanes<T, 2, 2>(list);
    add_lanes<T, 4, 2>(list);
    add_lanes<T, 8, 2>(list);
    add_lanes<T, 16, 2>(list);
    add_lanes<T, 32, 2>(list);
    add_lanes<T, 32, 4>(list);
    list->add(name_of_any<T, COPES_BOTH_PASSES>);
    list->add(name_of_any<T, COPES_FIRST_PASS>);
    list->add(name_of_any<T, COPES_SECOND_PASS>);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status plan_softmax_rows<T>(const gpu_device &, const copes_act_problem &, copes_plan *);           \
    template void list_softmax_rows<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::act
