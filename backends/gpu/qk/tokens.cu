/* qk_norm_rope token by token, in whole vectors, bound by memory. A block has all heads of a token, of which a thread has a unit of one,
 * or of each of two: it keeps the heads' weights, and what the heads give to their gradients, in registers. The next tokens are on their
 * way meanwhile, so that a norm over all heads, whose sums all threads of a token wait for, leaves memory no time without work. */
#include "backends/gpu/qk/tokens.h"
#include "launch.h"

namespace COPES_GPU::qk
{

/* Norms, turns and writes a thread's units of one token after the other. */
template <typename T, encoding E, int UNITS> struct token_results {
    static constexpr int V = vector_length<T>;
    written_units<T> dst;

    __device__ __forceinline__ token_results(const row_arguments &all, const head_group &group) : dst(all, group)
    {
    }
    /* The next token, number `token` of the tile, whose squares have the sum `squares`. */
    __device__ __forceinline__ void finish(const row_arguments &all, const token_thread<T, E, 1, UNITS> &thread,
                                           const lrpe::block_rotations<E, V> &made, int token, const token_slots &slots,
                                           float squares, float (&y)[UNITS][2][V])
    {
        const head_group &group = thread.group;
        rotation turn[V];
        thread.read_rotations(all, made, token, turn);
        const bool cached = group.which == KEYS && all.side[KEYS].cache.data != nullptr;
        const int slot = cached ? slots.of(all, token) : -1;
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++) {
            if (unit > 0 && !thread.has(unit))
                break;
            if (thread.weights.any)
                weigh(all, thread, unit, squares, y[unit]);
            encode<E>(y[unit], turn, thread.at.rotated);
            if (dst.first.head != nullptr)
                dst.write(all, group, thread.at, unit, y[unit]);
            if (slot >= 0)
                write_cached_head<T>(all.cache, all.side[KEYS].cache, slot, group.place.head + unit * group.step,
                                     thread.at.plain, y[unit]);
        }
        if (dst.first.head != nullptr)
            dst.first.move();
    }

  private:
    DEVICE void weigh(const row_arguments &all, const token_thread<T, E, 1, UNITS> &thread, int unit, float squares,
                      float (&y)[2][V])
    {
        const float factor = norm_factor(all.eps, inverse_length(all, thread.group), squares);
#pragma unroll
        for (int j = 0; j < 2 * V; j++)
            y[j / V][j % V] *= factor; /* first: what is subnormal becomes normal */
        thread.weigh(unit, y, y);
        if (all.round_between)
            round_unit<T>(y);
    }
};

template <typename T, encoding E, int UNITS>
__global__ void LAUNCH_BOUNDS(MOST_OF_TOKEN, 1) qk_tokens_forward(GPU_PARAMETER row_arguments argument)
{
    constexpr int V = vector_length<T>, COUNT = TOGETHER<UNITS>;
    const row_arguments &all = first_argument(argument);
    const tile_place tile(all, blockIdx.x);
    char *const memory = dynamic_shared();
    const token_slots slots(all, tile, memory + token_sums<COUNT>::BYTES);
    const lrpe::block_rotations<E, V> made(all.source, memory);
    token_thread<T, E, 1, UNITS> thread(all, tile, memory);
    const token_sums<COUNT> sums(all, thread.group, memory);
    token_results<T, E, UNITS> results(all, thread.group);
    slots.keep(read_again(all), tile.left);
    make_rotations<false, sizeof(T) == 4>(read_again(all), made, tile);
#pragma unroll 1
    for (int token = 0; token <= tile.left; token += COUNT) {
        thread.pass_values(read_again(all), token, COUNT, slots);
        float units[COUNT][UNITS][2][V], squares[COUNT];
        thread.ahead.template wait<COUNT>();
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            thread.take(token + i, 0, units[i]);
            squares[i] = thread.product(units[i], units[i]);
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            thread.start(read_again(all), token + i + thread.ahead.DEPTH);
        sums.meet(read_again(all), token / COUNT, squares);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (thread.at.there && token + i <= tile.left)
                results.finish(read_again(all), thread, made, token + i, slots, squares[i], units[i]);
    }
    const row_arguments &again = read_again(all);
    copy_values<T>(again, tile_place(again, blockIdx.x), slots);
}

/* Goes through a tile. `terms`: adds what the thread's heads give to their weights' gradients. */
template <typename T, encoding E, bool WEIGHTS, int UNITS>
DEVICE void pass_tile(const row_arguments &all, const tile_place &tile, char *memory,
                      float (&terms)[UNITS][2][vector_length<T>])
{
    constexpr int V = vector_length<T>;
    constexpr bool ON_LINE = WEIGHTS && !LEARNS_ANYWHERE;
    /* While the sums meet, registers are short: the weighed gradient is found again after that, and two units' x is taken again. */
    constexpr bool WEIGH_AGAIN = WEIGHTS, TAKE_AGAIN = WEIGHTS && UNITS > 1;
    const lrpe::block_rotations<E, V> made(all.source, memory);
    token_thread<T, E, 2, UNITS> thread(all, tile, memory);
    const token_sums<2> sums(all, thread.group, memory);
    written_units<T> dst(all, thread.group);
    make_rotations<ON_LINE, sizeof(T) == 4>(read_again(all), made, tile);
#pragma unroll 1
    for (int token = 0; token <= tile.left; token++) {
        float g[UNITS][2][V], x[UNITS][2][V], product[UNITS][2][V], sum[2] = {0, 0};
        float(&weighed)[UNITS][2][V] = WEIGHTS ? product : g;
        rotation turn[V];
        thread.ahead.wait();
        thread.take(token, 0, g);
        if (!TAKE_AGAIN) {
            thread.take(token, 1, x);
            thread.start(read_again(all), token + thread.ahead.DEPTH);
        }
        thread.read_rotations(all, made, token, turn);
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++)
            decode<E>(g[unit], turn, thread.at.rotated);
        if (TAKE_AGAIN)
            thread.take(token, 1, x);
        if (thread.weights.any) {
#pragma unroll
            for (int unit = 0; unit < UNITS; unit++)
                thread.weigh(unit, g[unit], weighed[unit]);
            sum[0] = thread.product(x, x);
            sum[1] = thread.product(weighed, x);
        }
        sums.meet(read_again(all), token, sum);
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++) {
            if (!thread.has(unit))
                break;
            if (WEIGH_AGAIN) {
#pragma unroll
                for (int j = 0; j < 2 * V; j++)
                    settle(g[unit][j / V][j % V]);
                thread.weigh(unit, g[unit], weighed[unit]);
            }
            if (TAKE_AGAIN)
                thread.take(token, 1, unit, x[unit]);
            if (thread.weights.any)
                pass_norm<WEIGHTS>(read_again(all), thread.group, sum, x[unit], weighed[unit], g[unit], terms[unit]);
            dst.write(read_again(all), thread.group, thread.at, unit, g[unit]);
        }
        dst.first.move();
        if (TAKE_AGAIN)
            thread.start(read_again(all), token + thread.ahead.DEPTH);
    }
}

template <typename T, encoding E, weights_are W, int UNITS>
__global__ void LAUNCH_BOUNDS((most_of_token<T, W>), 1) qk_tokens_backward(GPU_PARAMETER learning_arguments argument)
{
    constexpr int V = vector_length<T>;
    const learning_arguments &learning = first_argument(argument);
    const row_arguments &all = learning.rows;
    char *const memory = dynamic_shared();
    if constexpr (W != weights_are::fixed) {
        constexpr keeping PLACE = W == weights_are::learning ? keeping::in_shared_memory : keeping::in_workspace;
        learn_tiles<T, E, UNITS, PLACE>(learning, memory, [&](uint32_t block, float(&terms)[UNITS][2][V]) {
            pass_tile<T, E, true, UNITS>(read_again(all), tile_place(read_again(all), block), memory, terms);
        });
    } else {
        float none[UNITS][2][V];
        pass_tile<T, E, false, UNITS>(all, tile_place(all, blockIdx.x), memory, none);
    }
}

inline constexpr variant_word tokens_forward_name = "qk_tokens_forward", tokens_backward_name = "qk_tokens_backward",
                              tokens_gradients[] = {"weights fixed", "weights learn", "many weights learn"},
                              tokens_units[] = {"a head", "two heads"};

template <typename T, encoding E, int UNITS>
inline constexpr const char *tokens_forward =
    variant_name<tokens_forward_name, type_name<T>, lrpe::encoding_names[(int)E], tokens_units[UNITS - 1]>::text;

template <typename T, encoding E, weights_are W, int UNITS>
inline constexpr const char *tokens_backward =
    variant_name<tokens_backward_name, type_name<T>, lrpe::encoding_names[(int)E], tokens_gradients[(int)W],
                 tokens_units[UNITS - 1]>::text;

typedef void forward_kernel(row_arguments);
typedef void backward_kernel(learning_arguments);

static copes_status run_forward(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    return launch_ex(queue, {}, planned<forward_kernel>(plan), grid_of(plan), block_of(plan), (size_t)plan.shared,
                     tiling_of<row_arguments>(plan));
}

template <bool WEIGHTS>
static copes_status run_backward(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan,
                                 void *workspace)
{
    learning_arguments all = tiling_of<learning_arguments>(plan);
    place_partials(all.side, workspace);
    all.kept = reinterpret_cast<long_sum *>(static_cast<char *>(workspace) + all.begin);
    COPES_TRY(
        launch_ex(queue, {}, planned<backward_kernel>(plan), grid_of(plan), block_of(plan), (size_t)plan.shared, all));
    return WEIGHTS ? add_up_weights(queue, problem.qk, all.side) : COPES_OK;
}

/* What limits blocks, and how they came out. */
struct token_cut {
    int most;                /* threads of a multiprocessor, at most */
    int tokens, in_turns;    /* of a block, at most, where all blocks run at once; where they take their turns */
    int units;               /* of a thread */
    int64_t sums, of_thread; /* bytes of shared memory: of token_sums and token_slots, and of each thread */
    dim3 threads = {};
    int64_t shared = 0;
};

/* Shares q's and k's heads out, `units` to a group, and gives each side whole warps. Heads that norm alone may be of several blocks.
 * Returns the threads of a block. */
static int group_token(const copes_qk_problem &problem, int lanes, const token_cut &cut, row_arguments *all)
{
    const int of_warp = greater(32 / lanes, 1);
    const auto whole_warps = [&](int groups) { return lrpe::times(groups, of_warp) * of_warp; };
    all->groups = 0;
    for (side_rows *side : {&all->side[QUERIES], &all->side[KEYS]}) {
        side->groups = whole_warps(lrpe::times(side->heads, cut.units));
        side->each = side->groups > side->heads ? 1 : cut.units; /* of whole warps some groups may have none */
        side->full = side->heads - side->groups * (side->each - 1);
        all->groups += side->groups;
    }
    if (all->groups == 0)
        return 0;
    const int splits = problem.over_heads ? 1 : lrpe::times(all->groups, greater(cut.most / lanes, 1));
    const int groups_here = whole_warps(lrpe::times(all->groups, splits));
    all->groups_here = divider(groups_here);
    all->splits = divider(lrpe::times(all->groups, groups_here));
    return groups_here * lanes;
}

/* Tokens of a block, at most. With many a block begins less often, which costs as much as two or three tokens. Where weights learn, it has
 * a fixed share of the tokens. */
enum { FEWER_TOKENS = 8, FEW_TOKENS = 16, MORE_TOKENS = 24, MANY_TOKENS = 128 };
static_assert(MORE_TOKENS <= 32, "a block has at least as many threads, which token_slots counts on");

/* The same where weights do not learn, and blocks take their turns. Some multiprocessors are done sooner than others, by up to a tenth of
 * a kernel's time: with few tokens to a block they take more blocks. docs/lab/experiments.md has the times. */
template <typename T, int TENSORS, int UNITS> constexpr int tokens_in_turns()
{
    if (sizeof(T) == 2)
        return FEW_TOKENS;
    if (UNITS == 1)
        return TENSORS == 1 ? FEWER_TOKENS : FEW_TOKENS;
    return TENSORS == 1 ? MORE_TOKENS : FEWER_TOKENS;
}

/* The tokens of a block, of which `at_once` run: as few as let all blocks run at once, or in as few rounds as the most tokens take, of
 * which `fitting` have room. */
static int count_tokens(double tokens, int at_once, const token_cut &cut, int64_t fitting)
{
    const double of_each = ceil(tokens / at_once);
    const int64_t most = lesser<int64_t>(fitting, of_each <= cut.tokens ? cut.tokens : cut.in_turns);
    return (int)ceil(of_each / ceil(of_each / (double)most));
}

/* The tokens whose rotations, of `of_token` bytes each, fit what is left of a block's shared memory where so many blocks run on a
 * multiprocessor. */
static int64_t count_fitting(const gpu_device &device, int blocks, int64_t kept, int64_t of_token)
{
    constexpr int RESERVED = 1024; /* of each block, by CUDA */
    return ((device.shared_memory + RESERVED) / blocks - RESERVED - align(kept)) / of_token;
}

/* Cuts tokens into blocks, and fills in what kernels are told. Returns why they do not take the problem; nullptr: they do. */
template <typename T, encoding E>
static const char *cut_by_token(const gpu_device &device, const copes_qk_problem &problem, row_arguments *all,
                                token_cut *cut)
{
    row_cut rows = {};
    if (const char *why = describe_rows<T, E>(problem, all))
        return why;
    const int lanes = lanes_of(problem, all->units, vector_length<T>, &rows);
    if (lanes > MOST_OF_TOKEN)
        return "a head has more vectors than a block has threads";
    if (cut->units > 1 && !problem.over_heads)
        return "no norm is over all heads, whose threads may have two each";
    const int threads = group_token(problem, lanes, *cut, all);
    const int64_t entries = problem.side[0].rotate.b, kept = cut->sums + threads * cut->of_thread;
    if (threads == 0 || threads > cut->most)
        return "a token has no heads, or more vectors than a block has threads";
    if (entries * all->n == 0)
        return "there are no tokens";
    if ((double)greater(cut->tokens, cut->in_turns) * all->side[VALUES].heads * all->e > INT32_MAX)
        return "a block's values are more than 2^31";
    const int on_each = cut->most / threads;
    const int64_t of_token = (int64_t)all->source.bytes(), fitting = count_fitting(device, 1, kept, of_token);
    if (fitting < 1)
        return "what a block keeps does not fit its shared memory";
    const int64_t beside_others = greater<int64_t>(count_fitting(device, on_each, kept, of_token), 1);
    const int splits = (int)all->splits.divisor;
    const int tokens =
        count_tokens((double)entries * all->n * splits, device.multiprocessors * on_each, *cut, beside_others);
    all->source.tokens = lesser(tokens, all->n);
    all->tokens_here = divider(1);
    all->tiles = divider(lrpe::times(all->n, all->source.tokens));
    if ((double)entries * all->tiles.divisor * splits > INT32_MAX)
        return "there are more blocks than a launch takes";
    all->blocks = (uint32_t)(entries * all->tiles.divisor * splits);
    all->rotation_bytes = (uint32_t)align((int64_t)all->source.bytes());
    all->ahead = all->rotation_bytes + (uint32_t)cut->sums;
    cut->threads = dim3((unsigned)lanes, (unsigned)(threads / lanes));
    cut->shared = all->rotation_bytes + kept;
    return nullptr;
}

template <typename T, encoding E, int UNITS>
static bool take_forward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    row_arguments all = {};
    token_cut cut = {MOST_OF_TOKEN,
                     FEW_TOKENS,
                     tokens_in_turns<T, 1, UNITS>(),
                     UNITS,
                     token_sums<TOGETHER<UNITS>>::BYTES + token_slots::bytes(MORE_TOKENS),
                     reader<1, UNITS>::BYTES};
    if (const char *why = cut_by_token<T, E>(device, problem, &all, &cut))
        return refuse(plan, tokens_forward_name, why);
    set_launch(plan, all.blocks, cut.threads, cut.shared);
    set_tiling(plan, all);
    return take<forward_kernel>(plan, tokens_forward<T, E, UNITS>, run_forward, qk_tokens_forward<T, E, UNITS>);
}

template <typename T, encoding E>
bool plan_tokens_forward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    if (!is_allowed(device, tokens_forward_name, plan))
        return false;
    if (!has_norm(problem) || !problem.over_heads)
        return refuse(plan, tokens_forward_name, "no norm is over all heads");
    if (take_forward<T, E, 1>(device, problem, plan))
        return true;
    if constexpr (MOST_UNITS<T> > 1)
        return take_forward<T, E, MOST_UNITS<T>>(device, problem, plan);
    return false;
}

/* The sums that threads keep from tile to tile: where a block's begin in its shared memory, or all blocks' in the workspace. */
template <typename T, weights_are W, int UNITS>
static void place_kept(const copes_qk_problem &problem, uint32_t slots, int threads, learning_arguments *all,
                       copes_plan *plan)
{
    constexpr int64_t OF_THREAD = UNITS * 2 * vector_length<T> * (int64_t)sizeof(long_sum);
    const int splits = (int)all->rows.splits.divisor;
    plan->workspace = count_partials(problem, slots, splits, all->side);
    all->begin =
        W == weights_are::learning ? all->rows.ahead + threads * (int64_t)reader<2, UNITS>::BYTES : plan->workspace;
    if (W == weights_are::learning_wide && slots * splits < all->rows.blocks)
        plan->workspace += slots * splits * threads * OF_THREAD;
}

template <typename T, encoding E, weights_are W, int UNITS>
static bool take_backward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    constexpr bool LEARNS = W != weights_are::fixed;
    if (LEARNS && !LEARNS_ANYWHERE && !is_on_line(problem.side[0].rotate))
        return refuse(plan, tokens_backward_name, "weights learn, and positions are not integers on a line");
    learning_arguments all = {};
    const int64_t kept = W == weights_are::learning ? kept_sums::bytes(1, UNITS * 2 * vector_length<T>) : 0;
    token_cut cut = {most_of_token<T, W>,
                     LEARNS ? MANY_TOKENS : FEW_TOKENS,
                     LEARNS ? (int)MANY_TOKENS : tokens_in_turns<T, 2, UNITS>(),
                     UNITS,
                     token_sums<2>::BYTES,
                     reader<2, UNITS>::BYTES + kept};
    if (const char *why = cut_by_token<T, E>(device, problem, &all.rows, &cut))
        return refuse(plan, tokens_backward_name, why);
    const int threads = (int)(cut.threads.x * cut.threads.y);
    const uint32_t splits = all.rows.splits.divisor, at_once = (uint32_t)(cut.most / threads * device.multiprocessors);
    const uint32_t slots = lesser(all.rows.blocks / splits, greater(at_once / splits, 1u));
    set_launch(plan, LEARNS ? slots * splits : all.rows.blocks, cut.threads, cut.shared);
    plan->workspace = 0;
    if (LEARNS)
        place_kept<T, W, UNITS>(problem, slots, threads, &all, plan);
    set_tiling(plan, all);
    return take<backward_kernel>(plan, tokens_backward<T, E, W, UNITS>, run_backward<LEARNS>,
                                 qk_tokens_backward<T, E, W, UNITS>);
}

template <typename T, encoding E>
static bool take_fixed(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    if (take_backward<T, E, weights_are::fixed, 1>(device, problem, plan))
        return true;
    if constexpr (MOST_UNITS<T> > 1)
        return take_backward<T, E, weights_are::fixed, MOST_UNITS<T>>(device, problem, plan);
    return false;
}

template <typename T, encoding E>
bool plan_tokens_backward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    if (!is_allowed(device, tokens_backward_name, plan))
        return false;
    if (!has_norm(problem) || !(problem.over_heads || has_learning_heads(problem)))
        return refuse(plan, tokens_backward_name, "no norm is over all heads, and no head learns weights of its own");
    if (!is_learning(problem))
        return take_fixed<T, E>(device, problem, plan);
    return plan_learning<T, E>(problem, plan, tokens_backward_name, [&](const copes_qk_problem &of) {
        if (take_backward<T, E, weights_are::learning, 1>(device, of, plan))
            return true;
        if constexpr (learns_wide<T>)
            return take_backward<T, E, weights_are::learning_wide, MOST_UNITS<T>>(device, of, plan);
        return false;
    });
}

#define QK_INSTANTIATE(T, E)                                                                                           \
    template bool plan_tokens_forward<T, encoding::E>(const gpu_device &, const copes_qk_problem &, copes_plan *);     \
    template bool plan_tokens_backward<T, encoding::E>(const gpu_device &, const copes_qk_problem &, copes_plan *);
#include "backends/gpu/qk/instantiate.inc"
#undef QK_INSTANTIATE

template <typename T, encoding E> static void list_kernels(variant_list *list)
{
    list->add(tokens_forward<T, E, 1>);
    list->add(tokens_backward<T, E, weights_are::fixed, 1>);
    list->add(tokens_backward<T, E, weights_are::learning, 1>);
    if constexpr (MOST_UNITS<T> > 1) {
        list->add(tokens_forward<T, E, MOST_UNITS<T>>);
        list->add(tokens_backward<T, E, weights_are::fixed, MOST_UNITS<T>>);
    }
    if constexpr (learns_wide<T>)
        list->add(tokens_backward<T, E, weights_are::learning_wide, MOST_UNITS<T>>);
}

void list_tokens(variant_list *list)
{
#define QK_INSTANTIATE(T, E) list_kernels<T, encoding::E>(list);
#include "backends/gpu/qk/instantiate.inc"
#undef QK_INSTANTIATE
}

} // namespace COPES_GPU::qk
