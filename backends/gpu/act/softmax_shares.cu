/* One pass of softmax over rows whose axis lies in shares: a share's sums alone, or its result from those of all. Up to 32 lanes hold
 * the share's part of a row, so that memory is read once and binds. */
#include "backends/gpu/act/lanes.h"
#include "backends/gpu/act/methods.h"

namespace COPES_GPU::act
{

/* A row of no elements, too, has its sums. */
template <typename T, int P, bool BACKWARD, copes_passes PASS>
__global__ void softmax_shares(const T *src, const T *saved, T *dst, float *sums, int units, int log2_lanes,
                               GPU_PARAMETER act_strides rows)
{
    const int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) >> log2_lanes;
    const bool exists = row < rows.count;
    const int lanes = 1 << log2_lanes, lane = (int)threadIdx.x & (lanes - 1), live = exists ? units : 0;
    const act_offsets at = find_offsets(rows, (uint64_t)row);
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
    const float sum = exists ? read_scalar(sums + at.sums) : 0;
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
        for (int i = 0; i < row_part<T, P>::V; i++)
            x.x[p][i] = BACKWARD ? y.x[p][i] * (x.x[p][i] - sum) : softmax_term(x.x[p][i], sum);
    x.write(dst + at.dst, lane, lanes, live);
}

inline constexpr variant_word shares_name = "softmax_shares";

template <typename T, int P, bool BACKWARD, copes_passes PASS>
inline constexpr const char *name_of_shares =
    variant_name<shares_name, type_name<T>, vector_counts[P / 4], direction_names[BACKWARD], passes_names[PASS]>::text;

/* Does a lane have four vectors of a row, not two? Forward's sums need few registers for each. Elsewhere fewer threads would run at
 * once, which is slower, so that four are for rows that MOST_LANES do not hold in two. */
static bool has_four(const copes_act_problem &problem, int units)
{
    return units > 2 * MOST_LANES || (!problem.backward && problem.passes == COPES_FIRST_PASS);
}

/* The fewest lanes, a power of two, that hold a row. */
static int log2_lanes_of(const copes_act_problem &problem, int units)
{
    const int each = has_four(problem, units) ? 4 : 2;
    int log2 = 0;
    while (each << log2 < units)
        log2++;
    return log2;
}

template <typename T> using shares_kernel = void(const T *, const T *, T *, float *, int, int, act_strides);

template <typename T>
copes_status run_shares(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    const int units = (int)(p.shape[p.axis] / vector_length<T>);
    return launch_plan<shares_kernel<T>>(queue, plan, static_cast<const T *>(p.src.data),
                                         static_cast<const T *>(p.saved.data), static_cast<T *>(p.dst.data),
                                         static_cast<float *>(p.sums.data), units, log2_lanes_of(p, units),
                                         tiling_of<act_strides>(plan));
}

template <typename T, int P, bool BACKWARD> bool take_pass(const copes_act_problem &problem, copes_plan *plan)
{
    if constexpr (P == 4 || BACKWARD)
        if (problem.passes == COPES_FIRST_PASS)
            return take<shares_kernel<T>>(plan, name_of_shares<T, P, BACKWARD, COPES_FIRST_PASS>, run_shares<T>,
                                          softmax_shares<T, P, BACKWARD, COPES_FIRST_PASS>);
    return take<shares_kernel<T>>(plan, name_of_shares<T, P, BACKWARD, COPES_SECOND_PASS>, run_shares<T>,
                                  softmax_shares<T, P, BACKWARD, COPES_SECOND_PASS>);
}

template <typename T, int P> bool take_direction(const copes_act_problem &problem, copes_plan *plan)
{
    return problem.backward ? take_pass<T, P, true>(problem, plan) : take_pass<T, P, false>(problem, plan);
}

template <typename T>
bool plan_softmax_shares(const gpu_device &device, const copes_act_problem &problem, int64_t rows, copes_plan *plan)
{
    if (problem.passes == COPES_BOTH_PASSES || !is_allowed(device, shares_name, plan))
        return false;
    if (const char *why = refuse_lanes<T>(problem))
        return refuse(plan, shares_name, why);
    const int units = (int)(problem.shape[problem.axis] / vector_length<T>),
              rows_of_block = THREADS >> log2_lanes_of(problem, units);
    const double blocks = ceil((double)rows / rows_of_block);
    if (blocks > INT32_MAX)
        return refuse(plan, shares_name, "there are more blocks than a launch takes");
    set_launch(plan, (unsigned)blocks, THREADS, 0);
    return has_four(problem, units) ? take_direction<T, 4>(problem, plan) : take_direction<T, 2>(problem, plan);
}

template <typename T, int P, bool BACKWARD> static void add_passes(variant_list *list)
{
    if (P == 4 || BACKWARD)
        list->add(name_of_shares<T, P, BACKWARD, COPES_FIRST_PASS>);
    list->add(name_of_shares<T, P, BACKWARD, COPES_SECOND_PASS>);
}

template <typename T> void list_softmax_shares(variant_list *list)
{
    add_passes<T, 2, false>(list);
    add_passes<T, 2, true>(list);
    add_passes<T, 4, false>(list);
    add_passes<T, 4, true>(list);
}

#define INSTANTIATE(T)                                                                                                 \
    template bool plan_softmax_shares<T>(const gpu_device &, const copes_act_problem &, int64_t, copes_plan *);        \
    template void list_softmax_shares<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::act
