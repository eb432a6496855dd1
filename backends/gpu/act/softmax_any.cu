/* Softmax along any axis, of any type and strides, in both passes or one: a block takes a row, and reads it up to three times. */
#include "backends/gpu/act/methods.h"
#include "backends/gpu/act/strides.h"
#include "backends/gpu/plan.h"
#include "backends/gpu/softmax.h"

namespace COPES_GPU::act
{

enum { THREADS = 128 };

struct strided_row {
    any_pointer src, saved, dst;
    float *sums; /* of one pass alone */
    copes_passes passes;
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

DEVICE void softmax_any_row(const strided_row &row, float *memory)
{
    float most = -INFINITY, scale = 1;
    if (row.passes == COPES_SECOND_PASS) {
        most = read_scalar(row.sums);
    } else {
        long_sum sum;
        for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
            most = fmaxf(most, row.at(i));
        most = max_of_block(most, memory);
        const float shift = row.passes == COPES_FIRST_PASS ? shift_of(most) : most;
        for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
            sum.add(softmax_term(row.at(i), shift));
        const float all = sum_of_block(sum.sum, memory);
        scale = 1 / all;
        if (row.passes == COPES_FIRST_PASS && threadIdx.x == 0)
            write_scalar(row.sums, most + logf(all));
    }
    for (int64_t i = threadIdx.x; i < row.length && row.passes != COPES_FIRST_PASS; i += blockDim.x)
        write_scalar(row.dst + i * row.dst_step, softmax_term(row.at(i), most) * scale);
}

DEVICE void softmax_gradient_any_row(const strided_row &row, float *memory)
{
    float all = 0;
    if (row.passes == COPES_SECOND_PASS) {
        all = read_scalar(row.sums);
    } else {
        long_sum dot;
        for (int64_t i = threadIdx.x; i < row.length; i += blockDim.x)
            dot.add(row.at(i) * row.saved_at(i));
        all = sum_of_block(dot.sum, memory);
        if (row.passes == COPES_FIRST_PASS && threadIdx.x == 0)
            write_scalar(row.sums, all);
    }
    for (int64_t i = threadIdx.x; i < row.length && row.passes != COPES_FIRST_PASS; i += blockDim.x)
        write_scalar(row.dst + i * row.dst_step, row.saved_at(i) * (row.at(i) - all));
}

__global__ void softmax_any(GPU_PARAMETER strided_row first, GPU_PARAMETER act_strides rows)
{
    __shared__ float memory[THREADS / 32];
    for (int64_t i = blockIdx.x; i < rows.count; i += gridDim.x) {
        const act_offsets at = find_offsets(rows, i);
        strided_row row = first;
        row.src = row.src + at.src;
        row.saved = row.saved + at.saved;
        row.dst = row.dst + at.dst;
        row.sums += at.sums;
        if (row.saved.byte == nullptr)
            softmax_any_row(row, memory);
        else
            softmax_gradient_any_row(row, memory);
    }
}

static copes_status run_any(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    const auto elements = [&](const copes_view &view) { return any_pointer{static_cast<char *>(view.data), p.dtype}; };
    const strided_row first = {elements(p.src),
                               elements(p.saved),
                               elements(p.dst),
                               static_cast<float *>(p.sums.data),
                               p.passes,
                               p.shape[p.axis],
                               p.src.stride[p.axis],
                               p.saved.stride[p.axis],
                               p.dst.stride[p.axis]};
    return launch(queue, softmax_any, grid_of(plan), block_of(plan), 0, first, tiling_of<act_strides>(plan));
}

inline constexpr variant_word any_name = "softmax_any";
inline constexpr const char *name_of_any = variant_name<any_name, type_name<any_type>>::text;

copes_status plan_softmax_any(int64_t rows, copes_plan *plan)
{
    set_launch(plan, blocks_of(rows, THREADS), THREADS, 0);
    take(plan, name_of_any, run_any);
    return COPES_OK;
}

void list_softmax_any(variant_list *list)
{
    list->add(name_of_any);
}

} // namespace COPES_GPU::act
