/* Softmax over short rows along the innermost axis that are whole vectors, in both passes or one: up to 32 neighbouring threads, the lanes,
 * hold a row, so that memory is read once and binds. */
#include "backends/gpu/act/methods.h"
#include "backends/gpu/act/strides.h"
#include "backends/gpu/plan.h"
#include "backends/gpu/softmax.h"

namespace COPES_GPU::act
{

inline constexpr int THREADS = 128, MOST_LANES = 32;

/* A lane's part of a row: P vectors, `lanes` apart. */
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

/* The result of a row from its sums. */
template <bool BACKWARD, int P, int V> DEVICE void apply_sums(const float (&y)[P][V], float (&x)[P][V], float sum)
{
#pragma unroll
    for (int i = 0; i < P * V; i++) {
        float &value = x[i / V][i % V];
        value = BACKWARD ? y[i / V][i % V] * (value - sum) : softmax_term(value, sum);
    }
}

/* A row of no elements, too, has its sums. */
template <typename T, int P, bool BACKWARD, copes_passes PASS>
__global__ void softmax_lanes(const T *src, const T *saved, T *dst, float *sums, int units, int log2_lanes,
                              GPU_PARAMETER act_strides rows)
{
    const int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) >> log2_lanes;
    const bool exists = row < rows.count;
    const int lanes = 1 << log2_lanes, lane = (int)threadIdx.x & (lanes - 1), live = exists ? units : 0;
    const act_offsets at = find_offsets(rows, row);
    row_part<T, P> x, y;
    x.read(src + at.src, lane, lanes, live, BACKWARD ? 0 : -INFINITY);
    if (BACKWARD)
        y.read(saved + at.saved, lane, lanes, live, 0);
    if (PASS == COPES_FIRST_PASS) {
        const float sum = BACKWARD ? dot_of_row<P>(y.x, x.x, lanes) : lse_of_row<T, P>(x.x, lanes);
        if (exists && lane == 0)
            write_scalar(sums + at.sums, sum);
        return;
    }
    if (PASS == COPES_SECOND_PASS)
        apply_sums<BACKWARD>(y.x, x.x, exists ? read_scalar(sums + at.sums) : 0);
    else if (BACKWARD)
        softmax_gradient_row<P>(y.x, x.x, lanes);
    else
        softmax_row<T, P>(x.x, lanes);
    x.write(dst + at.dst, lane, lanes, live);
}

inline constexpr variant_word lanes_name = "softmax_lanes", vector_counts[] = {"2", "4"};

template <typename T, int P, bool BACKWARD, copes_passes PASS>
inline constexpr const char *name_of_lanes =
    variant_name<lanes_name, type_name<T>, vector_counts[P / 4], direction_names[BACKWARD], passes_names[PASS]>::text;
template <typename T, int P, bool BACKWARD>
inline constexpr const char *name_of_lanes<T, P, BACKWARD, COPES_BOTH_PASSES> =
    variant_name<lanes_name, type_name<T>, vector_counts[P / 4], direction_names[BACKWARD]>::text;

/* Does a lane have four vectors of a row, not two? The forward's sums need few registers for each. Its result has four where MOST_LANES
 * do not hold a row in two, as then fewer threads run at once. */
static bool has_four(const copes_act_problem &problem, int64_t units)
{
    return !problem.backward && (problem.passes == COPES_FIRST_PASS || units > 2 * MOST_LANES);
}

/* The fewest lanes, a power of two, that have a row. */
static int log2_lanes_of(const copes_act_problem &problem, int units)
{
    const int each = has_four(problem, units) ? 4 : 2;
    int log2 = 0;
    while (each << log2 < units)
        log2++;
    return log2;
}

template <typename T> using lanes_kernel = void(const T *, const T *, T *, float *, int, int, act_strides);

template <typename T>
copes_status run_lanes(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    const int units = (int)(p.shape[p.axis] / vector_length<T>);
    return launch_plan<lanes_kernel<T>>(queue, plan, static_cast<const T *>(p.src.data),
                                        static_cast<const T *>(p.saved.data), static_cast<T *>(p.dst.data),
                                        static_cast<float *>(p.sums.data), units, log2_lanes_of(p, units),
                                        tiling_of<act_strides>(plan));
}

template <typename T, bool BACKWARD, copes_passes PASS, int P> bool take_lanes(copes_plan *plan)
{
    return take<lanes_kernel<T>>(plan, name_of_lanes<T, P, BACKWARD, PASS>, run_lanes<T>,
                                 softmax_lanes<T, P, BACKWARD, PASS>);
}

template <typename T> bool choose_lanes(const copes_act_problem &problem, int64_t units, copes_plan *plan)
{
    switch (problem.passes) {
    case COPES_FIRST_PASS:
        return problem.backward ? take_lanes<T, true, COPES_FIRST_PASS, 2>(plan)
                                : take_lanes<T, false, COPES_FIRST_PASS, 4>(plan);
    case COPES_SECOND_PASS:
        return problem.backward ? take_lanes<T, true, COPES_SECOND_PASS, 2>(plan)
                                : take_lanes<T, false, COPES_SECOND_PASS, 2>(plan);
    default:
        if (problem.backward)
            return take_lanes<T, true, COPES_BOTH_PASSES, 2>(plan);
        return has_four(problem, units) ? take_lanes<T, false, COPES_BOTH_PASSES, 4>(plan)
                                        : take_lanes<T, false, COPES_BOTH_PASSES, 2>(plan);
    }
}

/* Why lanes do not hold the rows of a problem; nullptr: they do. */
template <typename T> const char *refuse_lanes(const copes_act_problem &problem)
{
    constexpr int V = vector_length<T>;
    const int64_t length = problem.shape[problem.axis];
    const bool holds_four = !problem.backward && problem.passes != COPES_SECOND_PASS;
    if (problem.axis != problem.rank - 1)
        return "the axis is not the innermost in memory";
    if (length % V != 0 || length > (holds_four ? 4 : 2) * MOST_LANES * V)
        return "a row is not whole vectors of 16 bytes, or too many of them";
    if (!in_vectors<T>(problem.src, problem.shape, problem.rank) ||
        !in_vectors<T>(problem.saved, problem.shape, problem.rank) ||
        !in_vectors<T>(problem.dst, problem.shape, problem.rank))
        return "a tensor's rows are not aligned to 16 bytes";
    return nullptr;
}

template <typename T>
bool plan_softmax_lanes(const gpu_device &device, const copes_act_problem &problem, int64_t rows, copes_plan *plan)
{
    if (!is_allowed(device, lanes_name, plan))
        return false;
    if (const char *why = refuse_lanes<T>(problem))
        return refuse(plan, lanes_name, why);
    const int units = (int)(problem.shape[problem.axis] / vector_length<T>);
    const double blocks = ceil((double)rows / (THREADS >> log2_lanes_of(problem, units)));
    if (blocks > INT32_MAX || blocks * THREADS > (double)MOST_GRID_THREADS)
        return refuse(plan, lanes_name, "there are more blocks than a launch takes");
    set_launch(plan, (unsigned)blocks, THREADS, 0);
    return choose_lanes<T>(problem, units, plan);
}

template <typename T> void list_softmax_lanes(variant_list *list)
{
    list->add(name_of_lanes<T, 2, false, COPES_BOTH_PASSES>);
    list->add(name_of_lanes<T, 4, false, COPES_BOTH_PASSES>);
    list->add(name_of_lanes<T, 4, false, COPES_FIRST_PASS>);
    list->add(name_of_lanes<T, 2, false, COPES_SECOND_PASS>);
    list->add(name_of_lanes<T, 2, true, COPES_BOTH_PASSES>);
    list->add(name_of_lanes<T, 2, true, COPES_FIRST_PASS>);
    list->add(name_of_lanes<T, 2, true, COPES_SECOND_PASS>);
}

#define INSTANTIATE(T)                                                                                                 \
    template bool plan_softmax_lanes<T>(const gpu_device &, const copes_act_problem &, int64_t, copes_plan *);         \
    template void list_softmax_lanes<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::act
