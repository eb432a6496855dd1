/* qk_norm_rope for tensors that the other kernels do not take: any strides, any alignment, any number of features, a theta for
 * each head. A block goes over the features that the mean of a norm is over, those of a head or of all heads of a token, one
 * element at a time, and makes each pair's angle by itself: this arithmetic binds, not memory. */
#include "backends/gpu/lrpe/any_row.h"
#include "backends/gpu/names.h"
#include "backends/gpu/qk/methods.h"
#include "backends/gpu/qk/weights.h"

namespace COPES_GPU::qk
{

inline constexpr int THREADS = 128; /* of a block */

struct any_arguments {
    copes_qk_problem problem;
    side_partials side[2];
};

/* Some heads of q or of k of a token, or of v. */
struct any_group {
    int64_t token, entry, head, heads;
    int side; /* 2: v */
};

/* Groups of a token: those of q, of k and of v. */
DEVICE int64_t count_groups(const copes_qk_problem &problem, int side)
{
    if (side == 2)
        return problem.v_cache.data.data != nullptr ? problem.v_heads : 0;
    if (side >= problem.sides)
        return 0;
    return problem.over_heads ? 1 : problem.side[side].rotate.h;
}

DEVICE any_group find_group(const copes_qk_problem &problem, int64_t index)
{
    const int64_t n = problem.side[0].rotate.n, q = count_groups(problem, 0), k = count_groups(problem, 1);
    const int64_t all = q + k + count_groups(problem, 2), token = index / all;
    int64_t group = index % all;
    const int side = group < q ? 0 : group < q + k ? 1 : 2;
    group -= side == 0 ? 0 : side == 1 ? q : q + k;
    const bool whole = side < 2 && problem.over_heads;
    return {token % n, token / n, whole ? 0 : group, whole ? problem.side[side].rotate.h : 1, side};
}

/* Calls body(row, unit) for each unit of the group's rows that is this thread's: always the same ones of a row. */
template <typename Body>
DEVICE void for_each_unit(const copes_lrpe_problem &rotate, const any_group &group, const Body &body)
{
    for (int64_t head = group.head; head < group.head + group.heads; head++) {
        const lrpe::any_row<true> row = {rotate, group.entry, group.token, head, {}, false, true};
        for (int64_t k = threadIdx.x; k < lrpe::count_units(rotate); k += THREADS)
            body(row, lrpe::find_any_unit(row, k));
    }
}

/* A token's element of a cache, counted from the cache's first one; false: there is none. */
DEVICE bool find_place(const copes_qk_problem &problem, const copes_view &cache, const any_group &group, int64_t head,
                       int64_t feature, int64_t *at)
{
    const copes_view &slots = problem.slots;
    if (cache.data == nullptr)
        return false;
    const int64_t slot = read_anywhere<int64_t>(static_cast<const int64_t *>(slots.data) +
                                                group.entry * slots.stride[0] + group.token * slots.stride[1]);
    if (problem.page == 0 || (uint64_t)slot >= (uint64_t)(problem.blocks * problem.page))
        return false;
    *at = slot / problem.page * cache.stride[0] + slot % problem.page * cache.stride[1] + head * cache.stride[2] +
          feature * cache.stride[3];
    return true;
}

DEVICE void write_cached(const copes_qk_problem &problem, const copes_qk_cache &cache, const any_group &group,
                         int64_t head, int64_t feature, float x)
{
    int64_t at;
    if (!find_place(problem, cache.data, group, head, feature, &at))
        return;
    if (problem.cache_dtype != COPES_F8_E4M3) {
        write_scalar(elements_of<any_type>(cache.data, problem.dtype) + at, x);
        return;
    }
    const float scale = cache.scale.data == nullptr
                            ? 1
                            : read_scalar(static_cast<const f32 *>(cache.scale.data) + head * cache.scale.stride[0]);
    static_cast<uint8_t *>(cache.data.data)[at] = copes_float8_of(x / scale);
}

DEVICE float read_weight(const copes_qk_problem &problem, const copes_qk_side &side, int64_t head, int64_t feature)
{
    return (float)problem.weight_offset + read_scalar(elements_of<any_type>(side.weight, side.weight_dtype) +
                                                      (head * side.weight.stride[0] + feature * side.weight.stride[1]));
}

/* The group's factor of the norm. `from`: the tensor that is normed. */
DEVICE float find_factor(const copes_qk_problem &problem, const any_group &group, const copes_view &from, float *memory)
{
    const copes_lrpe_problem &rotate = problem.side[group.side].rotate;
    float squares = 0; /* of a few features: an infinity stays one, as it would not in a long_sum */
    for_each_unit(rotate, group, [&](const lrpe::any_row<true> &row, const lrpe::any_unit &unit) {
        float x[2][1];
        lrpe::read_pair(row, from, unit.plain, x);
        squares = fmaf(x[0][0], x[0][0], fmaf(x[1][0], x[1][0], squares));
    });
    const float inverse_length = (float)(1 / ((double)rotate.d * (double)group.heads));
    return 1 / sqrtf(fmaf(sum_of_block(squares, memory), inverse_length, (float)problem.eps));
}

DEVICE void forward_group(const copes_qk_problem &problem, const any_group &group, float *memory)
{
    const copes_qk_side &side = problem.side[group.side];
    const bool norms = side.weight.data != nullptr;
    const float factor = norms ? find_factor(problem, group, side.rotate.src, memory) : 1;
    for_each_unit(side.rotate, group, [&](const lrpe::any_row<true> &row, const lrpe::any_unit &unit) {
        float y[2][1];
        lrpe::read_pair(row, side.rotate.src, unit.plain, y);
        for (int i = 0; i < 2 && norms; i++) {
            if (unit.plain[i] >= 0)
                y[i][0] = y[i][0] * factor * read_weight(problem, side, row.h, unit.plain[i]);
            if (problem.round_between)
                y[i][0] = round_to(problem.dtype, y[i][0]);
        }
        encode<encoding::half>(y, unit.rotations, unit.rotated);
        for (int i = 0; i < 2; i++) {
            if (unit.plain[i] < 0)
                continue;
            if (side.rotate.dst.data != nullptr)
                write_scalar(row.element(side.rotate.dst, unit.plain[i]), y[i][0]);
            if (group.side == 1)
                write_cached(problem, problem.k_cache, group, row.h, unit.plain[i], y[i][0]);
        }
    });
}

DEVICE void copy_values(const copes_qk_problem &problem, const any_group &group)
{
    const copes_view &v = problem.v;
    const any_pointer row = elements_of<any_type>(v, problem.dtype) +
                            (group.entry * v.stride[0] + group.token * v.stride[1] + group.head * v.stride[2]);
    for (int64_t i = threadIdx.x; i < problem.e; i += THREADS)
        write_cached(problem, problem.v_cache, group, group.head, i, read_scalar(row + i * v.stride[3]));
}

/* A block's sums for one row of weights; nullptr: none are asked for. */
DEVICE float *find_sums(const side_partials &side, int64_t d, int64_t head)
{
    const int64_t row = side.rows == 1 ? 0 : head;
    return side.rows == 0 ? nullptr : side.sums + (blockIdx.x * (int64_t)side.rows + row) * d;
}

DEVICE void backward_group(const any_arguments &all, const any_group &group, float *memory)
{
    const copes_qk_problem &problem = all.problem;
    const copes_qk_side &side = problem.side[group.side];
    const bool norms = side.weight.data != nullptr;
    const float factor = norms ? find_factor(problem, group, side.rotate.x, memory) : 1;
    long_sum sum;
    const auto each = [&](const lrpe::any_row<true> &row, const lrpe::any_unit &unit, const auto &use) {
        float g[2][1];
        lrpe::read_gradient(row, unit, g);
        for (int i = 0; i < 2; i++)
            if (unit.plain[i] >= 0)
                use(unit.plain[i], g[i][0], norms ? row.read(side.rotate.x, unit.plain[i]) * factor : 0,
                    norms ? read_weight(problem, side, row.h, unit.plain[i]) : 1);
    };
    if (norms)
        for_each_unit(side.rotate, group, [&](const lrpe::any_row<true> &row, const lrpe::any_unit &unit) {
            each(row, unit, [&](int64_t, float g, float normed, float w) { sum.add(g * w * normed); });
        });
    const float inverse_length = (float)(1 / ((double)side.rotate.d * (double)group.heads));
    const float mean = norms ? sum_of_block(sum.sum, memory) * inverse_length : 0;
    for_each_unit(side.rotate, group, [&](const lrpe::any_row<true> &row, const lrpe::any_unit &unit) {
        float *const learned = find_sums(all.side[group.side], side.rotate.d, row.h);
        each(row, unit, [&](int64_t feature, float g, float normed, float w) {
            if (learned != nullptr)
                learned[feature] += g * normed;
            write_scalar(row.element(side.rotate.dst, feature), factor * (g * w - normed * mean));
        });
    });
}

/* Sets a block's sums to 0. A thread has the same features here as in backward_group. */
DEVICE void clear_sums(const any_arguments &all, int side)
{
    const copes_lrpe_problem &rotate = all.problem.side[side].rotate;
    const any_group rows = {0, 0, 0, all.side[side].rows, side};
    for_each_unit(rotate, rows, [&](const lrpe::any_row<true> &row, const lrpe::any_unit &unit) {
        for (int i = 0; i < 2; i++)
            if (unit.plain[i] >= 0)
                find_sums(all.side[side], rotate.d, row.h)[unit.plain[i]] = 0;
    });
}

template <bool BACKWARD> __global__ void LAUNCH_BOUNDS(THREADS, 1) qk_any(GPU_PARAMETER any_arguments argument)
{
    const any_arguments &all = first_argument(argument);
    const copes_qk_problem &problem = all.problem;
    __shared__ float memory[THREADS / 32];
    const int64_t of_token = count_groups(problem, 0) + count_groups(problem, 1) + count_groups(problem, 2);
    const int64_t groups = problem.side[0].rotate.b * problem.side[0].rotate.n * of_token;
    for (int side = 0; side < 2 && BACKWARD; side++)
        if (all.side[side].rows > 0)
            clear_sums(all, side);
    for (int64_t index = blockIdx.x; index < groups; index += gridDim.x) {
        const any_group group = find_group(read_again(problem), index);
        if constexpr (BACKWARD)
            backward_group(read_again(all), group, memory);
        else if (group.side == 2)
            copy_values(read_again(problem), group);
        else
            forward_group(read_again(problem), group, memory);
    }
}

inline constexpr variant_word any_name = "qk_any";

template <bool BACKWARD>
inline constexpr const char *any_variant = variant_name<any_name, direction_names[BACKWARD]>::text;

typedef void any_kernel(any_arguments);

template <bool BACKWARD>
static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *workspace)
{
    any_arguments all = {problem.qk, {}};
    if (BACKWARD) {
        count_partials(problem.qk, (uint32_t)plan.grid[0], 1, all.side);
        place_partials(all.side, workspace);
    }
    COPES_TRY(launch_plan<any_kernel>(queue, plan, all));
    return BACKWARD ? add_up_weights(queue, problem.qk, all.side) : COPES_OK;
}

void plan_any(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    const copes_lrpe_problem &rotate = problem.side[0].rotate;
    const int64_t heads = rotate.h + (problem.sides == 2 ? problem.side[1].rotate.h : 0) + problem.v_heads;
    const int64_t wanted = greater<int64_t>(rotate.b * rotate.n * heads, 1);
    side_partials side[2] = {};
    int64_t most = wanted;
    if (is_learning(problem)) {
        /* A workspace that is there already is of a kernel that refused the tensors' addresses. */
        const int64_t bytes = greater<int64_t>(count_partials(problem, 1, 1, side), 1);
        most = lesser<int64_t>(wanted, plan->workspace > 0 ? plan->workspace / bytes : 4 * device.multiprocessors);
        plan->workspace = greater(plan->workspace, most * bytes);
    }
    set_launch(plan, blocks_of(most, THREADS), THREADS, 0);
    if (problem.backward)
        take<any_kernel>(plan, any_variant<true>, run<true>, qk_any<true>);
    else
        take<any_kernel>(plan, any_variant<false>, run<false>, qk_any<false>);
}

void list_any(variant_list *list)
{
    list->add(any_variant<false>);
    list->add(any_variant<true>);
}

} // namespace COPES_GPU::qk
