/* qk_norm_rope token by token, in whole vectors, bound by memory. A block has all heads of a token, of which a thread has a unit of one:
 * it keeps the head's weights, and what the head gives to their gradients, in registers. The next tokens are on their way meanwhile, so
 * that a norm over all heads, whose sums all threads of a token wait for, leaves memory no time without work. */
#include "backends/gpu/qk/tokens.h"
#include "launch.h"

namespace COPES_GPU::qk
{

/* Norms, turns and writes a thread's units of one token after the other. */
template <typename T, encoding E> struct token_results {
    static constexpr int V = vector_length<T>;
    head_units<T> dst;

    __device__ __forceinline__ token_results(const row_arguments &all, const head_group &group)
        : dst(choose_rows(all, group.which, &side_rows::dst), group.place)
    {
    }
    /* The next token, number `token` of the tile, whose squares have the sum `squares`. */
    __device__ __forceinline__ void finish(const row_arguments &all, const token_thread<T, E, 1> &thread,
                                           const lrpe::block_rotations<E, V> &made, int token, const token_slots &slots,
                                           float squares, float (&y)[2][V])
    {
        const head_group &group = thread.group;
        const lrpe::unit_places &at = thread.at;
        if (thread.weights.any) {
            const float factor = norm_factor(all.eps, inverse_length(all, group), squares);
#pragma unroll
            for (int j = 0; j < 2 * V; j++)
                y[j / V][j % V] *= factor; /* first: what is subnormal becomes normal */
            thread.weigh(y, y);
            if (all.round_between)
                round_unit<T>(y);
        }
        rotation turn[V];
        thread.read_rotations(all, made, token, turn);
        encode<E>(y, turn, at.rotated);
        if (dst.head != nullptr) {
            dst.write(at, y);
            dst.move();
        }
        const bool cached = group.which == KEYS && all.side[KEYS].cache.data != nullptr;
        const int slot = cached ? slots.of(all, token) : -1;
        if (slot >= 0)
            write_cached_head<T>(all.cache, all.side[KEYS].cache, slot, group.place.head, at.plain, y);
    }
};

template <typename T, encoding E>
__global__ void LAUNCH_BOUNDS(MOST_OF_TOKEN, 1) qk_tokens_forward(GPU_PARAMETER row_arguments argument)
{
    constexpr int V = vector_length<T>;
    const row_arguments &all = first_argument(argument);
    const tile_place tile(all, blockIdx.x);
    char *const memory = dynamic_shared();
    const token_slots slots(all, tile, memory);
    const lrpe::block_rotations<E, V> made(all.source, memory);
    token_thread<T, E, 1> thread(all, tile, memory);
    const token_sums<TOGETHER> sums(all, thread.group, memory);
    token_results<T, E> results(all, thread.group);
    slots.keep(read_again(all), tile.left);
    make_rotations<false, sizeof(T) == 4>(read_again(all), made, tile);
#pragma unroll 1
    for (int token = 0; token <= tile.left; token += TOGETHER) {
        thread.pass_values(read_again(all), token, TOGETHER, slots);
        float units[TOGETHER][1][2][V], squares[TOGETHER];
        thread.ahead.template wait<TOGETHER>();
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            thread.take(token + i, units[i]);
            squares[i] = thread.product(units[i][0], units[i][0]);
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            thread.start(token + i + thread.ahead.DEPTH);
        sums.meet(read_again(all), token / TOGETHER, squares);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (thread.at.there && token + i <= tile.left)
                results.finish(read_again(all), thread, made, token + i, slots, squares[i], units[i][0]);
    }
    const row_arguments &again = read_again(all);
    copy_values<T>(again, tile_place(again, blockIdx.x), slots);
}

/* Goes through a tile. `terms`: adds what the thread's head gives to its weights' gradients. */
template <typename T, encoding E, bool WEIGHTS>
DEVICE void pass_tile(const row_arguments &all, const tile_place &tile, char *memory,
                      float (&terms)[2][vector_length<T>])
{
    constexpr int V = vector_length<T>;
    constexpr bool ON_LINE = WEIGHTS && !LEARNS_ANYWHERE;
    const lrpe::block_rotations<E, V> made(all.source, memory);
    token_thread<T, E, 2> thread(all, tile, memory);
    const token_sums<2> sums(all, thread.group, memory);
    head_units<T> dst(choose_rows(all, thread.group.which, &side_rows::dst), thread.group.place);
    make_rotations<ON_LINE, sizeof(T) == 4>(read_again(all), made, tile);
#pragma unroll 1
    for (int token = 0; token <= tile.left; token++) {
        float units[2][2][V], product[2][V], sum[2] = {0, 0};
        float(&g)[2][V] = units[0], (&x)[2][V] = units[1], (&weighed)[2][V] = WEIGHTS ? product : g;
        rotation turn[V];
        thread.ahead.wait();
        thread.take(token, units);
        thread.start(token + thread.ahead.DEPTH);
        thread.read_rotations(all, made, token, turn);
        decode<E>(g, turn, thread.at.rotated);
        if (thread.weights.any) {
            thread.weigh(g, weighed);
            sum[0] = thread.product(x, x);
            sum[1] = thread.product(weighed, x);
        }
        sums.meet(read_again(all), token, sum);
        if (!thread.at.there)
            continue;
        if (WEIGHTS) { /* anew, as registers would be short while the sums meet */
#pragma unroll
            for (int j = 0; j < 2 * V; j++)
                settle(g[j / V][j % V]);
            thread.weigh(g, weighed);
        }
        if (thread.weights.any)
            pass_norm<WEIGHTS>(read_again(all), thread.group, sum, x, weighed, g, terms);
        dst.write(thread.at, g);
        dst.move();
    }
}

template <typename T, encoding E, weights_are W>
__global__ void LAUNCH_BOUNDS((most_of_token<T, W>), 1) qk_tokens_backward(GPU_PARAMETER learning_arguments argument)
{
    constexpr int V = vector_length<T>;
    const learning_arguments &learning = first_argument(argument);
    const row_arguments &all = learning.rows;
    char *const memory = dynamic_shared();
    if constexpr (W != weights_are::fixed) {
        constexpr keeping PLACE = W == weights_are::learning ? keeping::in_shared_memory : keeping::in_workspace;
        learn_tiles<T, E, PLACE>(learning, memory, [&](uint32_t block, float(&terms)[2][V]) {
            pass_tile<T, E, true>(read_again(all), tile_place(read_again(all), block), memory, terms);
        });
    } else {
        float none[2][V];
        pass_tile<T, E, false>(all, tile_place(all, blockIdx.x), memory, none);
    }
}

inline constexpr variant_word tokens_forward_name = "qk_tokens_forward", tokens_backward_name = "qk_tokens_backward",
                              tokens_gradients[] = {"weights fixed", "weights learn", "many weights learn"};

template <typename T, encoding E>
inline constexpr const char *tokens_forward =
    variant_name<tokens_forward_name, type_name<T>, lrpe::encoding_names[(int)E]>::text;

template <typename T, encoding E, weights_are W>
inline constexpr const char *tokens_backward =
    variant_name<tokens_backward_name, type_name<T>, lrpe::encoding_names[(int)E], tokens_gradients[(int)W]>::text;

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

/* Gives each of q's and k's heads a group, and each side whole warps. Returns the threads of a token. */
static int group_token(int lanes, row_arguments *all)
{
    const int heads_of_warp = greater(32 / lanes, 1);
    all->groups = 0;
    for (side_rows *side : {&all->side[QUERIES], &all->side[KEYS]}) {
        side->groups = divide_up(side->heads, heads_of_warp) * heads_of_warp;
        side->each = 1;
        side->full = side->heads;
        all->groups += side->groups;
    }
    all->groups_here = divider(all->groups);
    all->splits = divider(1);
    return all->groups * lanes;
}

/* What limits blocks, and how they came out. */
struct token_cut {
    int most;                /* threads of a multiprocessor, at most */
    int tokens;              /* of a block, one after the other, at most */
    int64_t sums, of_thread; /* bytes of shared memory: of token_sums and token_slots, and of each thread */
    dim3 threads = {};
    int64_t shared = 0;
};

/* Tokens of a block, at most. Some multiprocessors are done sooner than others, by up to a tenth of a kernel's time: with few tokens to
 * a block they take more blocks. To begin one costs as much as two or three tokens. Where weights learn, each block has a fixed share of
 * the tokens, and begins less often with many. */
enum { FEW_TOKENS = 16, MANY_TOKENS = 128 };
static_assert(FEW_TOKENS <= 32, "a block has at least as many threads, which token_slots counts on");

/* The tokens of a block, of which `at_once` run: as few as let all blocks run at once, or in as few rounds as `most` tokens take. */
static int count_tokens(double tokens, int at_once, int most)
{
    const double of_each = ceil(tokens / at_once), rounds = ceil(of_each / most);
    return (int)ceil(of_each / rounds);
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
    if (lanes > (problem.over_heads ? (int)MOST_OF_TOKEN : (int)MOST_OF_HEAD))
        return "a head has more vectors than threads";
    const int threads = group_token(lanes, all);
    const int64_t entries = problem.side[0].rotate.b, kept = cut->sums + threads * cut->of_thread;
    if (threads == 0 || threads > cut->most)
        return "a token has no heads, or more vectors than a block has threads";
    if (entries * all->n == 0)
        return "there are no tokens";
    if ((double)cut->tokens * all->side[VALUES].heads * all->e > INT32_MAX)
        return "a block's values are more than 2^31";
    const int on_each = cut->most / threads;
    const int64_t of_token = (int64_t)all->source.bytes(), fitting = count_fitting(device, 1, kept, of_token);
    if (fitting < 1)
        return "what a block keeps does not fit its shared memory";
    const int64_t beside_others = greater<int64_t>(count_fitting(device, on_each, kept, of_token), 1);
    const int tokens = count_tokens((double)entries * all->n, device.multiprocessors * on_each,
                                    (int)lesser<int64_t>(beside_others, cut->tokens));
    all->source.tokens = lesser(tokens, all->n);
    all->tokens_here = divider(1);
    all->tiles = divider(lrpe::times(all->n, all->source.tokens));
    if (entries * (int64_t)all->tiles.divisor > INT32_MAX)
        return "there are more blocks than a launch takes";
    all->blocks = (uint32_t)(entries * all->tiles.divisor);
    all->rotation_bytes = (uint32_t)align((int64_t)all->source.bytes());
    all->ahead = all->rotation_bytes + (uint32_t)cut->sums;
    cut->threads = dim3((unsigned)lanes, (unsigned)all->groups);
    cut->shared = all->rotation_bytes + kept;
    return nullptr;
}

template <typename T, encoding E>
bool plan_tokens_forward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    row_arguments all = {};
    token_cut cut = {MOST_OF_TOKEN, FEW_TOKENS, token_sums<TOGETHER>::BYTES + token_slots::bytes(FEW_TOKENS),
                     reader<1>::BYTES};
    if (!is_allowed(device, tokens_forward_name, plan))
        return false;
    if (!has_norm(problem) || !problem.over_heads)
        return refuse(plan, tokens_forward_name, "no norm is over all heads");
    if (const char *why = cut_by_token<T, E>(device, problem, &all, &cut))
        return refuse(plan, tokens_forward_name, why);
    set_launch(plan, all.blocks, cut.threads, cut.shared);
    set_tiling(plan, all);
    return take<forward_kernel>(plan, tokens_forward<T, E>, run_forward, qk_tokens_forward<T, E>);
}

/* The sums that threads keep from tile to tile: where a block's begin in its shared memory, or all blocks' in the workspace. */
template <typename T, weights_are W>
static void place_kept(const copes_qk_problem &problem, uint32_t slots, int threads, learning_arguments *all,
                       copes_plan *plan)
{
    constexpr int64_t OF_THREAD = 2 * vector_length<T> * (int64_t)sizeof(long_sum);
    plan->workspace = count_partials(problem, slots, 1, all->side);
    all->begin = W == weights_are::learning ? all->rows.ahead + threads * (int64_t)reader<2>::BYTES : plan->workspace;
    if (W == weights_are::learning_wide && slots < all->rows.blocks)
        plan->workspace += slots * threads * OF_THREAD;
}

template <typename T, encoding E, weights_are W>
static bool take_backward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    constexpr bool LEARNS = W != weights_are::fixed;
    if (LEARNS && !LEARNS_ANYWHERE && !is_on_line(problem.side[0].rotate))
        return refuse(plan, tokens_backward_name, "weights learn, and positions are not integers on a line");
    learning_arguments all = {};
    const int64_t kept = W == weights_are::learning ? kept_sums::bytes(1, 2 * vector_length<T>) : 0;
    token_cut cut = {most_of_token<T, W>, LEARNS ? MANY_TOKENS : FEW_TOKENS, token_sums<2>::BYTES,
                     reader<2>::BYTES + kept};
    if (const char *why = cut_by_token<T, E>(device, problem, &all.rows, &cut))
        return refuse(plan, tokens_backward_name, why);
    const int threads = (int)(cut.threads.x * cut.threads.y);
    const uint32_t slots = lesser(all.rows.blocks, (uint32_t)(cut.most / threads * device.multiprocessors));
    set_launch(plan, LEARNS ? slots : all.rows.blocks, cut.threads, cut.shared);
    plan->workspace = 0;
    if (LEARNS)
        place_kept<T, W>(problem, slots, threads, &all, plan);
    set_tiling(plan, all);
    return take<backward_kernel>(plan, tokens_backward<T, E, W>, run_backward<LEARNS>, qk_tokens_backward<T, E, W>);
}

template <typename T, encoding E>
bool plan_tokens_backward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    if (!is_allowed(device, tokens_backward_name, plan))
        return false;
    if (!has_norm(problem) || !(problem.over_heads || has_learning_heads(problem)))
        return refuse(plan, tokens_backward_name, "no norm is over all heads, and no head learns weights of its own");
    if (!is_learning(problem))
        return take_backward<T, E, weights_are::fixed>(device, problem, plan);
    return plan_learning<T, E>(problem, plan, tokens_backward_name, [&](const copes_qk_problem &of) {
        if (take_backward<T, E, weights_are::learning>(device, of, plan))
            return true;
        if constexpr (learns_wide<T>)
            return take_backward<T, E, weights_are::learning_wide>(device, of, plan);
        return false;
    });
}

#define QK_INSTANTIATE(T, E)                                                                                           \
    template bool plan_tokens_forward<T, encoding::E>(const gpu_device &, const copes_qk_problem &, copes_plan *);     \
    template bool plan_tokens_backward<T, encoding::E>(const gpu_device &, const copes_qk_problem &, copes_plan *);
#include "backends/gpu/qk/instantiate.inc"
#undef QK_INSTANTIATE

template <typename T, encoding E> static void list_tokens_backward(variant_list *list)
{
    list->add(tokens_backward<T, E, weights_are::fixed>);
    list->add(tokens_backward<T, E, weights_are::learning>);
    if constexpr (learns_wide<T>)
        list->add(tokens_backward<T, E, weights_are::learning_wide>);
}

void list_tokens(variant_list *list)
{
#define QK_INSTANTIATE(T, E)                                                                                           \
    list->add(tokens_forward<T, encoding::E>);                                                                         \
    list_tokens_backward<T, encoding::E>(list);
#include "backends/gpu/qk/instantiate.inc"
#undef QK_INSTANTIATE
}

} // namespace COPES_GPU::qk
