/* The backward of qk_norm_rope in whole vectors, bound by memory: gradients turn back, then through the norm. For the gradients of
 * weights a block goes from tile to tile, and what its threads' units give to the weights stays in shared memory. Blocks leave
 * their sums in the workspace, and a second kernel adds them up (weights.cu). All orders are fixed. */
#include "backends/gpu/qk/plan_rows.h"
#include "backends/gpu/qk/weights.h"
#include "launch.h"

namespace COPES_GPU::qk
{

/* A row of what a thread reads ahead is a unit of a head's gradient and, with a norm, of the forward's input. */
template <norm NORM, bool WEIGHTS> using reader = read_ahead<NORM == norm::none ? 2 : 4, WEIGHTS ? 2 : 4>;

/* Reads the unit of head i before heads are gone through: part `part` of what has been read ahead, or from memory. */
template <typename T, typename Ahead>
DEVICE void read_early(const Ahead &ahead, const lrpe::unit_places &at, const head_units<const T> &from, int i,
                       int part, float (&x)[2][vector_length<T>])
{
    if (i < Ahead::DEPTH)
        take_unit<T>(ahead, i, part, x);
    else
        from.read(at, x);
}

/* A thread, on its way over its heads. */
template <typename T, encoding E, norm NORM, bool WEIGHTS> struct backward_heads {
    static constexpr int V = vector_length<T>;
    head_group group;
    lrpe::unit_places at;
    head_units<const T> g, x;
    unit_weights<T> weights;
    reader<NORM, WEIGHTS> ahead;
    /* Where weights learn, a thread has no registers to hold them besides rotations. */
    typedef unit_turn<T, E, WEIGHTS ? norm::none : NORM> turn_of_heads;

    __device__ __forceinline__ backward_heads(const row_arguments &all, const tile_place &tile, char *memory)
        : group(all, tile), at(find_unit<E, V>(all, group)), g(choose_rows(all, group.which, &side_rows::src), group),
          x(choose_rows(all, group.which, &side_rows::x), group), weights(all, group, at, memory),
          ahead(memory + all.ahead)
    {
    }
    /* Says what is_alike has found. The compiler then leaves out the branches for other calls. */
    __device__ __forceinline__ void assume_alike()
    {
        at.there = at.second = at.rotated = weights.any = true;
        weights.own = false;
    }
    __device__ __forceinline__ void start(const row_arguments &all, int i)
    {
        if (i < group.count) {
            g.start(at, i, 0, NORM == norm::none && all.split_sectors, &ahead);
            g.move();
            if (NORM != norm::none && weights.any) {
                x.start(at, i, 2, false, &ahead);
                x.move();
            }
        }
        ahead.end_row();
    }
    /* Turns the gradient of head i back. `weighed` becomes that times the norm's weights; it may be g itself, unless weights learn. */
    __device__ __forceinline__ void turn_back(const row_arguments &all, int i, turn_of_heads *turn, float (&g)[2][V],
                                              float (&weighed)[2][V]) const
    {
        if constexpr (WEIGHTS) {
            decode<E>(g, turn->of[0], at.rotated);
            if (weights.any)
                weights.weigh(all, group, at, i, g, weighed);
        } else if (NORM != norm::none && turn->weighted) {
            turn->turn_back_and_weigh(g);
        } else {
            decode<E>(g, turn->of[0], at.rotated);
            if (NORM != norm::none && weights.any) {
                weights.renew(all, group, at, i, turn);
                turn->weigh(g);
            }
        }
    }
    /* A unit's part of the sums of x^2 and of x times its weighed gradient, which are behind a norm. */
    __device__ __forceinline__ void sum_unit(const float (&x)[2][V], const float (&g)[2][V], float (&sum)[2]) const
    {
        sum[0] = sum_of_unit(at, x, x);
        sum[1] = sum_of_unit(at, g, x);
    }
    /* The sums behind a norm over all heads, whose units are at `gradients` and `inputs`. Waits for what is read ahead. */
    __device__ __forceinline__ void sum_heads(const row_arguments &all, const group_sums<2> &sums,
                                              head_units<const T> gradients, head_units<const T> inputs,
                                              turn_of_heads *turn, float (&total)[2]) const
    {
        total[0] = total[1] = 0;
        ahead.wait_for_all();
        for (int i = 0; i < group.count && weights.any; i++, gradients.move(), inputs.move()) {
            float g[2][V], x[2][V], own[2], product[2][V];
            float(&weighed)[2][V] = WEIGHTS ? product : g;
            read_early<T>(ahead, at, gradients, i, 0, g);
            read_early<T>(ahead, at, inputs, i, 2, x);
            turn_back(all, i, turn, g, weighed);
            sum_unit(x, weighed, own);
            total[0] += own[0];
            total[1] += own[1];
        }
        sums.meet_heads(all, group, total);
    }
};

/* Goes through a thread's heads, and writes their gradients. `known`: the norm is over all heads, and `sum` has its sums. */
template <typename T, encoding E, norm NORM, bool WEIGHTS>
DEVICE void pass_heads(const row_arguments &all, const lrpe::block_rotations<E, vector_length<T>> &made,
                       const group_sums<2> &sums, backward_heads<T, E, NORM, WEIGHTS> heads,
                       typename backward_heads<T, E, NORM, WEIGHTS>::turn_of_heads turn, bool known, float (&sum)[2],
                       float (&terms)[2][vector_length<T>])
{
    constexpr int V = vector_length<T>;
    const head_group &group = heads.group;
    const lrpe::unit_places &at = heads.at;
    head_units<T> dst(choose_rows(read_again(all), group.which, &side_rows::dst), group);
#pragma unroll 1
    for (int i = 0; i < read_again(all).heads; i++) {
        float g[2][V], x[2][V], product[2][V];
        float(&weighed)[2][V] = WEIGHTS ? product : g;
        heads.ahead.wait();
        take_unit<T>(heads.ahead, i, 0, g);
        if constexpr (NORM != norm::none)
            take_unit<T>(heads.ahead, i, 2, x);
        heads.start(read_again(all), i + heads.ahead.DEPTH);
        if (WEIGHTS) /* again, as registers are few */
            turn = {read_again(all), made, group, at, heads.weights, true};
        heads.turn_back(read_again(all), i, &turn, g, weighed);
        if (NORM != norm::none && !known) {
            heads.sum_unit(x, weighed, sum);
            sum_head<NORM>(sums, i, sum);
        }
        if (i >= group.count || !at.there)
            continue;
        if (NORM != norm::none && heads.weights.any)
            pass_norm<WEIGHTS>(read_again(all), group, sum, x, weighed, g, terms);
        dst.write(at, g);
        dst.move();
    }
}

/* Does all for the tokens of a tile. `terms` become what a thread's heads give to their weights' gradients. Where those are asked for,
 * calls for which is_alike holds have a loop without the branches for other calls, between which the compiler finds too little to do. */
template <typename T, encoding E, norm NORM, bool WEIGHTS, bool ON_LINE>
DEVICE void run_tile(const row_arguments &all, const tile_place &tile, char *memory, bool alike,
                     float (&terms)[2][vector_length<T>])
{
    constexpr int V = vector_length<T>;
    const lrpe::block_rotations<E, V> made(all.source, memory);
    const group_sums<2> sums(all, memory);
    backward_heads<T, E, NORM, WEIGHTS> heads(all, tile, memory);
    const head_group &group = heads.group;
    const lrpe::unit_places &at = heads.at;
    const head_units<const T> first_g = heads.g, first_x = heads.x;
#pragma unroll
    for (int i = 0; i < heads.ahead.DEPTH; i++)
        heads.start(all, i);
    make_rotations<ON_LINE, sizeof(T) == 4>(read_again(all), made, tile);
    float sum[2];
    typedef typename backward_heads<T, E, NORM, WEIGHTS>::turn_of_heads turn_of_heads;
    turn_of_heads turn(read_again(all), made, group, at, heads.weights, true);
    const bool known = NORM == norm::block && read_again(all).over_heads;
    if (known)
        heads.sum_heads(read_again(all), sums, first_g, first_x, &turn, sum);
    if (WEIGHTS && NORM == norm::warp && alike) {
        heads.assume_alike();
        pass_heads(all, made, sums, heads, turn, known, sum, terms);
    } else {
        pass_heads(all, made, sums, heads, turn, known, sum, terms);
    }
}

template <typename T, encoding E, norm NORM, bool WEIGHTS, bool ON_LINE>
__global__ void LAUNCH_BOUNDS(WEIGHTS ? (int)MOST_THREADS_ON_EACH : (int)MOST_THREADS,
                              WEIGHTS || NORM == norm::block ? 1 : 2)
    qk_backward(GPU_PARAMETER learning_arguments argument)
{
    const learning_arguments &learning = first_argument(argument);
    char *const memory = dynamic_shared();
    if (NORM != norm::none)
        read_shared_weights<T>(learning.rows, memory);
    if constexpr (WEIGHTS) {
        constexpr keeping PLACE = keeping::in_shared_memory;
        learn_tiles<T, E, 1, PLACE>(learning, memory, [&](uint32_t block, float(&terms)[1][2][vector_length<T>]) {
            const row_arguments &all = learning.rows;
            run_tile<T, E, NORM, true, ON_LINE>(read_again(all), tile_place(read_again(all), block), memory,
                                                read_again(learning).alike, terms[0]);
        });
    } else {
        float none[2][vector_length<T>];
        const row_arguments &all = read_again(learning.rows);
        run_tile<T, E, NORM, false, ON_LINE>(all, tile_place(all, blockIdx.x), memory, false, none);
    }
}

inline constexpr variant_word backward_name = "qk_backward", gradient_names[] = {"weights fixed", "weights learn"};

template <typename T, encoding E, norm NORM, bool WEIGHTS, bool ON_LINE>
inline constexpr const char *backward_variant =
    variant_name<backward_name, type_name<T>, lrpe::encoding_names[(int)E], norm_names[(int)NORM],
                 gradient_names[WEIGHTS], place_names[ON_LINE]>::text;

typedef void backward_kernel(learning_arguments);

template <bool WEIGHTS>
static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *workspace)
{
    learning_arguments all = tiling_of<learning_arguments>(plan);
    place_partials(all.side, workspace);
    COPES_TRY(
        launch_ex(queue, {}, planned<backward_kernel>(plan), grid_of(plan), block_of(plan), (size_t)plan.shared, all));
    return WEIGHTS ? add_up_weights(queue, problem.qk, all.side) : COPES_OK;
}

template <typename T, encoding E, norm NORM, bool WEIGHTS, bool ON_LINE> static bool take_one(copes_plan *plan)
{
    return take<backward_kernel>(plan, backward_variant<T, E, NORM, WEIGHTS, ON_LINE>, run<WEIGHTS>,
                                 qk_backward<T, E, NORM, WEIGHTS, ON_LINE>);
}

template <typename T, encoding E, bool WEIGHTS, bool ON_LINE>
static bool take_kernel(const row_cut &cut, copes_plan *plan)
{
    if constexpr (!is_narrow<T>) {
        if (cut.sum == norm::warp)
            return take_one<T, E, norm::warp, WEIGHTS, ON_LINE>(plan);
        if (cut.sum == norm::block)
            return take_one<T, E, norm::block, WEIGHTS, ON_LINE>(plan);
    }
    return take_one<T, E, norm::none, false, ON_LINE>(plan);
}

/* A thread's bytes of what it reads ahead. */
template <bool WEIGHTS> static int ahead_bytes(norm sum)
{
    return sum == norm::none ? reader<norm::none, WEIGHTS>::BYTES : reader<norm::warp, WEIGHTS>::BYTES;
}

/* The heads of a thread, at most, where a norm is over all heads: as many as it reads ahead, so that it reads none twice. Where these
 * are fewer than four, a token would take too many threads. */
template <bool WEIGHTS> static int heads_over_all()
{
    constexpr int DEPTH = reader<norm::block, WEIGHTS>::DEPTH;
    return DEPTH < 4 ? (int)MOST_HEADS : DEPTH;
}

/* Does every thread have two vectors that turn, and has every side weights that its heads share? */
static bool is_alike(const copes_qk_problem &problem, const row_arguments &all, int features)
{
    for (int i = 0; i < problem.sides; i++)
        if (all.side[i].weights.data == nullptr || all.side[i].weights.row != 0)
            return false;
    return features == all.d && 2 * all.source.k == all.d;
}

template <typename T, encoding E, bool WEIGHTS>
static bool take_backward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    constexpr int V = vector_length<T>;
    learning_arguments all = {};
    /* 640 threads run on a multiprocessor. Where all blocks run at once they are planned by 512, which gives threads more heads:
     * 1024 tokens then take 2 % less. */
    row_cut cut = {.multiprocessors = device.multiprocessors,
                   .split = has_norm(problem) ? (int)SPLIT_OF_TWO : (int)MOST_SPLIT,
                   .fewest = WEIGHTS ? MANY_HEADS : FEW_HEADS,
                   .over_all = heads_over_all<WEIGHTS>(),
                   .running = WEIGHTS ? (int)MOST_THREADS_ON_EACH : most_at_once<T>,
                   .at_once = is_narrow<T> ? most_at_once<T> : (int)MOST_THREADS_ON_EACH,
                   .usual = usual_threads<T>};
    if (const char *why = cut_rows<T, E>(problem, &all.rows, &cut))
        return refuse(plan, backward_name, why);
    all.alike = is_alike(problem, all.rows, (int)cut.threads.x * 2 * V);
    all.rows.ahead = all.rows.rotation_bytes + (uint32_t)norm_bytes(cut, all.rows.d, 0, 2);
    const int threads = (int)(cut.threads.x * cut.threads.y), splits = (int)all.rows.splits.divisor;
    all.begin = all.rows.ahead + (uint32_t)(threads * ahead_bytes<WEIGHTS>(cut.sum));
    const int64_t shared = (int64_t)all.begin + (WEIGHTS ? learning_bytes<V>(cut.threads) : 0);
    if (shared > (WEIGHTS ? device.shared_memory : (int)MOST_BYTES))
        return refuse(plan, backward_name, "what a block keeps does not fit its shared memory");
    const int on_each = greater(MOST_THREADS_ON_EACH / in_warps(threads), 1);
    const uint32_t at_once = (uint32_t)(on_each * device.multiprocessors);
    const uint32_t slots =
        lesser(all.rows.blocks / splits, greater(at_once / splits, 1u)); /* no block waits for another */
    set_launch(plan, WEIGHTS ? slots * splits : all.rows.blocks, cut.threads,
               shared_of<T>(device, cut, all.rows.blocks, ahead_bytes<WEIGHTS>(cut.sum), shared));
    plan->workspace = WEIGHTS ? count_partials(problem, slots, splits, all.side) : 0;
    set_tiling(plan, all);
    if (is_on_line(problem.side[0].rotate))
        return take_kernel<T, E, WEIGHTS, true>(cut, plan);
    if constexpr (!WEIGHTS || LEARNS_ANYWHERE)
        return take_kernel<T, E, WEIGHTS, false>(cut, plan);
    return refuse(plan, backward_name, "weights learn, and positions are not integers on a line");
}

template <typename T, encoding E>
bool plan_backward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    if (!is_allowed(device, backward_name, plan))
        return false;
    if (problem.side[0].rotate.b * problem.side[0].rotate.n == 0)
        return refuse(plan, backward_name, "there are no tokens");
    if (has_learning_heads(problem))
        return refuse(plan, backward_name, "each head learns weights of its own");
    if (!is_learning(problem) || is_narrow<T>)
        return take_backward<T, E, false>(device, problem, plan);
    return plan_learning<T, E>(problem, plan, backward_name,
                               [&](const copes_qk_problem &of) { return take_backward<T, E, true>(device, of, plan); });
}

#define QK_INSTANTIATE(T, E)                                                                                           \
    template bool plan_backward<T, encoding::E>(const gpu_device &, const copes_qk_problem &, copes_plan *);
#include "backends/gpu/qk/instantiate.inc"
#include "backends/gpu/qk/instantiate_narrow.inc"
#undef QK_INSTANTIATE

template <typename T, encoding E, bool ON_LINE> static void list_kernels(variant_list *list)
{
    list->add(backward_variant<T, E, norm::none, false, ON_LINE>);
    if constexpr (!is_narrow<T>) {
        list->add(backward_variant<T, E, norm::warp, false, ON_LINE>);
        list->add(backward_variant<T, E, norm::block, false, ON_LINE>);
    }
    if constexpr (!is_narrow<T> && (ON_LINE || LEARNS_ANYWHERE)) {
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
#include "backends/gpu/qk/instantiate_narrow.inc"
}

} // namespace COPES_GPU::qk
