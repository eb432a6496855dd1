/* Adds up what blocks have left of the gradients of a norm's weights, in a fixed order. */
#include "backends/gpu/qk/weights.h"

namespace COPES_GPU::qk
{

inline constexpr int LANES = 32, WARPS = 16; /* of a block: a thread for each of its columns, in each warp */

struct weight_sums {
    side_partials side[2];
    copes_view gradient[2];
    int d;
    uint32_t blocks; /* for q's weights; those for k's follow */
};

__global__ void LAUNCH_BOUNDS(LANES *WARPS, 1) qk_weights(GPU_PARAMETER weight_sums argument)
{
    const weight_sums &all = first_argument(argument);
    const int keys = blockIdx.x >= all.blocks, lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES;
    const side_partials &side = all.side[keys];
    const int64_t columns = (int64_t)side.rows * all.d;
    const int64_t column = (int64_t)(blockIdx.x - (keys != 0 ? all.blocks : 0)) * LANES + lane;
    const bool live = column < columns;
    const long_sum own =
        sum_of_slots(side.sums + (live ? column : 0), columns, (uint32_t)warp, (uint32_t)WARPS, side.slots);
    __shared__ float sums[WARPS][LANES];
    sums[warp][lane] = own.sum;
    __syncthreads();
    long_sum total;
    for (int i = 0; i < WARPS; i++)
        total.add(sums[i][lane]);
    const copes_view &view = all.gradient[keys];
    if (warp == 0 && live)
        write_scalar(static_cast<f32 *>(view.data) + column / all.d * view.stride[0] + column % all.d * view.stride[1],
                     total.sum);
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
    const int64_t blocks[2] = {divide_up(side[0].rows * d, LANES), divide_up(side[1].rows * d, LANES)};
    if (blocks[0] + blocks[1] == 0)
        return COPES_OK;
    const weight_sums all = {{side[0], side[1]},
                             {problem.side[0].grad_weight, problem.side[1].grad_weight},
                             (int)d,
                             (uint32_t)blocks[0]};
    return launch(queue, qk_weights, (unsigned)(blocks[0] + blocks[1]), LANES * WARPS, 0, all);
}

} // namespace COPES_GPU::qk
