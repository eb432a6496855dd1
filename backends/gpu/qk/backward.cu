/* The backward of qk_norm_rope in whole vectors, bound by memory: gradients turn back, then through the norm. For the gradients of
 * weights a thread keeps one row of a token's, and goes from token to token: what its unit gives to the weights stays in
 * registers. Blocks leave their sums in the workspace, and a second kernel adds them up (weights.cu). All orders are fixed. */
#include "backends/gpu/qk/plan_rows.h"
#include "backends/gpu/qk/weights.h"

namespace COPES_GPU::qk
{

/* A thread's rows, in steps that the whole block takes together. SHARE: rows of a thread. */
template <typename T, encoding E, norm NORM, int SHARE> struct backward_rows {
    static constexpr int V = vector_length<T>;
    lrpe::raw_vectors<T, 2> g[SHARE];
    lrpe::raw_vectors<T, NORM != norm::none ? 2 : 0> x[SHARE];

    __device__ __forceinline__ void read(const row_arguments &all, const tile_place &tile, const lrpe::unit_places &at)
    {
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            if (!has_share(all, tile, i))
                continue;
            const row_place row(all, tile, i);
            const side_rows side = side_of(read_again(all), row.keys);
            g[i].read(lrpe::first_row<const T>(side.src, row.place), 0, at.plain);
            if (NORM != norm::none && side.weights.data != nullptr)
                x[i].read(lrpe::first_row<const T>(side.x, row.place), 0, at.plain);
        }
    }
    /* The gradient of a row's normed features. */
    __device__ __forceinline__ void turn_back(const row_place &row, const lrpe::unit_places &at,
                                              const lrpe::block_rotations<V> &made, int i, float (&back)[2][V]) const
    {
        rotation rotations[V];
        g[i].unpack(back);
        made.read((unsigned)row.token, at.there ? threadIdx.x : 0, rotations);
        decode<E>(back, rotations, at.rotated);
    }
    /* The sums of x^2 and of g w x behind each row, of which `back` is g. */
    __device__ __forceinline__ void sum(const row_arguments &all, const tile_place &tile, const lrpe::unit_places &at,
                                        const float *weights, const row_sums<2> &sums, const float (&back)[SHARE][2][V],
                                        float (&sum)[SHARE][2]) const
    {
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            const row_arguments &now = read_again(all);
            float w[2][V], value[2][V];
            if (!has_share(now, tile, i))
                continue;
            const row_place row(now, tile, i);
            find_weights<T>(now, row, at, weights, w);
            x[i].unpack(value);
#pragma unroll
            for (int j = 0; j < 2 * V; j++)
                w[j / V][j % V] *= back[i][j / V][j % V];
            sum[i][0] = sum_of_unit(at, value, value);
            sum[i][1] = sum_of_unit(at, w, value);
            sum_lanes<NORM>(sums, i, sum[i]);
        }
        if (NORM != norm::block)
            return;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SHARE; i++)
            if (has_share(read_again(all), tile, i))
                sums.get(read_again(all), row_place(read_again(all), tile, i), i, sum[i]);
    }
};

/* From the gradient g of a row's normed features to that of the features; terms become those of the weights' gradient. */
template <typename T, int V>
DEVICE void pass_norm(const row_arguments &all, const row_place &row, const lrpe::unit_places &at, const float *weights,
                      const float (&x)[2][V], const float (&sum)[2], float (&g)[2][V], float (&terms)[2][V])
{
    const side_rows side = side_of(all, row.keys);
    const float factor = norm_factor(all, side, sum[0]), mean = factor * sum[1] * side.inverse_length;
    float w[2][V];
    find_weights<T>(all, row, at, weights, w);
#pragma unroll
    for (int i = 0; i < 2 * V; i++) {
        float &gradient = g[i / V][i % V];
        const float normed = x[i / V][i % V] * factor;
        terms[i / V][i % V] = gradient * normed;
        gradient = factor * (gradient * w[i / V][i % V] - normed * mean);
    }
}

/* Does all for the tokens of a tile. Parts of the argument are read again and again, as AMD's scalar registers do not hold all of
 * it through the loop. Adds to `learned` what the only row of a thread gives to its weights' gradients. */
template <typename T, encoding E, norm NORM, bool ON_LINE, int SHARE, bool WEIGHTS>
DEVICE void run_tile(const row_arguments &all, const tile_place &tile, const lrpe::unit_places &at,
                     const lrpe::block_rotations<vector_length<T>> &made, const float *weights, const row_sums<2> &sums,
                     unit_learning<vector_length<T>> &learned)
{
    constexpr int V = vector_length<T>;
    backward_rows<T, E, NORM, SHARE> rows;
    float back[SHARE][2][V], sum[SHARE][2];
    make_rotations<ON_LINE, sizeof(T) == 4>(read_again(all), made, tile, [&] { rows.read(read_again(all), tile, at); });
#pragma unroll
    for (int i = 0; i < SHARE; i++)
        if (has_share(read_again(all), tile, i))
            rows.turn_back(row_place(read_again(all), tile, i), at, made, i, back[i]);
    if constexpr (NORM != norm::none)
        rows.sum(read_again(all), tile, at, weights, sums, back, sum);
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        const row_arguments &now = read_again(all);
        if (!has_share(now, tile, i))
            continue;
        const row_place row(now, tile, i);
        const side_rows side = side_of(now, row.keys);
        if constexpr (NORM != norm::none) {
            float x[2][V], terms[2][V];
            rows.x[i].unpack(x);
            if (side.weights.data != nullptr)
                pass_norm<T>(now, row, at, weights, x, sum[i], back[i], terms);
            if (WEIGHTS && row.live && side.weights.data != nullptr)
                learned.add(terms);
        }
        if (row.live && at.there)
            lrpe::write_row<E, true>(at, back[i], lrpe::first_row<T>(side.dst, row.place), 0);
    }
}

template <typename T, encoding E, norm NORM, bool WEIGHTS, bool ON_LINE>
__global__ void LAUNCH_BOUNDS(MOST_THREADS, 1) qk_backward(GPU_PARAMETER learning_arguments argument)
{
    constexpr int V = vector_length<T>, SHARE = WEIGHTS ? 1 : shares<NORM>;
    const learning_arguments &learning = first_argument(argument);
    const row_arguments &all = learning.rows;
    const lrpe::unit_places at =
        lrpe::find_unit<E, V>(all.d, all.source.k, all.source.begin(), all.units, (int)threadIdx.x);
    const lrpe::block_rotations<V> made(all.source, dynamic_shared());
    float *const weights = reinterpret_cast<float *>(dynamic_shared() + all.rotation_bytes);
    const row_sums<2> sums = {weights + 2 * all.d, ((int)blockDim.x + 31) / 32};
    unit_learning<V> learned;
    if (NORM != norm::none)
        read_shared_weights<T>(all, weights);
#pragma unroll 1
    for (uint32_t block = blockIdx.x; block < read_again(all).blocks; block += gridDim.x) {
        run_tile<T, E, NORM, ON_LINE, SHARE, WEIGHTS>(read_again(all), tile_place(read_again(all), block), at, made,
                                                      weights, sums, learned);
        if (!WEIGHTS)
            return;
        __syncthreads();
    }
    if constexpr (WEIGHTS)
        leave_sums(read_again(learning), at, learned, reinterpret_cast<float *>(dynamic_shared()));
}

inline constexpr variant_word backward_name = "qk_backward", gradient_names[] = {"weights fixed", "weights learn"};

template <typename T, encoding E, norm NORM, bool WEIGHTS, bool ON_LINE>
inline constexpr const char *backward_variant =
    variant_name<backward_name, type_name<T>, lrpe::encoding_names[(int)E], norm_names[(int)NORM],
                 gradient_names[WEIGHTS], place_names[ON_LINE]>::text;

template <typename T, encoding E, norm NORM, bool WEIGHTS, bool ON_LINE>
static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *workspace)
{
    learning_arguments all = tiling_of<learning_arguments>(plan);
    place_partials(all.side, workspace);
    COPES_TRY(launch(queue, qk_backward<T, E, NORM, WEIGHTS, ON_LINE>, grid_of(plan), block_of(plan),
                     (size_t)plan.shared, all));
    return WEIGHTS ? add_up_weights(queue, problem.qk, all.side) : COPES_OK;
}

template <typename T, encoding E, norm NORM, bool WEIGHTS, bool ON_LINE> static bool take_one(copes_plan *plan)
{
    return take(plan, backward_variant<T, E, NORM, WEIGHTS, ON_LINE>, run<T, E, NORM, WEIGHTS, ON_LINE>);
}

template <typename T, encoding E, bool WEIGHTS, bool ON_LINE>
static bool take_kernel(const row_cut &cut, copes_plan *plan)
{
    switch (cut.sum) {
    case norm::none: return take_one<T, E, norm::none, false, ON_LINE>(plan);
    case norm::warp: return take_one<T, E, norm::warp, WEIGHTS, ON_LINE>(plan);
    default: return take_one<T, E, norm::block, WEIGHTS, ON_LINE>(plan);
    }
}

template <typename T, encoding E, bool WEIGHTS>
static bool take_backward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    constexpr int V = vector_length<T>;
    learning_arguments all = {};
    row_cut cut = {WEIGHTS, ENOUGH_BLOCKS * device.multiprocessors, 0, norm::none, {}, 0};
    if (const char *why = cut_rows<T, E>(problem, &all.rows, &cut))
        return refuse(plan, backward_name, why);
    const int64_t units = WEIGHTS ? (int64_t)cut.threads.x * cut.threads.y * 2 * V : 0;
    const int64_t floats = cut.sum == norm::none ? 0 : 2 * (int64_t)all.rows.d + 2 * cut.sums;
    const int64_t shared =
        std::max((int64_t)all.rows.rotation_bytes + floats * (int64_t)sizeof(float), units * (int64_t)sizeof(float));
    if (shared > MOST_BYTES)
        return refuse(plan, backward_name, "the rotations and sums of a block do not fit its shared memory");
    const int threads = (int)(cut.threads.x * cut.threads.y), splits = (int)all.rows.splits.divisor;
    const int on_each = std::max(MOST_THREADS_ON_EACH / threads, 1);
    const uint32_t slots =
        std::min(all.rows.blocks / splits, (uint32_t)lrpe::times(on_each * device.multiprocessors, splits));
    set_launch(plan, WEIGHTS ? slots * splits : all.rows.blocks, cut.threads, shared);
    plan->workspace = WEIGHTS ? count_partials(problem, slots, splits, all.side) : 0;
    set_tiling(plan, all);
    if (is_on_line(problem.side[0].rotate))
        return take_kernel<T, E, WEIGHTS, true>(cut, plan);
    if constexpr (!WEIGHTS || LEARNS_ANYWHERE)
        return take_kernel<T, E, WEIGHTS, false>(cut, plan);
    return refuse(plan, backward_name, "weights learn, and positions are not integers on a line");
}

/* The problem as its strides alone have it: the workspace hangs on no address. */
static copes_qk_problem without_addresses(copes_qk_problem problem)
{
    for (copes_qk_side &side : problem.side) {
        for (copes_view *view : {&side.rotate.src, &side.rotate.x, &side.rotate.dst, &side.weight})
            *view = aligned(*view);
    }
    return problem;
}

template <typename T, encoding E>
bool plan_backward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    if (!is_allowed(device, backward_name, plan))
        return false;
    if (problem.side[0].rotate.b * problem.side[0].rotate.n == 0)
        return refuse(plan, backward_name, "there are no tokens");
    lrpe::row_shape shape;
    const bool fits = refuse_vectors<T, E>(problem, &shape) == nullptr;
    if (!is_learning(problem))
        return take_backward<T, E, false>(device, problem, plan);
    if (refuse_vectors<T, E>(without_addresses(problem), &shape) == nullptr && !fits)
        return take_backward<T, E, true>(device, without_addresses(problem), plan) &&
               refuse_addresses(plan, backward_name);
    return take_backward<T, E, true>(device, problem, plan);
}

#define QK_INSTANTIATE(T, E)                                                                                           \
    template bool plan_backward<T, encoding::E>(const gpu_device &, const copes_qk_problem &, copes_plan *);
#include "backends/gpu/qk/instantiate.inc"
#undef QK_INSTANTIATE

template <typename T, encoding E, bool ON_LINE> static void list_kernels(variant_list *list)
{
    list->add(backward_variant<T, E, norm::none, false, ON_LINE>);
    list->add(backward_variant<T, E, norm::warp, false, ON_LINE>);
    list->add(backward_variant<T, E, norm::block, false, ON_LINE>);
    if constexpr (ON_LINE || LEARNS_ANYWHERE) {
        list->add(backward_variant<T, E, norm::warp, true, ON_LINE>);
        list->add(backward_variant<T, E, norm::block, true, ON_LINE>);
    }
}

void list_backward(variant_list *list)
{
#define QK_INSTANTIATE(T, E)                                                                                           \
    list_kernels<T, encoding::E, false>(list);                                                                         \
    list_kernels<T, encoding::E, true>(list);
#include "backends/gpu/qk/instantiate.inc"
}

} // namespace COPES_GPU::qk
