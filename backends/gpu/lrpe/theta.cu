/* The gradient of theta. For each element it is the sum, over all rows that it turns, of a position times the
 * derivative by the angle. This kernel runs before the one for the gradient of x, which may overwrite the gradient of
 * the result. A block has one element of theta, so that there are many blocks even where theta has one row, and its threads go
 * over the rows in a fixed order, so that the bits are the same each time. Both kernels read the rows. */
#include "backends/gpu/lrpe/any_row.h"
#include "backends/gpu/lrpe/theta.h"

namespace COPES_GPU::lrpe
{

inline constexpr int THREADS = 512; /* of a block */
using row_tiling = theta_tiling<1>;

/* Row i of those that count for the theta at `place`. */
DEVICE any_row<true> find_row(const row_tiling &tiling, const theta_place &place, int64_t i)
{
    const copes_lrpe_problem &problem = tiling.problem;
    const int64_t heads = tiling.rows == 1 ? problem.h : 1;
    return {problem, i / heads / problem.n, i / heads % problem.n, tiling.rows == 1 ? i % heads : place.row, {}, false,
            true};
}

/* The softmax of a thread's row: `first` + its number, of `rows`. LANES threads find theirs together, one after the other, and
 * all must call this. */
DEVICE row_softmax find_own_softmax(const row_tiling &tiling, const theta_place &place, int64_t first, int64_t rows)
{
    const int lane = (int)threadIdx.x % LANES;
    row_softmax own = {0, 0};
#pragma unroll 1
    for (int i = 0; i < LANES; i++) {
        const int64_t at = first + ((int)threadIdx.x - lane + i);
        const row_softmax found = find_softmax(find_row(tiling, place, at < rows ? at : first), tiling.problem.x, lane);
        if (lane == i)
            own = found;
    }
    return own;
}

/* The activation's value for a feature of a row. Softmax over the sequence takes it from lse. */
DEVICE float activated(const any_row<true> &row, const row_softmax &statistics, int64_t feature)
{
    const copes_lrpe_problem &problem = row.problem;
    if (feature < 0)
        return 0;
    const float x = row.read(problem.x, feature);
    if (problem.softmax == COPES_OVER_FEATURES)
        return statistics.of(x);
    if (problem.softmax == COPES_OVER_SEQUENCE)
        return restored_term<any_type>(x, read_scalar(static_cast<const f32 *>(problem.lse.data) +
                                                      row.b * problem.lse.stride[0] + row.h * problem.lse.stride[1] +
                                                      feature * problem.lse.stride[2]));
    return activate(problem.act, x);
}

/* The derivative of a row by its angle k. */
DEVICE float angle_derivative(const any_row<true> &row, const row_softmax &statistics, int64_t k)
{
    const any_unit unit = find_any_unit(row, k);
    const float y = activated(row, statistics, unit.plain[0]);
    if (row.problem.variant == COPES_LRPE_COSINE) {
        const float along = row.read(row.problem.src, unit.encoded[0]),
                    across = row.read(row.problem.src, unit.encoded[1]);
        return y * (across * unit.rotations[0].cosine - along * unit.rotations[0].sine);
    }
    float g[2][1];
    read_gradient(row, unit, g);
    return g[1][0] * y - g[0][0] * activated(row, statistics, unit.plain[1]);
}

__global__ void LAUNCH_BOUNDS(THREADS, 1) lrpe_theta(GPU_PARAMETER row_tiling argument)
{
    const row_tiling &tiling = first_argument(argument);
    const copes_lrpe_problem &problem = tiling.problem;
    const theta_place place = tiling.place();
    const int64_t rows = problem.b * problem.n * (tiling.rows == 1 ? problem.h : 1);
    long_sum sum;
    for (int64_t first = 0; first < rows; first += THREADS) {
        const row_softmax statistics =
            problem.softmax == COPES_OVER_FEATURES ? find_own_softmax(tiling, place, first, rows) : row_softmax{0, 0};
        if (first + (int)threadIdx.x >= rows)
            continue;
        const any_row<true> row = find_row(tiling, place, first + (int)threadIdx.x);
        for_each_angle(tiling, place, 0, [&](int64_t k, int j) {
            token_position position;
            if (find_any_position(problem, row.b, row.n, j, position))
                sum.add((float)problem.theta_sign * ((float)position.whole + position.real) *
                        angle_derivative(row, statistics, k));
        });
    }
    write_theta<1, THREADS>(tiling, place, 0, sum.sum);
}

static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &, void *)
{
    const row_tiling tiling(problem.lrpe);
    return tiling.blocks() == 0 ? COPES_OK : launch(queue, lrpe_theta, (unsigned)tiling.blocks(), THREADS, 0, tiling);
}

inline constexpr variant_word theta_name = "lrpe_theta";
inline constexpr const char *theta_variant = variant_name<theta_name, type_name<any_type>>::text;

copes_status plan_theta(const copes_lrpe_problem &problem, copes_plan *plan)
{
    const row_tiling tiling(problem);
    if (problem.softmax == COPES_OVER_SEQUENCE && problem.lse.data == nullptr)
        return copes_fail(
            COPES_ERROR_UNSUPPORTED,
            "lrpe_backward: lse is NULL; for grad_theta after softmax over the sequence GPUs need the forward's");
    if ((double)tiling.pieces * (double)problem.h * tiling.sets > INT32_MAX)
        return copes_fail(COPES_ERROR_SIZE, "lrpe_backward: grad_theta has more elements than a launch takes");
    plan->first = theta_variant;
    plan->run_first = reinterpret_cast<void (*)()>(run);
    return COPES_OK;
}

void list_theta(variant_list *list)
{
    list->add(theta_variant);
}

} // namespace COPES_GPU::lrpe
