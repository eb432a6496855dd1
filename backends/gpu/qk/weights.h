/* The gradients of a norm's weights: what blocks keep of them, leave in the workspace, and how it is added up. */
#ifndef COPES_BACKENDS_GPU_QK_WEIGHTS_H
#define COPES_BACKENDS_GPU_QK_WEIGHTS_H

#include "backends/gpu/plan.h"
#include "backends/gpu/qk/plan_rows.h"

namespace COPES_GPU::qk
{

enum { MOST_THREADS_ON_EACH = 512 }; /* of a multiprocessor, whose registers hold no more */

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
    int64_t begin;  /* of threads' sums in a block's shared memory or, keeping::in_workspace, of all blocks' there */
    long_sum *kept; /* in the workspace */
    bool alike;     /* is_alike, in backward.cu */
};

inline bool is_learning(const copes_qk_problem &problem)
{
    return problem.side[0].grad_weight.data != nullptr || problem.side[1].grad_weight.data != nullptr;
}

/* Does each head of q, or of k, learn weights of its own? */
inline bool has_learning_heads(const copes_qk_problem &problem)
{
    bool any = false;
    for (const copes_qk_side &side : problem.side)
        any = any || (side.grad_weight.data != nullptr && side.weight_rows > 1);
    return any;
}

/* The problem as its strides alone have it. */
inline copes_qk_problem without_addresses(copes_qk_problem problem)
{
    for (copes_qk_side &side : problem.side) {
        for (copes_view *view : {&side.rotate.src, &side.rotate.x, &side.rotate.dst, &side.weight})
            *view = aligned(*view);
    }
    return problem;
}

/* Plans gradients of weights by take(problem). The workspace hangs on no address: one that does not fit is refused in the end. */
template <typename T, encoding E, typename Take>
bool plan_learning(const copes_qk_problem &problem, copes_plan *plan, const variant_word &name, const Take &take)
{
    lrpe::row_shape shape;
    if (refuse_vectors<T, E>(problem, &shape) == nullptr ||
        refuse_vectors<T, E>(without_addresses(problem), &shape) != nullptr)
        return take(problem);
    return take(without_addresses(problem)) && refuse_addresses(plan, name);
}

/* Describes the sums that blocks leave, where a token has one block in each slot, or `splits`. Weights that all heads share have a
 * slot for each of those, others one for all. Returns the bytes of workspace. */
int64_t count_partials(const copes_qk_problem &problem, uint32_t slots, int splits, side_partials (&side)[2]);

void place_partials(side_partials (&side)[2], void *workspace);

/* Enqueues the kernel that adds up what blocks have left. */
copes_status add_up_weights(const gpu_queue &queue, const copes_qk_problem &problem, const side_partials (&side)[2]);

/* The bytes of a block's sums while it goes from tile to tile. */
template <int V> int64_t learning_bytes(dim3 threads)
{
    return kept_sums::bytes((int)(threads.x * threads.y), 2 * V);
}

/* Does a block go on to another tile? */
DEVICE bool has_several_tiles(const row_arguments &all)
{
    return gridDim.x < all.blocks;
}

/* Where threads keep sums from tile to tile. */
enum class keeping { in_shared_memory, in_workspace };

template <int COUNT, keeping PLACE> DEVICE kept_sums find_kept(const learning_arguments &learning, char *memory)
{
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    if constexpr (PLACE == keeping::in_workspace)
        return kept_sums(learning.kept, thread, COUNT, (int)(blockDim.x * blockDim.y));
    else
        return kept_sums(memory + learning.begin, thread, COUNT);
}

/* What the features of each thread's units give to the gradient of their weights, tile after tile. The last tile's stays in registers.
 * Of those before it there are sums in memory, as a thread has no registers for them. */
template <int V, int UNITS, keeping PLACE> struct unit_learning {
    static constexpr int COUNT = UNITS * 2 * V;
    kept_sums kept; /* of each feature */
    float *rows;    /* of all threads in shared memory, once `kept` is read */

    __device__ __forceinline__ unit_learning(const learning_arguments &learning, char *memory)
        : kept(find_kept<COUNT, PLACE>(learning, memory)), rows(reinterpret_cast<float *>(memory))
    {
    }
    __device__ __forceinline__ void clear() const
    {
        kept.clear<COUNT>(0);
    }
    __device__ __forceinline__ void add(const float (&terms)[UNITS][2][V]) const
    {
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            kept.add(j, terms[j / (2 * V)][j / V % 2][j % V]);
    }
    /* Adds the sums of the tiles before the last, if there are any, to `terms`, and writes it to rows of the thread's group, a unit's
     * each, from the start of shared memory on. Every thread of the block must call this, and none has anything else left in that
     * memory. */
    __device__ __forceinline__ void gather(const row_arguments &all, const lrpe::unit_places &at,
                                           float (&terms)[UNITS][2][V]) const
    {
        float *const to = rows + (int)threadIdx.y * UNITS * all.d;
        if (has_several_tiles(all)) {
#pragma unroll
            for (int j = 0; j < COUNT; j++) {
                float &term = terms[j / (2 * V)][j / V % 2][j % V];
                term = kept.sum_with(j, term);
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 2 * UNITS; i++)
            if (at.there && (i % 2 == 0 || at.second))
                keep_floats(terms[i / 2][i % 2], to + i / 2 * all.d + at.plain[i % 2]);
        __syncthreads();
    }
};

/* Columns that a thread adds up at once. Each addition waits for the one before of its column alone. */
inline constexpr int COLUMNS = 4;

/* Leaves the sums of features place .. place + COLUMNS - 1 over rows first .. end - 1 of each of a block's tokens, which have
 * `of_token` in shared memory. Some rows are read before they are added, as a read takes as long as several additions. */
DEVICE void leave_columns(const row_arguments &all, const float *rows, int of_token, int first, int end, int place,
                          float *to)
{
    constexpr int TOGETHER = 4;
    const int each = end - first, count = each * ((int)blockDim.y / (int)all.groups_here.divisor);
    const int skipped = (of_token - each) * all.d; /* between the rows of two tokens */
    const float *from = rows + first * all.d + place;
    long_sum total[COLUMNS];
    int left = each; /* of the token */
#pragma unroll 1
    for (int row = 0; row < count; row += TOGETHER) {
        float terms[TOGETHER][COLUMNS] = {};
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            if (row + i < count)
                read_floats(from, terms[i]);
            from += all.d;
            if (--left == 0) {
                from += skipped;
                left = each;
            }
        }
#pragma unroll
        for (int i = 0; i < TOGETHER * COLUMNS; i++)
            total[i % COLUMNS].add(terms[i / COLUMNS][i % COLUMNS]);
    }
    float sums[COLUMNS];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
        sums[j] = total[j].sum;
    keep_floats(sums, to);
}

/* Leaves a block's sums. Of weights that heads share, each block leaves sums; of those of each head, the block that has the head. A group
 * then has UNITS heads, or fewer. */
template <int V, int UNITS, keeping PLACE>
DEVICE void leave_sums(const learning_arguments &learning, const lrpe::unit_places &at,
                       const unit_learning<V, UNITS, PLACE> &learned, float (&terms)[UNITS][2][V])
{
    const row_arguments &all = learning.rows;
    uint32_t split;
    const uint32_t slot = divide(blockIdx.x, all.splits, &split);
    const int of_token = (int)all.groups_here.divisor * UNITS, first = (int)split * of_token;
    const int rows = min(of_token, all.groups * UNITS - first), q = all.side[QUERIES].groups * UNITS;
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), threads = (int)(blockDim.x * blockDim.y);
    const int middle = min(max(q - first, 0), rows); /* the first row of k here */
    learned.gather(all, at, terms);
#pragma unroll 1
    for (int i = thread * COLUMNS; i < 2 * all.d; i += threads * COLUMNS) {
        const int keys = i >= all.d, place = i - (keys != 0 ? all.d : 0);
        if (learning.side[keys].rows == 1)
            leave_columns(all, learned.rows, of_token, keys != 0 ? middle : 0, keys != 0 ? rows : middle, place,
                          learning.side[keys].sums + ((int64_t)blockIdx.x * all.d + place));
    }
#pragma unroll 1
    for (int i = thread * COLUMNS; i < rows * all.d; i += threads * COLUMNS) {
        const int row = i / all.d, place = i - row * all.d, keys = row >= middle;
        const int of_side = first + row - (keys != 0 ? q : 0);
        const int head = of_side / UNITS + of_side % UNITS * all.side[keys].groups;
        const side_partials &side = learning.side[keys];
        if (side.rows > 1 && head < side.rows)
            leave_columns(all, learned.rows, of_token, row, row + 1, place,
                          side.sums + (((int64_t)slot * side.rows + head) * all.d + place));
    }
}

/* Goes from tile to tile by pass(block, terms), which adds what a tile's heads give to their weights' gradients, and leaves that. The
 * sums' place is found wherever it is used: to keep it would take registers that a tile needs. */
template <typename T, encoding E, int UNITS, keeping PLACE, typename Pass>
DEVICE void learn_tiles(const learning_arguments &learning, char *memory, const Pass &pass)
{
    constexpr int V = vector_length<T>;
    typedef unit_learning<V, UNITS, PLACE> learned;
    const row_arguments &all = learning.rows;
    if (has_several_tiles(all))
        learned(learning, memory).clear();
    float terms[UNITS][2][V];
    uint32_t block = blockIdx.x;
#pragma unroll 1
    for (;;) {
#pragma unroll
        for (int j = 0; j < UNITS * 2 * V; j++)
            terms[j / (2 * V)][j / V % 2][j % V] = 0;
        pass(block, terms);
        __syncthreads();
        block += gridDim.x;
        if (block >= read_again(all).blocks)
            break;
        learned(read_again(learning), memory).add(terms);
    }
    begin_launch_after();
    leave_sums(read_again(learning),
               lrpe::find_unit<E, V>(all.d, all.source.k, all.source.begin(), all.units, (int)threadIdx.x),
               learned(read_again(learning), memory), terms);
}

} // namespace COPES_GPU::qk

#endif
