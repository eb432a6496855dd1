/* How the rows of a problem in whole vectors are cut into blocks, and what kernels are told of it. */
#ifndef COPES_BACKENDS_GPU_QK_PLAN_ROWS_H
#define COPES_BACKENDS_GPU_QK_PLAN_ROWS_H

#include "backends/gpu/names.h"
#include "backends/gpu/qk/methods.h"
#include "backends/gpu/qk/norm.h"

#include <algorithm>

namespace COPES_GPU::qk
{

enum { WANTED_THREADS = 320, WANTED_TO_LEARN = 160 }; /* of a block: the fewer, the more registers they take */
enum { ENOUGH_BLOCKS = 4 };                           /* on a multiprocessor */

inline constexpr variant_word norm_names[] = {"no norm", "norm by warp", "norm by block"};
inline constexpr variant_word place_names[] = {"anywhere", "on a line"};

/* What limits blocks, and how they came out. */
struct row_cut {
    bool learns; /* a thread keeps to one row */
    int enough;  /* with fewer blocks, they become smaller */
    int share;   /* rows of a thread */
    norm sum;
    dim3 threads;
    int64_t sums; /* numbers that meet in shared memory, of one kind */
};

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

inline side_rows describe_side(const copes_qk_problem &problem, const copes_qk_side &side)
{
    const double length = (double)side.rotate.d * (problem.over_heads ? (double)side.rotate.h : 1);
    return {lrpe::tensor_rows(side.rotate.src),
            lrpe::tensor_rows(side.rotate.x),
            lrpe::tensor_rows(side.rotate.dst),
            {side.weight.data, side.weight_rows == 1 ? 0 : (int)side.weight.stride[0], side.weight_dtype != COPES_F32},
            (int)side.rotate.h,
            (float)(1 / length)};
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

inline cache_arguments describe_caches(const copes_qk_problem &problem, int v)
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
    cache.keys = describe_cache(problem.k_cache);
    cache.values = describe_cache(problem.v_cache);
    cache.v = lrpe::tensor_rows(problem.v);
    cache.vectors = divider(std::max<int64_t>(problem.e / v, 1));
    cache.heads = divider(std::max<int64_t>(problem.v_heads, 1));
    if (problem.e == 0 || problem.v_heads == 0)
        cache.values.data = nullptr;
    return cache;
}

/* The threads of a row: with a norm a power of two. */
inline int lanes_of(const copes_qk_problem &problem, int units, row_cut *cut)
{
    bool any = false;
    for (const copes_qk_side &side : problem.side)
        any = any || side.weight.data != nullptr;
    cut->sum = !any ? norm::none : problem.over_heads ? norm::block : norm::warp;
    if (!any)
        return units;
    int lanes = 1;
    while (lanes < units)
        lanes *= 2;
    if (lanes > 32)
        cut->sum = norm::block;
    return lanes;
}

/* Cuts tokens, or the rows of a token, into blocks of about the wanted threads. Blocks that are too few become smaller. A
 * norm over all heads needs a token in one block. */
inline const char *cut_tokens(const copes_qk_problem &problem, int lanes, row_arguments *all, row_cut *cut)
{
    if (problem.over_heads && all->rows > cut->share * MOST_THREADS)
        return "the heads of a token, which a norm is over, are more than a block's";
    const int wanted = cut->learns ? WANTED_TO_LEARN : WANTED_THREADS;
    const int capacity = std::max(wanted / lanes, 1), entries = (int)problem.side[0].rotate.b;
    int splits = problem.over_heads ? 1 : lrpe::times(all->rows, cut->share * capacity);
    int tokens = std::max(cut->share * capacity / all->rows, 1), share = cut->share;
    const auto blocks = [&] { return (double)entries * lrpe::times(all->n, tokens) * splits; };
    while (tokens > 1 && blocks() < cut->enough)
        --tokens;
    if (tokens == 1 && share > 1 && blocks() < cut->enough) {
        share = 1;
        splits = problem.over_heads ? 1 : lrpe::times(all->rows, capacity);
    }
    const int rows_here = lrpe::times(all->rows, splits);
    splits = lrpe::times(all->rows, rows_here);
    cut->threads = dim3((unsigned)lanes, (unsigned)lrpe::times(tokens * rows_here, share));
    if (lanes * (int)cut->threads.y > MOST_THREADS && share < cut->share)
        cut->threads.y = (unsigned)lrpe::times(tokens * rows_here, cut->share);
    if (lanes * (int)cut->threads.y > MOST_THREADS)
        return "the heads of a token, which a norm is over, are more than a block's";
    if (blocks() > INT32_MAX)
        return "there are more blocks than a launch takes";
    all->source.tokens = tokens;
    all->rows_here = divider(rows_here);
    all->splits = divider(splits);
    all->tiles = divider(lrpe::times(all->n, tokens));
    all->blocks = (uint32_t)blocks();
    all->rotation_bytes = (uint32_t)std::min<size_t>(divide_up((int64_t)all->source.bytes(), 16) * 16, 2 * MOST_BYTES);
    cut->sums = (int64_t)cut->threads.y * cut->share * lrpe::times(lanes, 32);
    return nullptr;
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
    const int64_t rows = rotate.h + (problem.sides == 2 ? problem.side[1].rotate.h : 0);
    if (rows == 0 || shape.units == 0 || rows > INT32_MAX / 2)
        return "there are no rows, or more than 2^30 of a token";
    all->source = lrpe::anywhere_plan(rotate, false, shape.units, V);
    for (int i = 0; i < problem.sides; i++)
        all->side[i] = describe_side(problem, problem.side[i]);
    all->n = shape.n;
    all->d = shape.d;
    all->units = shape.units;
    all->rows = (int)rows;
    all->eps = (float)problem.eps;
    all->weight_offset = (float)problem.weight_offset;
    all->over_heads = problem.over_heads;
    all->round_between = problem.round_between;
    all->cache = describe_caches(problem, V);
    const int lanes = lanes_of(problem, shape.units, cut);
    cut->share = cut->learns ? 1 : shares_of(cut->sum);
    return cut_tokens(problem, lanes, all, cut);
}

} // namespace COPES_GPU::qk

#endif
