/* Softmax over rows of any length, in both passes or one: up to 32 neighbouring threads, or a block, take one. What they hold in registers
 * they read once; a longer row they read part by part, for its sums and once more for the result. */
#include "backends/gpu/act/methods.h"
#include "backends/gpu/act/team.h"

namespace COPES_GPU::act
{

inline constexpr int SMALL_BLOCK = 128;

/* Where rows' sums are all that is wanted: parts of a row that a thread has, and the most threads of a block. */
inline constexpr int SUMS_PARTS = 4, SUMS_BLOCK = 256;

/* Vectors of a tensor that a thread holds of a short row, so that more threads run at once, and of a row that is read part by part. */
template <bool BACKWARD> inline constexpr int FEW = BACKWARD ? 2 : 4;

/* Lanes are a power of two, or 0 where a block has a row. */
DEVICE int64_t row_of_thread(int lanes)
{
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    return lanes > 0 ? thread >> (__ffs(lanes) - 1) : blockIdx.x;
}

template <typename T, int P, bool BACKWARD>
__global__ void __launch_bounds__(P == MANY<BACKWARD> ? MOST_THREADS : SMALL_BLOCK)
    softmax_held(const T *src, const T *saved, T *dst, float *, int length, int lanes, GPU_PARAMETER act_strides rows)
{
    __shared__ float memory[MOST_THREADS / WARP];
    const int64_t own = row_of_thread(lanes);
    const bool exists = own < rows.count;
    const act_offsets at = find_offsets(rows, exists ? own : 0);
    const block_team team(memory, lanes);
    team_row<T, P, BACKWARD> row(team, src + at.src, saved + at.saved, dst + at.dst, exists ? length : 0);
    softmax_of_row(team, row);
}

/* Has take(first) called for each part of a row, when it has been read. A row of no vectors has a part, too. */
template <typename T, int P, bool BACKWARD, typename Take>
DEVICE void each_part(team_row<T, P, BACKWARD> &row, Take take)
{
    int first = 0;
    do {
        row.read(first);
        take(first);
        first += P * row.at.size;
    } while (first < row.at.units);
}

/* The softmax of x is its term relative to shift, over sum; its gradient is y (g - shift). */
struct row_sums {
    float shift, sum;
};

/* Terms are relative to a thread's largest element so far. */
template <typename T, int P> DEVICE row_sums sum_up(const block_team &team, team_row<T, P, false> &row)
{
    float most = -INFINITY;
    long_sum sum;
    each_part(row, [&](int first) {
        const float before = most;
        most = max_of_part(row, first, most);
        const softmax_terms<T> terms(shift_of(most));
        sum.scale(rescale_terms<T>(before, most));
        float part = 0;
        add_part(row, first, [&](float of) { part += of; }, [&](float x) { return terms.of(x); });
        sum.add(part);
    });
    const float all_most = team.max_of(most);
    return {shift_of(all_most), team.sum_of(sum.sum * rescale_terms<T>(most, all_most))};
}

template <typename T, int P> DEVICE row_sums sum_up(const block_team &team, team_row<T, P, true> &row)
{
    long_sum dot;
    each_part(row, [&](int first) {
        float part = 0;
        add_part(row, first, [&](float of) { part += of; });
        dot.add(part);
    });
    return {team.sum_of(dot.sum), 1};
}

/* A row of no elements, too, has its sums. */
template <typename T, bool BACKWARD, copes_passes PASS>
__global__ void __launch_bounds__(MOST_THREADS) softmax_parts(const T *src, const T *saved, T *dst, float *sums,
                                                              int length, int lanes, GPU_PARAMETER act_strides rows)
{
    __shared__ float memory[MOST_THREADS / WARP];
    const int64_t own = row_of_thread(lanes);
    const bool exists = own < rows.count;
    const act_offsets at = find_offsets(rows, exists ? own : 0);
    const block_team team(memory, lanes);
    team_row<T, FEW<BACKWARD>, BACKWARD> row(team, src + at.src, saved + at.saved, dst + at.dst, exists ? length : 0);
    const row_sums of =
        PASS == COPES_SECOND_PASS ? row_sums{exists ? read_scalar(sums + at.sums) : 0, 1} : sum_up(team, row);
    if (PASS == COPES_FIRST_PASS && exists && team.lane == 0)
        write_scalar(sums + at.sums, BACKWARD ? of.shift : softmax_terms<T>(of.shift).lse_of(of.sum));
    if (PASS == COPES_FIRST_PASS)
        return;
    const softmax_terms<std::conditional_t<PASS == COPES_SECOND_PASS, f32, T>> terms(of.shift);
    const float scale = 1 / of.sum;
    each_part(row, [&](int first) {
        write_part(row, first, [&](float x, float y) { return BACKWARD ? y * (x - of.shift) : terms.of(x) * scale; });
    });
}

inline constexpr variant_word held_name = "softmax_held", parts_name = "softmax_parts",
                              held_counts[] = {"", "1", "2", "", "4", "", "", "", "8"};

template <typename T, int P, bool BACKWARD>
inline constexpr const char *name_of_held =
    variant_name<held_name, type_name<T>, held_counts[P], direction_names[BACKWARD]>::text;
template <typename T, bool BACKWARD, copes_passes PASS>
inline constexpr const char *name_of_parts =
    variant_name<parts_name, type_name<T>, direction_names[BACKWARD], passes_names[PASS]>::text;
template <typename T, bool BACKWARD>
inline constexpr const char *name_of_parts<T, BACKWARD, COPES_BOTH_PASSES> =
    variant_name<parts_name, type_name<T>, direction_names[BACKWARD]>::text;

static int64_t units_of(const copes_act_problem &problem)
{
    return problem.shape[problem.axis] * copes_dtype_size(problem.dtype) / 16;
}

/* A row's threads: lanes, or 0 for a block's; the threads of a block; and the most vectors that they hold. */
struct team_shape {
    int lanes, threads;
    int64_t holds;
};

/* The fewest threads, of `most`, that have a row in `each` vectors. Lanes are as many at least as there may be single
 * elements at an end of a row. */
static team_shape shape_of(const copes_act_problem &problem, int each, int most)
{
    const int element = (int)copes_dtype_size(problem.dtype);
    const int64_t units = units_of(problem), wanted = (units + each - 1) / each;
    const bool whole = problem.shape[problem.axis] * element % 16 == 0 &&
                       in_vectors(problem.src, problem.shape, problem.rank, 16 / element);
    if (wanted > WARP) {
        const int threads = (int)lesser<int64_t>((wanted + WARP - 1) / WARP * WARP, most);
        return {0, threads, (int64_t)threads * each};
    }
    int lanes = whole ? 1 : 16 / element;
    while (lanes < wanted)
        lanes *= 2;
    return {lanes, SMALL_BLOCK, (int64_t)lanes * each};
}

/* Sets the launch of teams. Returns why it cannot be. */
static const char *set_teams(int64_t rows, const team_shape &shape, copes_plan *plan)
{
    const int together = shape.lanes > 0 ? shape.threads / shape.lanes : 1;
    const double blocks = ceil((double)rows / together);
    if (blocks > INT32_MAX || blocks * shape.threads > (double)MOST_GRID_THREADS)
        return "there are more blocks than a launch takes";
    set_launch(plan, (unsigned)blocks, (unsigned)shape.threads, 0);
    return nullptr;
}

/* What a plan's run needs. */
struct team_tiling {
    act_strides rows;
    int lanes;
};

template <typename T> using team_kernel = void(const T *, const T *, T *, float *, int, int, act_strides);

template <typename T>
copes_status run_team(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    const team_tiling &tiling = tiling_of<team_tiling>(plan);
    return launch_plan<team_kernel<T>>(queue, plan, static_cast<const T *>(p.src.data),
                                       static_cast<const T *>(p.saved.data), static_cast<T *>(p.dst.data),
                                       static_cast<float *>(p.sums.data), (int)p.shape[p.axis], tiling.lanes,
                                       tiling.rows);
}

template <typename T, bool BACKWARD>
bool plan_held(const gpu_device &device, const copes_act_problem &problem, const act_strides &rows, copes_plan *plan)
{
    const bool few = units_of(problem) <= FEW<BACKWARD> * WARP;
    const team_shape shape = shape_of(problem, few ? FEW<BACKWARD> : MANY<BACKWARD>, MOST_THREADS);
    if (!is_allowed(device, held_name, plan))
        return false;
    if (problem.passes != COPES_BOTH_PASSES)
        return refuse(plan, held_name, "the axis lies in shares");
    if (units_of(problem) > shape.holds)
        return refuse(plan, held_name, "a row is more than a block holds");
    if (const char *why = set_teams(rows.count, shape, plan))
        return refuse(plan, held_name, why);
    set_tiling(plan, team_tiling{rows, shape.lanes});
    return few ? take<team_kernel<T>>(plan, name_of_held<T, FEW<BACKWARD>, BACKWARD>, run_team<T>,
                                      softmax_held<T, FEW<BACKWARD>, BACKWARD>)
               : take<team_kernel<T>>(plan, name_of_held<T, MANY<BACKWARD>, BACKWARD>, run_team<T>,
                                      softmax_held<T, MANY<BACKWARD>, BACKWARD>);
}

template <typename T, bool BACKWARD>
bool plan_parts(const gpu_device &device, const copes_act_problem &problem, const act_strides &rows, copes_plan *plan)
{
    /* Where rows fill the device, small blocks of threads with several parts take up to a third less time. */
    const bool sums_alone = problem.passes == COPES_FIRST_PASS && rows.count >= 4 * device.multiprocessors;
    const team_shape shape = sums_alone ? shape_of(problem, SUMS_PARTS * FEW<BACKWARD>, SUMS_BLOCK)
                                        : shape_of(problem, FEW<BACKWARD>, MOST_THREADS);
    if (!is_allowed(device, parts_name, plan))
        return false;
    if (const char *why = set_teams(rows.count, shape, plan))
        return refuse(plan, parts_name, why);
    set_tiling(plan, team_tiling{rows, shape.lanes});
    const auto of = [&]<copes_passes PASS>() {
        return take<team_kernel<T>>(plan, name_of_parts<T, BACKWARD, PASS>, run_team<T>,
                                    softmax_parts<T, BACKWARD, PASS>);
    };
    if (problem.passes == COPES_FIRST_PASS)
        return of.template operator()<COPES_FIRST_PASS>();
    if (problem.passes == COPES_SECOND_PASS)
        return of.template operator()<COPES_SECOND_PASS>();
    return of.template operator()<COPES_BOTH_PASSES>();
}

template <typename T>
bool plan_softmax_team(const gpu_device &device, const copes_act_problem &problem, const act_strides &rows,
                       copes_plan *plan)
{
    if (const char *why = refuse_team<T>(problem)) {
        refuse(plan, held_name, why);
        return refuse(plan, parts_name, why);
    }
    if (problem.backward)
        return plan_held<T, true>(device, problem, rows, plan) || plan_parts<T, true>(device, problem, rows, plan);
    return plan_held<T, false>(device, problem, rows, plan) || plan_parts<T, false>(device, problem, rows, plan);
}

template <typename T, bool BACKWARD> void add_teams(variant_list *list)
{
    list->add(name_of_held<T, FEW<BACKWARD>, BACKWARD>);
    list->add(name_of_held<T, MANY<BACKWARD>, BACKWARD>);
    list->add(name_of_parts<T, BACKWARD, COPES_BOTH_PASSES>);
    list->add(name_of_parts<T, BACKWARD, COPES_FIRST_PASS>);
    list->add(name_of_parts<T, BACKWARD, COPES_SECOND_PASS>);
}

template <typename T> void list_softmax_team(variant_list *list)
{
    add_teams<T, false>(list);
    add_teams<T, true>(list);
}

#define INSTANTIATE(T)                                                                                                 \
    template bool plan_softmax_team<T>(const gpu_device &, const copes_act_problem &, const act_strides &,             \
                                       copes_plan *);                                                                  \
    template void list_softmax_team<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::act
