/* The gradients of a norm's weights: what blocks keep of them, leave in the workspace, and how it is added up. */
#ifndef COPES_BACKENDS_GPU_QK_WEIGHTS_H
#define COPES_BACKENDS_GPU_QK_WEIGHTS_H

#include "backends/gpu/plan.h"
#include "backends/gpu/qk/norm.h"

namespace COPES_GPU::qk
{

enum { MOST_THREADS_ON_EACH = 768 }; /* of a multiprocessor, whose registers hold no more */

/* The sums that blocks leave of q's weights, or of k's: `slots` times (rows, D) of them. */
struct side_partials {
    float *sums;
    int64_t begin; /* in the workspace, in floats */
    uint32_t slots;
    int rows; /* 1, or a head's each; 0: none are asked for */
};

struct learning_arguments {
    row_arguments rows;
    side_partials side[2];
};

inline bool is_learning(const copes_qk_problem &problem)
{
    return problem.side[0].grad_weight.data != nullptr || problem.side[1].grad_weight.data != nullptr;
}

/* Describes the sums that blocks leave, where a token has one block in each slot, or `splits`. Weights that all heads share have a
 * slot for each of those, others one for all. Returns the bytes of workspace. */
int64_t count_partials(const copes_qk_problem &problem, uint32_t slots, int splits, side_partials (&side)[2]);

void place_partials(side_partials (&side)[2], void *workspace);

/* Enqueues the kernel that adds up what blocks have left. */
copes_status add_up_weights(const gpu_queue &queue, const copes_qk_problem &problem, const side_partials (&side)[2]);

/* What a unit's features give to the gradient of their weights. */
template <int V> struct unit_learning {
    long_sum sum[2][V];

    __device__ __forceinline__ void add(const float (&terms)[2][V])
    {
#pragma unroll
        for (int i = 0; i < 2 * V; i++)
            sum[i / V][i % V].add(terms[i / V][i % V]);
    }
};

/* Writes the sums of a unit's features. */
template <int V> DEVICE void write_unit(const lrpe::unit_places &at, const unit_learning<V> &learned, float *to)
{
#pragma unroll
    for (int i = 0; i < 2 * V; i++)
        if (at.there && (i < V || at.second))
            to[at.plain[i / V] + i % V] = learned.sum[i / V][i % V].sum;
}

/* The sum of a feature's numbers in rows first .. end - 1 of each of a block's tokens, whose rows are in shared memory. */
DEVICE float sum_of_rows(const row_arguments &all, const float *memory, int first, int end, int place)
{
    long_sum total;
    for (int token = 0; token < all.source.tokens; token++)
        for (int row = first; row < end; row++)
            total.add(memory[(token * (int)all.rows_here.divisor + row) * all.d + place]);
    return total.sum;
}

/* Leaves a block's sums. Each of its threads has the only row of its threadIdx.y. Of weights that heads share, each block leaves
 * sums; of those of each head, the block that has the head's rows. */
template <int V>
DEVICE void leave_sums(const learning_arguments &learning, const lrpe::unit_places &at, const unit_learning<V> &learned,
                       float *memory)
{
    const row_arguments &all = learning.rows;
    const uint32_t splits = all.splits.divisor, slot = blockIdx.x / splits;
    const int first = (int)(blockIdx.x % splits * all.rows_here.divisor);
    const int rows = min((int)all.rows_here.divisor, all.rows - first), heads = all.side[0].heads;
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), threads = (int)(blockDim.x * blockDim.y);
    const int middle = min(max(heads - first, 0), rows); /* the first row of k here */
    write_unit(at, learned, memory + (int)threadIdx.y * all.d);
    __syncthreads();
    for (int i = thread; i < 2 * all.d; i += threads) {
        const int keys = i >= all.d, place = i - (keys != 0 ? all.d : 0);
        if (learning.side[keys].rows == 1)
            learning.side[keys].sums[(int64_t)blockIdx.x * all.d + place] =
                sum_of_rows(all, memory, keys != 0 ? middle : 0, keys != 0 ? rows : middle, place);
    }
    for (int i = thread; i < rows * all.d; i += threads) {
        const int row = i / all.d, keys = row >= middle, head = first + row - (keys != 0 ? heads : 0);
        const side_partials &side = learning.side[keys];
        if (side.rows > 1)
            side.sums[((int64_t)slot * side.rows + head) * all.d + i % all.d] =
                sum_of_rows(all, memory, row, row + 1, i % all.d);
    }
}

} // namespace COPES_GPU::qk

#endif
