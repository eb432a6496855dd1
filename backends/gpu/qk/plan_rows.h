/* How the rows of a problem in whole vectors are cut into blocks, and what kernels are told of it. */
#ifndef COPES_BACKENDS_GPU_QK_PLAN_ROWS_H
#define COPES_BACKENDS_GPU_QK_PLAN_ROWS_H

#include "backends/gpu/names.h"
#include "backends/gpu/qk/methods.h"
#include "backends/gpu/qk/norm.h"

namespace COPES_GPU::qk
{

enum { FEW_HEADS = 5, MANY_HEADS = 8 }; /* of a thread where tokens are many */
enum { MOST_HEADS = 12 };               /* of a thread, at most, so that blocks take their turns in fewer rounds */
inline constexpr double FEW_ROUNDS = 8; /* in which blocks that end together still count */
enum { MOST_SPLIT = 320 };              /* threads of a block that has a token alone, or some of its heads */
enum { SPLIT_OF_TWO = 160 };            /* the same where each reads two tensors */
enum { ENOUGH_BLOCKS = 2 };             /* on a multiprocessor */

/* Threads on a multiprocessor, and of a block with several tokens, at most. Narrow ones have half as many bytes each. */
template <typename T> inline constexpr int most_at_once = is_narrow<T> ? 1024 : 640;
template <typename T> inline constexpr int usual_threads = is_narrow<T> ? (int)MOST_THREADS : 192;

inline constexpr variant_word norm_names[] = {"no norm", "norm by warp", "norm by block"};
inline constexpr variant_word place_names[] = {"anywhere", "on a line"};

/* What limits blocks, and how they came out. */
struct row_cut {
    int multiprocessors;
    int split;    /* threads of a block that has a token alone, or some of its heads */
    int fewest;   /* heads of a thread, at least, where tokens are many */
    int over_all; /* the same, at most, where a norm is over all heads and a block can have a token so */
    int running;  /* threads of a multiprocessor that run at a time */
    int at_once;  /* the same where all blocks are to run at once */
    int usual;    /* threads of a block with several tokens, at most */
    norm sum = norm::none;
    dim3 threads = {};
};

/* Parts of a block's shared memory begin where its banks do: what is read ahead to an odd multiple of 16 bytes costs a prompt a tenth
 * of its speed. */
inline constexpr int64_t align(int64_t bytes)
{
    return divide_up(bytes, 128) * 128;
}

/* The bytes of a norm in a block's shared memory: both sides' weights, and the sums of two heads that meet, `kinds` of them. A thread
 * of v reads at its unit's places there, too, and uses nothing of it. */
inline int64_t norm_bytes(const row_cut &cut, int d, int e, int kinds)
{
    if (cut.sum == norm::none)
        return 0;
    const int64_t sums = (int64_t)cut.threads.y * lrpe::times((int)cut.threads.x, 32) * kinds;
    const int64_t floats = greater<int64_t>(2 * (int64_t)d + (cut.sum == norm::block ? 2 * sums : 0), e);
    return align(floats * (int64_t)sizeof(float));
}

/* Can the rows of a norm's weights be read in whole vectors, by places of 32 bits? */
template <typename T> bool fits_weights(const copes_qk_side &side, int64_t d)
{
    const int64_t lengths[2] = {side.weight_rows, d}, row = side.weight.stride[0];
    if (side.weight.data != nullptr && (row < 0 ? -row : row) > (INT32_MAX - d) / greater<int64_t>(side.weight_rows, 1))
        return false;
    return side.weight_dtype == storage<T>::dtype ? in_vectors<T>(side.weight, lengths, 2)
                                                  : in_vectors<f32>(side.weight, lengths, 2);
}

/* Can a cache's heads be written in whole vectors, of float8 8 or 4 bytes long? */
template <typename T>
bool fits_cache(const copes_qk_problem &problem, const copes_qk_cache &cache, int64_t heads, int64_t features)
{
    const int64_t lengths[4] = {problem.blocks, problem.page, heads, features};
    if (cache.data.data == nullptr || problem.cache_dtype != COPES_F8_E4M3)
        return in_vectors<T>(cache.data, lengths, 4);
    copes_view view = cache.data;
    const bool aligned_to_words = reinterpret_cast<uintptr_t>(view.data) % vector_length<T> == 0;
    return aligned_to_words && in_vectors<T>(aligned(view), lengths, 4);
}

/* Can slots and scales be read as they lie? */
inline bool has_aligned_numbers(const copes_qk_problem &problem)
{
    return reinterpret_cast<uintptr_t>(problem.slots.data) % sizeof(int64_t) == 0 &&
           reinterpret_cast<uintptr_t>(problem.k_cache.scale.data) % sizeof(float) == 0 &&
           reinterpret_cast<uintptr_t>(problem.v_cache.scale.data) % sizeof(float) == 0;
}

/* Why whole vectors do not do for the tensors; nullptr: they do. */
template <typename T, encoding E> const char *refuse_vectors(const copes_qk_problem &problem, lrpe::row_shape *shape)
{
    constexpr int V = vector_length<T>;
    for (int i = 0; i < problem.sides; i++) {
        const copes_qk_side &side = problem.side[i];
        if (const char *why = lrpe::refuse_shape<T, E>(side.rotate, false, shape))
            return why;
        for (const copes_view *view : {&side.rotate.src, &side.rotate.x, &side.rotate.dst})
            if (!lrpe::is_near(*view, 1))
                return "a tensor's tokens lie further apart than 2^31 elements";
        if (!fits_weights<T>(side, side.rotate.d))
            return "a norm's weights are not contiguous, or not aligned to 16 bytes";
    }
    const int64_t v_lengths[4] = {problem.side[0].rotate.b, problem.side[0].rotate.n, problem.v_heads, problem.e};
    if (problem.e % V != 0 || !in_vectors<T>(problem.v, v_lengths, 4) || !lrpe::is_near(problem.v, 1))
        return "v's rows are not whole vectors, contiguous and aligned";
    if (!fits_cache<T>(problem, problem.k_cache, problem.sides == 2 ? problem.side[1].rotate.h : 0, shape->d) ||
        !fits_cache<T>(problem, problem.v_cache, problem.v_heads, problem.e))
        return "a cache's heads are not whole vectors, contiguous and aligned";
    return has_aligned_numbers(problem) ? nullptr : "slots or scales are not aligned";
}

/* Why the kernels for rows do not take what the problem asks for; nullptr: they do. */
template <typename T> const char *refuse_angles(const copes_qk_problem &problem)
{
    const copes_lrpe_problem &rotate = problem.side[0].rotate;
    if (rotate.begin % vector_length<T> != 0)
        return lrpe::no_begin<T>;
    if (const char *why = lrpe::theta_source::refuse(rotate))
        return why;
    for (int i = 0; i < problem.sides; i++)
        if (problem.side[i].rotate.theta.stride[0] != 0 && problem.side[i].rotate.h > 1)
            return "heads have thetas of their own";
    return problem.blocks > 0 && problem.page > INT32_MAX / problem.blocks ? "the cache has 2^31 places or more"
                                                                           : nullptr;
}

/* Are positions integers on a line, and is theta aligned float32? */
inline bool is_on_line(const copes_lrpe_problem &problem)
{
    const int64_t size = copes_dtype_size(problem.positions_dtype);
    const bool whole = problem.positions_dtype == COPES_I32 || problem.positions_dtype == COPES_I64;
    return problem.grid_rank == 1 && problem.theta_dtype == COPES_F32 &&
           reinterpret_cast<uintptr_t>(problem.theta.data) % 4 == 0 &&
           (problem.positions.data == nullptr ||
            (whole && reinterpret_cast<uintptr_t>(problem.positions.data) % (uintptr_t)size == 0));
}

inline cache_rows describe_cache(const copes_qk_cache &cache)
{
    return {cache.data.data,
            cache.data.stride[0],
            cache.data.stride[1],
            cache.data.stride[2],
            static_cast<const float *>(cache.scale.data),
            cache.scale.stride[0]};
}

inline side_rows describe_side(const copes_qk_problem &problem, const copes_qk_side &side, const copes_qk_cache &cache)
{
    const double length = (double)side.rotate.d * (problem.over_heads ? (double)side.rotate.h : 1);
    return {lrpe::tensor_rows(side.rotate.src),
            lrpe::tensor_rows(side.rotate.x),
            lrpe::tensor_rows(side.rotate.dst),
            {side.weight.data, side.weight_rows == 1 ? 0 : (int)side.weight.stride[0], side.weight_dtype != COPES_F32},
            describe_cache(cache),
            (int)side.rotate.h,
            0,
            0,
            0,
            (float)(1 / length)};
}

/* v goes to the cache alone. */
inline side_rows describe_values(const copes_qk_problem &problem)
{
    const copes_view none = {};
    side_rows side = {};
    side.src = lrpe::tensor_rows(problem.v);
    side.dst = lrpe::tensor_rows(none);
    if (problem.v_cache.data.data != nullptr && problem.e > 0)
        side.heads = (int)problem.v_heads;
    side.cache = describe_cache(problem.v_cache);
    return side;
}

inline cache_arguments describe_slots(const copes_qk_problem &problem)
{
    cache_arguments cache = {};
    if (problem.slots.data == nullptr)
        return cache;
    cache.slots = static_cast<const int64_t *>(problem.slots.data);
    cache.slot_entry = problem.slots.stride[0];
    cache.slot_token = problem.slots.stride[1];
    cache.places = problem.blocks * problem.page;
    cache.page = divider(greater<int64_t>(problem.page, 1));
    cache.float8 = problem.cache_dtype == COPES_F8_E4M3;
    return cache;
}

inline bool has_norm(const copes_qk_problem &problem)
{
    return problem.side[0].weight.data != nullptr || problem.side[1].weight.data != nullptr;
}

/* The threads of a row: with a norm a power of two, and enough for two vectors of v each. */
inline int lanes_of(const copes_qk_problem &problem, int units, int v, row_cut *cut)
{
    const bool any = has_norm(problem);
    const int vectors = problem.v_cache.data.data == nullptr ? 0 : (int)lesser<int64_t>(problem.e / v, INT32_MAX);
    const int least = greater(units, (int)divide_up(vectors, 2));
    cut->sum = !any ? norm::none : problem.over_heads ? norm::block : norm::warp;
    if (!any)
        return least;
    int lanes = 1;
    while (lanes < least && lanes <= MOST_THREADS)
        lanes *= 2;
    if (lanes > 32)
        cut->sum = norm::block;
    return lanes;
}

/* Shares a token's heads out in groups of up to `heads`: a thread has a unit of each of its group's. */
inline void group_heads(int heads, row_arguments *all)
{
    all->groups = all->heads = 0;
    for (side_rows &side : all->side) {
        if (side.heads == 0)
            continue;
        side.groups = lrpe::times(side.heads, heads);
        side.each = lrpe::times(side.heads, side.groups);
        side.full = side.heads - side.groups * (side.each - 1);
        all->groups += side.groups;
        all->heads = greater(all->heads, side.each);
    }
}

/* Shares a token out to blocks, `heads` of it to a thread. Returns the threads of a block that has one token, or its part. */
inline int split_token(const copes_qk_problem &problem, int heads, int lanes, const row_cut &cut, row_arguments *all)
{
    group_heads(heads, all);
    const int splits = problem.over_heads ? 1 : lrpe::times(all->groups, greater(cut.split / lanes, 1));
    const int groups_here = lrpe::times(all->groups, splits);
    all->groups_here = divider(groups_here);
    all->splits = divider(lrpe::times(all->groups, groups_here));
    return groups_here * lanes;
}

inline double count_blocks(const copes_qk_problem &problem, const row_arguments &all, int tokens)
{
    return (double)problem.side[0].rotate.b * lrpe::times(all.n, tokens) * all.splits.divisor;
}

/* The threads of the whole warps that a block of `threads` takes. */
inline int in_warps(int threads)
{
    return lrpe::times(threads, 32) * 32;
}

/* The threads of a multiprocessor that have work, where blocks have `threads`. */
inline int busy_threads(const row_cut &cut, int threads)
{
    return cut.at_once / in_warps(threads) * threads;
}

/* The tokens of a block, of `threads` each, by which most threads have work. */
inline int choose_tokens(const row_cut &cut, int threads)
{
    int best = 1;
    for (int tokens = 2; tokens * threads <= cut.usual; tokens++)
        if (busy_threads(cut, tokens * threads) >= busy_threads(cut, best * threads))
            best = tokens;
    return best;
}

/* The fewest heads of a thread with which all blocks run at once; 0: there are too many tokens. A few blocks that come after the
 * others would take as long as those. */
inline int heads_at_once(const copes_qk_problem &problem, int lanes, const row_cut &cut, row_arguments *all)
{
    const int most = problem.over_heads ? cut.over_all : (int)MOST_HEADS;
    for (int heads = 1; heads <= most; heads++) {
        const int threads = split_token(problem, heads, lanes, cut, all), tokens = choose_tokens(cut, threads);
        if (problem.over_heads && threads > cut.split)
            continue;
        if (count_blocks(problem, *all, tokens) <=
            (double)cut.multiprocessors * (cut.at_once / in_warps(tokens * threads)))
            return heads;
    }
    return 0;
}

/* The heads of a thread by which most threads have work, without blocks that share a token, as each would make its rotations. On an
 * H200 prompts with a cache are slower by a tenth with fewer heads than MANY_HEADS. */
inline int busiest_heads(const copes_qk_problem &problem, int lanes, const row_cut &cut, row_arguments *all)
{
    int best = MANY_HEADS, most = 0;
    for (int heads = cut.fewest; heads <= MANY_HEADS; heads++) {
        const int threads = split_token(problem, heads, lanes, cut, all);
        const int busy = busy_threads(cut, choose_tokens(cut, threads) * threads);
        if (all->splits.divisor == 1 && busy > most) {
            best = heads;
            most = busy;
        }
    }
    return best;
}

/* The rounds in which blocks take their turns, where a thread has `heads`. */
inline double count_rounds(const copes_qk_problem &problem, int lanes, const row_cut &cut, int heads,
                           row_arguments *all)
{
    const int threads = split_token(problem, heads, lanes, cut, all), tokens = choose_tokens(cut, threads);
    const int on_each = greater(cut.running / in_warps(tokens * threads), 1);
    return ceil(count_blocks(problem, *all, tokens) / ((double)cut.multiprocessors * on_each));
}

/* The heads of a thread where blocks do not all run at once. If they take a few rounds, the last may have work for few
 * multiprocessors, and what counts is through how many heads one goes in all rounds. A thread has more heads where that saves
 * a twentieth of those. */
inline int choose_heads(const copes_qk_problem &problem, int lanes, const row_cut &cut, row_arguments *all)
{
    int best = busiest_heads(problem, lanes, cut, all);
    if (count_rounds(problem, lanes, cut, best, all) > FEW_ROUNDS)
        return best;
    double least = INFINITY;
    for (int heads = cut.fewest; heads <= MOST_HEADS; heads++) {
        const double in_turn = count_rounds(problem, lanes, cut, heads, all) * all->heads;
        if (all->splits.divisor == 1 && in_turn < 0.95 * least) {
            best = heads;
            least = in_turn;
        }
    }
    return best;
}

/* Heads enough for a token to be in one block, which a norm over all heads needs. */
inline int heads_for_one_block(const copes_qk_problem &problem, int lanes, const row_cut &cut, row_arguments *all)
{
    int heads = lesser<int>(cut.over_all, MANY_HEADS);
    while (split_token(problem, heads, lanes, cut, all) > cut.split && heads < INT32_MAX / 4)
        heads *= 2;
    return heads;
}

inline int find_heads(const copes_qk_problem &problem, int lanes, const row_cut &cut, row_arguments *all)
{
    if (const int heads = heads_at_once(problem, lanes, cut, all))
        return heads;
    return problem.over_heads ? heads_for_one_block(problem, lanes, cut, all) : choose_heads(problem, lanes, cut, all);
}

/* Cuts tokens, or the groups of a token's heads, into blocks. */
inline const char *cut_tokens(const copes_qk_problem &problem, int lanes, row_arguments *all, row_cut *cut)
{
    group_heads(1, all);
    if (all->groups == 0)
        return "there are no heads";
    const int threads = split_token(problem, find_heads(problem, lanes, *cut, all), lanes, *cut, all);
    int tokens = choose_tokens(*cut, threads);
    while (tokens > 1 && count_blocks(problem, *all, tokens) < ENOUGH_BLOCKS * cut->multiprocessors)
        --tokens;
    cut->threads = dim3((unsigned)lanes, (unsigned)(tokens * threads / lanes));
    if ((int64_t)tokens * threads > MOST_THREADS)
        return "a row, or the heads of a token that a norm is over, are more than a block's";
    if (count_blocks(problem, *all, tokens) > INT32_MAX)
        return "there are more blocks than a launch takes";
    all->source.tokens = tokens;
    all->tokens_here = divider(1);
    all->tiles = divider(lrpe::times(all->n, tokens));
    all->blocks = (uint32_t)count_blocks(problem, *all, tokens);
    all->rotation_bytes = (uint32_t)lesser<int64_t>(align((int64_t)all->source.bytes()), 2 * MOST_BYTES);
    return nullptr;
}

/* Bytes of shared memory for each of `blocks` that uses `used`. Without a norm, threads take so few registers that more of
 * them would run, and read ahead, than memory is fastest with: their blocks ask for more. */
template <typename T>
int64_t shared_of(const gpu_device &device, const row_cut &cut, uint32_t blocks, int ahead, int64_t used)
{
    const int64_t threads = (int64_t)cut.threads.x * cut.threads.y;
    const bool at_once = blocks * threads <= (int64_t)most_at_once<T> * device.multiprocessors;
    if (cut.sum != norm::none || ahead == 0 || device.architecture < 80 || at_once)
        return used;
    return greater(used, lesser<int64_t>(device.shared_memory * threads / most_at_once<T>, MOST_BYTES) / 16 * 16);
}

/* Do the first vectors of a row's units, or the second, end within 32 bytes, which memory gives at a time? */
template <typename T> bool splits_sectors(const copes_lrpe_problem &rotate, const lrpe::row_shape &shape)
{
    constexpr int SECTOR = 32 / (int)sizeof(T);
    return rotate.k % SECTOR != 0 || shape.units * vector_length<T> % SECTOR != 0;
}

/* Fills in what kernels are told, but for how rows are cut. Returns why they do not take the problem; nullptr: they do. */
template <typename T, encoding E> const char *describe_rows(const copes_qk_problem &problem, row_arguments *all)
{
    constexpr int V = vector_length<T>;
    lrpe::row_shape shape;
    const copes_lrpe_problem &rotate = problem.side[0].rotate;
    if (is_narrow<T> && has_norm(problem))
        return "norms are of whole vectors of 16 bytes";
    if (const char *why = refuse_vectors<T, E>(problem, &shape))
        return why;
    if (const char *why = refuse_angles<T>(problem))
        return why;
    const int64_t heads = rotate.h + (problem.sides == 2 ? problem.side[1].rotate.h : 0) + problem.v_heads;
    if (shape.units == 0 || heads > INT32_MAX / 2)
        return "there are no features, or more than 2^30 heads of a token";
    all->source = lrpe::anywhere_plan(rotate, false, shape.units, V);
    all->side[QUERIES] = describe_side(problem, problem.side[0], {});
    if (problem.sides == 2)
        all->side[KEYS] = describe_side(problem, problem.side[1], problem.k_cache);
    all->side[VALUES] = describe_values(problem);
    all->n = shape.n;
    all->d = shape.d;
    all->e = (int)problem.e;
    all->units = shape.units;
    all->eps = (float)problem.eps;
    all->weight_offset = (float)problem.weight_offset;
    all->over_heads = problem.over_heads;
    all->round_between = problem.round_between;
    all->split_sectors = splits_sectors<T>(rotate, shape);
    all->cache = describe_slots(problem);
    return nullptr;
}

/* Fills in all that kernels are told. Returns as describe_rows does. */
template <typename T, encoding E>
const char *cut_rows(const copes_qk_problem &problem, row_arguments *all, row_cut *cut)
{
    if (const char *why = describe_rows<T, E>(problem, all))
        return why;
    const int lanes = lanes_of(problem, all->units, vector_length<T>, cut);
    if (cut->sum == norm::block)
        cut->running = cut->at_once;
    if (lanes > MOST_THREADS)
        return "a row has more vectors than a block's threads";
    return cut_tokens(problem, lanes, all, cut);
}

} // namespace COPES_GPU::qk

#endif
