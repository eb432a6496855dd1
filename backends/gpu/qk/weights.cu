/* Adds up what blocks have left of the gradients of a norm's weights, in a fixed order. */
#include "backends/gpu/qk/weights.h"

namespace COPES_GPU::qk
{

/* Columns and threads of a block: with few columns, all that a thread adds up is on its way at once. */
inline constexpr int SUM_LANES = 8, SUM_THREADS = 512;

struct weight_sums {
    side_partials side[2];
    copes_view gradient[2];
    int d;
    uint32_t blocks; /* for q's weights; those for k's follow */
};

__global__ void LAUNCH_BOUNDS(SUM_THREADS, 1) qk_weights(GPU_PARAMETER weight_sums argument)
{
    __shared__ uint64_t memory[SUM_THREADS];
    const weight_sums &all = first_argument(argument);
    const int keys = blockIdx.x >= all.blocks;
    const side_partials &side = all.side[keys];
    const int64_t columns = (int64_t)side.rows * all.d;
    const int64_t column = (int64_t)(blockIdx.x - (keys != 0 ? all.blocks : 0)) * SUM_LANES + threadIdx.x % SUM_LANES;
    const bool live = column < columns;
    const float *from = side.sums + (live ? column : 0);
    await_launch_before(memory + threadIdx.x, from);
    const long_sum own = sum_of_slots(from, columns, threadIdx.x / SUM_LANES, SUM_THREADS / SUM_LANES, side.slots);
    const float total = sum_of_columns<SUM_LANES, SUM_THREADS>(own.sum);
    const copes_view &view = all.gradient[keys];
    if (threadIdx.x < SUM_LANES && live)
        write_scalar(static_cast<f32 *>(view.data) + column / all.d * view.stride[0] + column % all.d * view.stride[1],
                     total);
}

int64_t count_partials(const copes_qk_problem &problem, uint32_t slots, int splits, side_partials (&side)[2])
{
    int64_t floats = 0;
    for (int i = 0; i < problem.sides; i++) {
        const copes_qk_side &of = problem.side[i];
        side[i] = {nullptr, floats, of.weight_rows == 1 ? slots * (uint32_t)splits : slots,
                   of.grad_weight.data == nullptr ? 0 : (int)of.weight_rows};
        floats += side[i].rows * of.rotate.d * side[i].slots;
    }
    return floats * (int64_t)sizeof(float);
}

void place_partials(side_partials (&side)[2], void *workspace)
{
    for (side_partials &each : side)
        each.sums = static_cast<float *>(workspace) + each.begin;
}

copes_status add_up_weights(const gpu_queue &queue, const copes_qk_problem &problem, const side_partials (&side)[2])
{
    const int64_t d = problem.side[0].rotate.d;
    const int64_t blocks[2] = {divide_up(side[0].rows * d, SUM_LANES), divide_up(side[1].rows * d, SUM_LANES)};
    if (blocks[0] + blocks[1] == 0)
        return COPES_OK;
    const weight_sums all = {{side[0], side[1]},
                             {problem.side[0].grad_weight, problem.side[1].grad_weight},
                             (int)d,
                             (uint32_t)blocks[0]};
    return launch_overlapped(queue, qk_weights, (unsigned)(blocks[0] + blocks[1]), SUM_THREADS, 0, all);
}

} // namespace COPES_GPU::qk
