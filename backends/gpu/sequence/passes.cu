/* The passes of softmax over the sequence, a launch each: of a sequence in shares one of them, for the caller; of a long
 * sequence, or of tokens that are on no line, both. The first of both leaves a part of each column for each block, and the
 * second merges the parts, so that any number of blocks share a slab. The device is then full however few slabs there are; memory
 * bounds both. The first pass alone leaves parts likewise, which a small kernel merges for the caller. */
#include "backends/gpu/sequence/columns_plan.h"

namespace COPES_GPU::sequence
{

inline constexpr variant_word passes_name = "sequence_passes";
inline constexpr columns_method first = {columns_name, COPES_FIRST_PASS}, second = {columns_name, COPES_SECOND_PASS},
                                first_in_parts = {passes_name, COPES_FIRST_PASS},
                                both = {passes_name, COPES_BOTH_PASSES};

enum { PARTS_ON_EACH = 2, BLOCKS_ON_EACH = 8, FEW_ON_EACH = 4, SLAB_COLUMNS = 128 };
enum { PART_TOKENS = 256, FEWEST_TOKENS = 64 }; /* of a block */

/* About how many slabs there are. No address counts, as the workspace must not depend on one. */
static double slabs_of(const copes_lrpe_problem &problem)
{
    return (double)problem.b * (double)problem.h * (double)((problem.d + SLAB_COLUMNS - 1) / SLAB_COLUMNS);
}

/* Blocks of a slab: so many that each multiprocessor has some, each of so many tokens at least. */
static int blocks_of_slab(const gpu_device &device, const copes_lrpe_problem &problem, int on_each, int tokens)
{
    const double wanted = (double)on_each * device.multiprocessors / greater(slabs_of(problem), 1.0);
    return (int)greater(lesser(wanted, (double)(problem.n / tokens)), 1.0);
}

/* Do rotations take longer than memory? They do where tokens are on no line, and a kernel with both passes then has too few threads.
 * Neighbouring pairs have no kernel of their own for the second pass, and of few tokens two launches take longer. */
static bool turns_slowly(const copes_lrpe_problem &problem)
{
    const int64_t least = encoding_of(problem) == encoding::interleaved ? 8192 : 1024;
    return is_scattered(problem) || (!in_line(problem) && problem.n >= least);
}

/* Parts of a slab. Each block merges all of them, so that there are no more than blocks at a time. Where rotations take longer
 * than memory there are more, as long as each block has 64 tokens for each part that it merges. */
static int parts_of(const gpu_device &device, const copes_lrpe_problem &problem)
{
    const int full = blocks_of_slab(device, problem, PARTS_ON_EACH, PART_TOKENS);
    if (!turns_slowly(problem))
        return full;
    const int many = blocks_of_slab(device, problem, BLOCKS_ON_EACH, PART_TOKENS);
    return greater(full, lesser(many, (int)sqrt((double)(problem.n / FEWEST_TOKENS))));
}

/* Blocks of a slab for the second pass alone. They have nothing to merge, so that there may be many of few tokens each, by which the
 * device goes through memory in order. sequence_apply reads twice as many tokens at a time and does more before the first: it has half
 * as many blocks, of twice the tokens. */
static int blocks_of_second(const gpu_device &device, const copes_lrpe_problem &problem)
{
    const int more = encoding_of(problem) == encoding::interleaved ? 1 : 2;
    const int least = blocks_of_slab(device, problem, BLOCKS_ON_EACH / more, FEWEST_TOKENS * more);
    return greater(least, (int)lesser(problem.n / (PART_TOKENS * more), (int64_t)INT32_MAX));
}

/* The problem of softmax alone, for which tokens have no positions. */
static copes_lrpe_problem without_encoding(copes_lrpe_problem problem)
{
    problem.variant = COPES_LRPE_ROTATE;
    problem.k = problem.begin = problem.prefix = 0;
    problem.amplitude = 1;
    problem.theta_sign = 1;
    problem.counted = true;
    problem.mixed = false;
    problem.positions = {};
    problem.grid_rank = 1;
    problem.length = problem.grid[0] = problem.n;
    return problem;
}

/* What the first pass takes of a problem: forward, no encoding. */
static copes_lrpe_problem of_first_pass(const copes_lrpe_problem &problem)
{
    return problem.backward ? problem : without_encoding(problem);
}

/* Both launches' arguments. */
struct passes_arguments {
    copes_lrpe_problem problem;
    columns_choice first, second;
};

enum { MERGED_COLUMNS = 32 }; /* of a block */

/* Merges the parts of a head's columns, in a fixed order, and gives the caller what it asks for: lse or, backward, delta. */
__global__ void LAUNCH_BOUNDS(THREADS, 1)
    merge_parts(GPU_PARAMETER copes_lrpe_problem argument, const column *parts, uint32_t blocks, int64_t pieces)
{
    constexpr int GROUPS = (int)THREADS / MERGED_COLUMNS;
    __shared__ column memory[GROUPS][MERGED_COLUMNS];
    const copes_lrpe_problem &problem = first_argument(argument);
    const int lane = (int)threadIdx.x % MERGED_COLUMNS, group = (int)threadIdx.x / MERGED_COLUMNS;
    const int64_t head = blockIdx.x / pieces, at = blockIdx.x % pieces * MERGED_COLUMNS + lane;
    const bool exists = at < problem.d;
    column all = {-INFINITY, 0, 0};
    for (uint32_t rank = (uint32_t)group; rank < blocks && exists; rank += GROUPS)
        all = merge(all, parts[(head * blocks + rank) * problem.d + at]);
    memory[group][lane] = all;
    __syncthreads();
    if (group > 0 || !exists)
        return;
    for (int i = 1; i < GROUPS; i++)
        all = merge(all, memory[i][lane]);
    const copes_view &view = problem.backward ? problem.delta : problem.lse;
    write_scalar(static_cast<f32 *>(view.data) + head / problem.h * view.stride[0] + head % problem.h * view.stride[1] +
                     at * view.stride[2],
                 problem.backward ? all.dot : all.most + logf(all.sum));
}

static copes_status run_first(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *workspace)
{
    const passes_arguments &all = tiling_of<passes_arguments>(plan);
    const copes_lrpe_problem &problem = all.problem;
    column *const parts = static_cast<column *>(workspace);
    COPES_TRY(all.first.launch(queue, problem, parts));
    const int64_t pieces = (problem.d + MERGED_COLUMNS - 1) / MERGED_COLUMNS;
    return launch(queue, merge_parts, (unsigned)(problem.b * problem.h * pieces), THREADS, 0, problem,
                  static_cast<const column *>(parts), all.first.cut.slabs.blocks.divisor, pieces);
}

template <typename T>
static copes_status plan_first(const gpu_device &device, const copes_lrpe_problem &problem, bool given,
                               copes_plan *plan)
{
    passes_arguments all = {problem, {}, {}};
    if (!takes_passes(device, problem, given, plan)) {
        COPES_TRY(choose_columns(columns_of<first, T>, device, problem, given, 0, &all.first));
        take_columns(problem, all.first, plan);
        return COPES_OK;
    }
    COPES_TRY(
        choose_columns(columns_of<first_in_parts, T>, device, problem, given, parts_of(device, problem), &all.first));
    plan->workspace = parts_bytes(device, problem);
    set_launch(plan, all.first.cut.grid, THREADS, 0);
    set_tiling(plan, all);
    take(plan, all.first.variant, run_first);
    return COPES_OK;
}

template <typename T>
copes_status plan_pass(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    if (problem.passes == COPES_FIRST_PASS)
        return plan_first<T>(device, of_first_pass(problem), given, plan);
    columns_choice chosen = {};
    COPES_TRY(
        choose_columns(columns_of<second, T>, device, problem, given, blocks_of_second(device, problem), &chosen));
    take_columns(problem, chosen, plan);
    return COPES_OK;
}

static copes_status run_passes(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *workspace)
{
    const passes_arguments &all = tiling_of<passes_arguments>(plan);
    column *const parts = static_cast<column *>(workspace);
    COPES_TRY(all.first.launch(queue, of_first_pass(all.problem), parts));
    return all.second.launch(queue, all.problem, parts);
}

bool takes_passes(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    if (!is_allowed(device, passes_name, plan))
        return false;
    if (problem.n == 0 || problem.b * problem.h * problem.d == 0)
        return refuse(plan, passes_name, "there is nothing to do");
    if (problem.backward && !given && problem.lse.data == nullptr)
        return refuse(plan, passes_name, "backward is not given the forward's lse");
    if (asks_for_one(device))
        return true;
    if (plan->first != nullptr)
        return refuse(plan, passes_name, "theta's gradient is a launch of its own, and no call has more than two");
    if (turns_slowly(problem))
        return true;
    if (problem.n < LONG_SEQUENCE)
        return refuse(plan, passes_name, "the sequence is short");
    if (slabs_of(problem) * largest_cluster(device) >= (double)FEW_ON_EACH * device.multiprocessors)
        return refuse(plan, passes_name, "one launch has enough blocks");
    return true;
}

int64_t parts_bytes(const gpu_device &device, const copes_lrpe_problem &problem)
{
    return problem.b * problem.h * problem.d * parts_of(device, problem) * (int64_t)sizeof(column);
}

template <typename T>
copes_status plan_passes(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    passes_arguments all = {problem, {}, {}};
    const int parts = parts_of(device, problem);
    COPES_TRY(choose_columns(columns_of<first, T>, device, of_first_pass(problem), given, parts, &all.first));
    COPES_TRY(choose_columns(columns_of<both, T, COPES_SECOND_PASS>, device, problem, given, parts, &all.second));
    set_launch(plan, all.second.cut.grid, THREADS, 0);
    set_tiling(plan, all);
    take(plan, all.second.variant, run_passes);
    return COPES_OK;
}

template <typename T> void list_passes(variant_list *list)
{
    list_instances(columns_of<first, T>, list);
    list_instances(columns_of<second, T>, list);
    if constexpr (sizeof(T) == 2)
        list_instances(columns_of<second, narrow<T>>, list);
    list_instances(columns_of<first_in_parts, T>, list);
    list_instances(columns_of<both, T, COPES_SECOND_PASS>, list);
    if constexpr (sizeof(T) == 2)
        list_instances(columns_of<both, narrow<T>, COPES_SECOND_PASS>, list);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status plan_pass<T>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);            \
    template copes_status plan_passes<T>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);          \
    template void list_passes<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)
template void list_passes<any_type>(variant_list *);

} // namespace COPES_GPU::sequence
