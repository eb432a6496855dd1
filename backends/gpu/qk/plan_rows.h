/* How the rows of a problem in whole vectors are cut into blocks, and what kernels are told of it. */
#ifndef COPES_BACKENDS_GPU_QK_PLAN_ROWS_H
#define COPES_BACKENDS_GPU_QK_PLAN_ROWS_H

#include "backends/gpu/names.h"
#include "backends/gpu/qk/methods.h"
#include "backends/gpu/qk/norm.h"

#include <algorithm>

namespace COPES_GPU::qk
{

enum { FEWEST_THREADS = 64, USUAL_THREADS = 160 }; /* of a block */
enum { FEW_HEADS = 5, MOST_HEADS = 8 };            /* of a thread, without a norm and with one */
enum { MOST_SPLIT = 320 };                         /* threads of a block that has a token alone, or some of its heads */
enum { SPLIT_OF_TWO = 160 };                       /* the same where each reads two tensors */
enum { ENOUGH_BLOCKS = 2, MOST_AT_ONCE = 640 };    /* blocks, and threads, on a multiprocessor */

inline constexpr variant_word norm_names[] = {"no norm", "norm by warp", "norm by block"};
inline constexpr variant_word place_names[] = {"anywhere", "on a line"};

/* What limits blocks, and how they came out. */
struct row_cut {
    int multiprocessors;
    int most;  /* heads of a thread */
    int split; /* threads of a block that has a token alone, or some of its heads */
    norm sum;
    dim3 threads;
};

/* The bytes of a norm in a block's shared memory: both sides' weights, and the sums that meet, `kinds` of them. A thread of v reads
 * at its unit's places there, too, and uses nothing of it. */
inline int64_t norm_bytes(const row_cut &cut, int d, int e, int kinds)
{
    if (cut.sum == norm::none)
        return 0;
    const int64_t sums = (int64_t)cut.threads.y * lrpe::times((int)cut.threads.x, 32) * kinds;
    const int64_t floats = std::max<int64_t>(2 * (int64_t)d + (cut.sum == norm::block ? sums : 0), e);
    return divide_up(floats * (int64_t)sizeof(float), 16) * 16;
}

/* Can the rows of a norm's weights be read in whole vectors, by places of 32 bits? */
template <typename T> bool fits_weights(const copes_qk_side &side, int64_t d)
{
    const int64_t lengths[2] = {side.weight_rows, d}, row = side.weight.stride[0];
    if (side.weight.data != nullptr &&
        (row < 0 ? -row : row) > (INT32_MAX - d) / std::max<int64_t>(side.weight_rows, 1))
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
        return "v's rows are not whole vectors of 16 bytes, contiguous and aligned";
    if (!fits_cache<T>(problem, problem.k_cache, problem.sides == 2 ? problem.side[1].rotate.h : 0, shape->d) ||
        !fits_cache<T>(problem, problem.v_cache, problem.v_heads, problem.e))
        return "a cache's heads are not whole vectors, contiguous and aligned";
    return nullptr;
}

/* Why the kernels for rows do not take what the problem asks for; nullptr: they do. */
template <typename T> const char *refuse_angles(const copes_qk_problem &problem)
{
    const copes_lrpe_problem &rotate = problem.side[0].rotate;
    if (rotate.begin % vector_length<T> != 0)
        return "rotary_begin is not a whole number of vectors of 16 bytes";
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
    cache.page = divider(std::max<int64_t>(problem.page, 1));
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
    const int vectors = problem.v_cache.data.data == nullptr ? 0 : (int)std::min<int64_t>(problem.e / v, INT32_MAX);
    const int least = std::max(units, (int)divide_up(vectors, 2));
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
        all->heads = std::max(all->heads, side.each);
    }
}

/* The heads of a thread. On an H200 memory is fastest where a block has one token with all of its heads under way. So a thread has
 * fewer heads, if a token then makes a block of at least the fewest threads; with a cache that was slower. Where tokens are
 * few, a thread has fewer heads yet, as long as all threads run at once. A norm over all heads needs a token in one block. */
inline void choose_heads(const copes_qk_problem &problem, int lanes, const row_cut &cut, row_arguments *all)
{
    const double tokens = (double)problem.side[0].rotate.b * all->n;
    const auto threads = [&](int heads) {
        group_heads(heads, all);
        return lanes * all->groups;
    };
    int heads = cut.sum == norm::none ? std::min(cut.most, (int)FEW_HEADS) : cut.most, fewer = heads;
    while (problem.over_heads && threads(heads) > cut.split && heads < INT32_MAX / 4)
        heads *= 2;
    while (fewer > FEW_HEADS && threads(fewer) < FEWEST_THREADS)
        --fewer;
    if (all->side[VALUES].heads == 0 && heads <= MOST_HEADS && threads(fewer) >= FEWEST_THREADS)
        heads = fewer;
    while (heads > 1 && tokens < ENOUGH_BLOCKS * cut.multiprocessors &&
           tokens * threads(heads / 2) <= (double)MOST_AT_ONCE * cut.multiprocessors &&
           (!problem.over_heads || threads(heads / 2) <= cut.split))
        heads /= 2;
    group_heads(heads, all);
}

/* Cuts tokens, or the groups of a token's heads, into blocks. */
inline const char *cut_tokens(const copes_qk_problem &problem, int lanes, row_arguments *all, row_cut *cut)
{
    const int entries = (int)problem.side[0].rotate.b;
    choose_heads(problem, lanes, *cut, all);
    if (all->groups == 0)
        return "there are no heads";
    int splits = problem.over_heads ? 1 : lrpe::times(all->groups, std::max(cut->split / lanes, 1));
    const int groups_here = lrpe::times(all->groups, splits);
    splits = lrpe::times(all->groups, groups_here);
    int tokens = groups_here * lanes < FEWEST_THREADS ? lrpe::times(USUAL_THREADS, groups_here * lanes) : 1;
    const auto blocks = [&] { return (double)entries * lrpe::times(all->n, tokens) * splits; };
    while (tokens > 1 && blocks() < ENOUGH_BLOCKS * cut->multiprocessors)
        --tokens;
    cut->threads = dim3((unsigned)lanes, (unsigned)(tokens * groups_here));
    if ((int64_t)lanes * tokens * groups_here > MOST_THREADS)
        return "a row, or the heads of a token that a norm is over, are more than a block's";
    if (blocks() > INT32_MAX)
        return "there are more blocks than a launch takes";
    all->source.tokens = tokens;
    all->groups_here = divider(groups_here);
    all->tokens_here = divider(1);
    all->splits = divider(splits);
    all->tiles = divider(lrpe::times(all->n, tokens));
    all->blocks = (uint32_t)blocks();
    all->rotation_bytes = (uint32_t)std::min<size_t>(divide_up((int64_t)all->source.bytes(), 16) * 16, 2 * MOST_BYTES);
    return nullptr;
}

/* Bytes of shared memory for each of `blocks` that uses `used`. Without a norm, threads take so few registers that more of
 * them would run, and read ahead, than memory is fastest with: their blocks ask for more. */
inline int64_t shared_of(const gpu_device &device, const row_cut &cut, uint32_t blocks, int ahead, int64_t used)
{
    const int64_t threads = (int64_t)cut.threads.x * cut.threads.y;
    const bool at_once = blocks * threads <= (int64_t)MOST_AT_ONCE * device.multiprocessors;
    if (cut.sum != norm::none || ahead == 0 || device.architecture < 80 || at_once)
        return used;
    return std::max(used, std::min<int64_t>(device.shared_memory * threads / MOST_AT_ONCE, MOST_BYTES) / 16 * 16);
}

/* Fills in what kernels are told. Returns why they do not take the problem; nullptr: they do. */
template <typename T, encoding E>
const char *cut_rows(const copes_qk_problem &problem, row_arguments *all, row_cut *cut)
{
    constexpr int V = vector_length<T>;
    lrpe::row_shape shape;
    const copes_lrpe_problem &rotate = problem.side[0].rotate;
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
    all->cache = describe_slots(problem);
    const int lanes = lanes_of(problem, shape.units, V, cut);
    if (lanes > MOST_THREADS)
        return "a row has more vectors than a block's threads";
    if (cut->sum == norm::block && !problem.over_heads)
        cut->most = 1; /* each of its heads has a sum of its own in shared memory */
    return cut_tokens(problem, lanes, all, cut);
}

} // namespace COPES_GPU::qk

#endif
