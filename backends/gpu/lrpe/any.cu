/* lrpe for tensors that the other kernels do not take: any strides, any alignment, any number of features. Thirty-two
 * threads share a row and go over its pairs of features, one element at a time. Each pair needs an angle of its own,
 * and a softmax goes over the pairs more than once: this arithmetic binds, not memory. */
#include "backends/gpu/lrpe/any_row.h"

namespace COPES_GPU::lrpe
{

inline constexpr int ROWS = 4; /* of a block */

template <bool ANYWHERE>
DEVICE void write_pair(const any_row<ANYWHERE> &row, const int64_t (&place)[2], const float (&x)[2][1])
{
    for (int i = 0; i < 2; i++)
        if (place[i] >= 0 && row.live)
            write_scalar(row.element(row.problem.dst, place[i]), x[i][0]);
}

template <bool ANYWHERE> DEVICE void forward_row(const any_row<ANYWHERE> &row, int lane)
{
    const copes_lrpe_problem &problem = row.problem;
    const bool softmax = problem.softmax == COPES_OVER_FEATURES;
    const row_softmax statistics = softmax ? find_softmax(row, problem.src, lane) : row_softmax{0, 0};
    for (int64_t k = lane; k < count_units(problem); k += LANES) {
        const any_unit unit = find_any_unit(row, k);
        float x[2][1];
        read_pair(row, problem.src, unit.plain, x);
        for (int i = 0; i < 2; i++)
            x[i][0] = softmax ? statistics.of(x[i][0]) : activate(problem.act, x[i][0]);
        if (problem.variant == COPES_LRPE_COSINE)
            encode<encoding::cosine>(x, unit.rotations, true);
        else
            encode<encoding::half>(x, unit.rotations, unit.rotated);
        write_pair(row, unit.encoded, x);
    }
}

/* The sum over a row of its softmax times its gradient. */
template <bool ANYWHERE> DEVICE float softmax_dot(const any_row<ANYWHERE> &row, const row_softmax &statistics, int lane)
{
    long_sum dot;
    for (int64_t k = lane; k < count_units(row.problem); k += LANES) {
        const any_unit unit = find_any_unit(row, k);
        float g[2][1];
        read_gradient(row, unit, g);
        for (int i = 0; i < 2; i++)
            if (unit.plain[i] >= 0)
                dot.add(statistics.of(row.read(row.problem.x, unit.plain[i])) * g[i][0]);
    }
    return sum_of_lanes(dot.sum, LANES);
}

template <bool ANYWHERE> DEVICE void backward_row(const any_row<ANYWHERE> &row, int lane)
{
    const copes_lrpe_problem &problem = row.problem;
    const bool softmax = problem.softmax == COPES_OVER_FEATURES, kept = problem.x.data != nullptr;
    const row_softmax statistics = softmax ? find_softmax(row, problem.x, lane) : row_softmax{0, 0};
    const float dot = softmax ? softmax_dot(row, statistics, lane) : 0;
    for (int64_t k = lane; k < count_units(problem); k += LANES) {
        const any_unit unit = find_any_unit(row, k);
        float g[2][1], x[2][1] = {{0}, {0}};
        read_gradient(row, unit, g);
        if (kept)
            read_pair(row, problem.x, unit.plain, x);
        for (int i = 0; i < 2; i++)
            g[i][0] =
                softmax ? statistics.of(x[i][0]) * (g[i][0] - dot) : activation_gradient(problem.act, g[i][0], x[i][0]);
        write_pair(row, unit.plain, g);
    }
}

template <bool ANYWHERE> __global__ void lrpe_any(GPU_PARAMETER copes_lrpe_problem argument, grid_lengths grid)
{
    const copes_lrpe_problem &problem = first_argument(argument);
    const int lane = (int)threadIdx.x % LANES;
    const int64_t rows = problem.b * problem.n * problem.h, step = (int64_t)gridDim.x * ROWS;
    for (int64_t first = (int64_t)blockIdx.x * ROWS; first < rows; first += step) {
        const int64_t wanted = first + threadIdx.x / LANES, i = wanted < rows ? wanted : rows - 1;
        any_row<ANYWHERE> row =
            {read_again(problem), i / problem.h / problem.n, i / problem.h % problem.n, i % problem.h, {}, false,
             wanted < rows};
        row.rotated = !ANYWHERE && find_positions(problem, grid, row.n, row.position);
        if (read_again(problem).backward)
            backward_row(row, lane);
        else
            forward_row(row, lane);
    }
}

inline constexpr variant_word any_name = "lrpe_any";
inline constexpr variant_word place_names[] = {"grid", "anywhere"};

template <bool ANYWHERE> inline constexpr const char *any_variant = variant_name<any_name, place_names[ANYWHERE]>::text;

typedef void any_kernel(copes_lrpe_problem, grid_lengths);

static copes_status run(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    const copes_lrpe_problem &problem = tiling_of<copes_lrpe_problem>(plan);
    return launch_plan<any_kernel>(queue, plan, problem, grid_lengths(problem));
}

void plan_any(const gpu_device &, const copes_lrpe_problem &problem, copes_plan *plan)
{
    const int64_t wanted = (problem.b * problem.n * problem.h + ROWS - 1) / ROWS;
    set_launch(plan, blocks_of(wanted, ROWS * LANES), ROWS * LANES, 0);
    set_tiling(plan, problem);
    if (is_anywhere(problem))
        take<any_kernel>(plan, any_variant<true>, run, lrpe_any<true>);
    else
        take<any_kernel>(plan, any_variant<false>, run, lrpe_any<false>);
}

void list_any(variant_list *list)
{
    list->add(any_variant<false>);
    list->add(any_variant<true>);
}

} // namespace COPES_GPU::lrpe
