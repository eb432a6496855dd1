/* qk_norm_rope as most models call it, and lrpe_rotate's decoding steps: heads of 2 V to 64 V features, a power of two, all of which
 * turn, at integers on a line. A team of 32 threads has one head or two for each thread's pair of vectors, of q, of k or of v, of one
 * token. It makes the token's rotations in shared memory of its own while its reads are under way, and waits for no other team.
 * In a decoding step what counts is the way from a block's first instruction to its last, so there are few; and the launch
 * begins while the one before it ends. */
#include "backends/gpu/qk/line.h"
#include "backends/gpu/qk/plan_rows.h"

namespace COPES_GPU::qk
{

/* Teams for each multiprocessor of an H200 up to which this kernel is faster than qk_forward, whose threads have more heads. With one
 * head a thread, up to which it is faster than with two: of few tokens the way through two is longer than a second team's own. */
enum { MOST_PLAIN = 128, MOST_NORMED = 16, MOST_OF_ONE_HEAD = 3 };

template <typename T, encoding E, bool NORM, int HEADS>
__global__ void LAUNCH_BOUNDS(LINE_THREADS, 2) qk_line(GPU_PARAMETER line_arguments argument)
{
    constexpr int V = vector_length<T>;
    constexpr lrpe::unit_places whole = {{}, {}, true, true, true};
    const line_arguments &all = first_argument(argument);
    const line_place<V, HEADS> at(all);
    const line_side &side = all.side[at.which];
    const bool norms = NORM && side.weights.data != nullptr, caches = at.which != QUERIES && side.cache.data != nullptr;
    const T *const src = lrpe::first_row<const T>(side.src, at.row);
    T *const dst = lrpe::first_row<T>(side.dst, at.row);
    raw_position position(all.angles, at.row);
    rotation *const memory = team_memory(all);
    await_launch_before(memory + threadIdx.x % TEAM, src, dst, position.from);
    position.read(all.angles);
    team_rotations<T, E> turns(all, memory);
    raw<T, V> words[HEADS][2] = {};
#pragma unroll
    for (int i = 0; i < HEADS; i++)
        if (at.row.head + i * at.step < side.heads)
#pragma unroll
            for (int j = 0; j < 2; j++)
                words[i][j] = raw<T, V>::read(src + (i * at.step * side.src.h + at.vector[j]));
    line_weights<T> weights;
    if (norms)
        weights.read(side.weights, min(at.row.head, side.heads - 1), at.vector);
    const int slot = caches ? find_slot(all.cache, at.row) : -1;
    turns.find_steps(all.angles);
    begin_launch_after(); /* not earlier, as its first instructions would delay these */
    turns.make(all.angles, position.find(all.angles, at.row.token), all.angles.contains(at.row.token));
    float y[HEADS][2][V], squares[HEADS], w[2][V];
#pragma unroll
    for (int i = 0; i < HEADS; i++) {
        words[i][0].unpack(y[i][0]);
        words[i][1].unpack(y[i][1]);
        squares[i] = sum_of_unit(whole, y[i], y[i]);
    }
    if (NORM)
        sums_of_lanes(squares, all.lanes);
    if (norms)
        weights.unpack(side.weights.narrow, all.weight_offset, w);
    rotation turn[V];
    turns.read((unsigned)at.unit, turn);
#pragma unroll
    for (int i = 0; i < HEADS; i++) {
        const lrpe::block_place row = {at.row.head + i * at.step, at.row.token, at.row.entry};
        if (row.head >= side.heads)
            continue;
        if (norms && i > 0 && side.weights.row != 0) {
            weights.read(side.weights, row.head, at.vector);
            weights.unpack(side.weights.narrow, all.weight_offset, w);
        }
        if (norms)
            norm_unit<T>(all, squares[i], w, y[i]);
        encode<E>(y[i], turn, at.which != VALUES);
        if (side.dst.data != nullptr) {
            T *const to = dst + i * at.step * side.dst.h;
            raw<T, V>::write(to + at.vector[0], y[i][0]);
            raw<T, V>::write(to + at.vector[1], y[i][1]);
        }
        if (slot >= 0)
            write_cached_head<T>(all.cache, side.cache, slot, row.head, at.vector, y[i]);
    }
}

inline constexpr variant_word step_name = "qk_step", line_name = "qk_line"; /* one head a thread, two */

template <typename T, encoding E, bool NORM, int HEADS>
inline constexpr const char *line_variant = variant_name<(HEADS == 1 ? step_name : line_name), type_name<T>,
                                                         lrpe::encoding_names[(int)E], norm_names[NORM]>::text;

typedef void line_kernel(line_arguments);

static copes_status run(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    return launch_overlapped(queue, planned<line_kernel>(plan), grid_of(plan), block_of(plan), (size_t)plan.shared,
                             tiling_of<line_arguments>(plan));
}

/* Why the kernel does not take the heads of a problem in whole vectors; nullptr: it does. */
template <typename T> static const char *refuse_heads(const copes_qk_problem &problem)
{
    const copes_lrpe_problem &rotate = problem.side[0].rotate;
    const int64_t lanes = rotate.d / (2 * vector_length<T>);
    if (!is_on_line(rotate))
        return "positions are not integers on a line, or theta is not aligned float32";
    if (rotate.h + (problem.sides == 2 ? problem.side[1].rotate.h : 0) + problem.v_heads > INT32_MAX / 2)
        return "there are more than 2^30 heads of a token";
    if (rotate.begin != 0 || 2 * rotate.k != rotate.d)
        return "not all features turn";
    if (lanes == 0 || lanes > TEAM || (lanes & (lanes - 1)) != 0)
        return "a head is not 1, 2, 4, 8, 16 or 32 pairs of vectors";
    if (problem.v_cache.data.data != nullptr && problem.e != rotate.d)
        return "v has other heads than k";
    return has_norm(problem) && problem.over_heads ? "a norm is over all heads" : nullptr;
}

/* Describes a side whose first team is number `teams`. Returns the number after its last. */
static int describe(const side_rows &rows, int team_heads, int teams, line_side *side)
{
    *side = {rows.src, rows.dst, rows.weights, rows.cache, rows.heads};
    return teams + lrpe::times(rows.heads, team_heads);
}

/* Shares a token out to teams whose threads have so many heads each. Returns the number of teams. */
static int share_out(const copes_qk_problem &problem, int heads, line_arguments *all)
{
    const int team_heads = heads * TEAM / all->lanes;
    const side_rows none = {},
                    keys = problem.sides == 2 ? describe_side(problem, problem.side[1], problem.k_cache) : none;
    all->keys = describe(describe_side(problem, problem.side[0], {}), team_heads, 0, &all->side[QUERIES]);
    all->values = describe(keys, team_heads, all->keys, &all->side[KEYS]);
    return describe(describe_values(problem), team_heads, all->values, &all->side[VALUES]);
}

/* The blocks that share a token's teams. Blocks have as few teams as FEW_TEAMS while no more than half of the multiprocessors get one:
 * on an H200 16 and 32 tokens are fastest with 64 blocks. */
static int split_teams(const gpu_device &device, double tokens, int teams)
{
    int each = FEW_TEAMS;
    while (each < MOST_TEAMS && tokens * lrpe::times(teams, each) > device.multiprocessors / 2)
        each++;
    return lrpe::times(teams, each);
}

/* Teams for each multiprocessor, at most. */
static int most_teams(const copes_qk_problem &problem, int heads)
{
    return heads == 1 ? MOST_OF_ONE_HEAD : has_norm(problem) ? MOST_NORMED : MOST_PLAIN;
}

static line_angles describe_angles(const copes_lrpe_problem &problem)
{
    const int shift = (int)(problem.segment[0].theta_begin - problem.segment[0].begin);
    const int step = (int)problem.theta.stride[1];
    const bool placed = problem.positions.data != nullptr;
    return {placed ? problem.positions.data : problem.theta.data,
            static_cast<const float *>(problem.theta.data) + shift * step,
            problem.positions.stride[1],
            problem.positions.stride[2],
            problem.offset[0],
            step,
            (int)problem.segment[0].end,
            (float)problem.theta_sign,
            problem.amplitude,
            (int)problem.prefix,
            (int)problem.length,
            placed && problem.positions_dtype == COPES_I64,
            placed,
            problem.counted};
}

/* Fills in what the kernel is told whose threads have so many heads. Returns why it does not take the problem; nullptr: it does. */
template <typename T, encoding E>
static const char *describe_line(const gpu_device &device, const copes_qk_problem &problem, int heads,
                                 line_arguments *all)
{
    const copes_lrpe_problem &rotate = problem.side[0].rotate;
    lrpe::row_shape shape;
    if (const char *why = refuse_vectors<T, E>(problem, &shape))
        return why;
    if (const char *why = refuse_angles<T>(problem))
        return why;
    if (const char *why = refuse_heads<T>(problem))
        return why;
    all->lanes = shape.units;
    while (1 << all->log_lanes < all->lanes)
        all->log_lanes++;
    const double tokens = (double)rotate.b * (double)shape.n;
    const int teams = share_out(problem, heads, all);
    if (!asks_for_one(device) && tokens * teams > (double)most_teams(problem, heads) * device.multiprocessors)
        return "there are more tokens than it is fastest for";
    const int splits = split_teams(device, tokens, teams);
    const double blocks = tokens * splits;
    if (teams == 0 || blocks == 0)
        return "there are no rows";
    if (blocks > INT32_MAX)
        return "there are more blocks than a launch takes";
    all->angles = describe_angles(rotate);
    all->cache = describe_slots(problem);
    all->tokens = divider(shape.n);
    all->splits = divider(splits);
    all->teams = lrpe::times(teams, splits);
    all->k = (int)rotate.k;
    all->eps = (float)problem.eps;
    all->weight_offset = (float)problem.weight_offset;
    all->inverse_length = (float)(1 / (double)rotate.d);
    all->round_between = problem.round_between;
    all->blocks = (uint32_t)blocks;
    return nullptr;
}

template <typename T, encoding E, int HEADS>
static bool plan_heads(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    constexpr const variant_word &name = HEADS == 1 ? step_name : line_name;
    line_arguments all = {};
    if (!is_allowed(device, name, plan))
        return false;
    if (const char *why = describe_line<T, E>(device, problem, HEADS, &all))
        return refuse(plan, name, why);
    set_launch(plan, all.blocks, dim3((unsigned)(all.teams * TEAM)),
               (int64_t)all.teams * greater(all.k, (int)TEAM) * (int)sizeof(rotation));
    set_tiling(plan, all);
    if (has_norm(problem))
        return take<line_kernel>(plan, line_variant<T, E, true, HEADS>, run, qk_line<T, E, true, HEADS>);
    return take<line_kernel>(plan, line_variant<T, E, false, HEADS>, run, qk_line<T, E, false, HEADS>);
}

template <typename T, encoding E>
bool plan_line(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    return plan_heads<T, E, 1>(device, problem, plan) || plan_heads<T, E, 2>(device, problem, plan);
}

#define QK_INSTANTIATE(T, E)                                                                                           \
    template bool plan_line<T, encoding::E>(const gpu_device &, const copes_qk_problem &, copes_plan *);
#include "backends/gpu/qk/instantiate.inc"
#undef QK_INSTANTIATE

void list_line(variant_list *list)
{
#define QK_INSTANTIATE(T, E)                                                                                           \
    list->add(line_variant<T, encoding::E, false, 1>);                                                                 \
    list->add(line_variant<T, encoding::E, false, 2>);                                                                 \
    list->add(line_variant<T, encoding::E, true, 1>);                                                                  \
    list->add(line_variant<T, encoding::E, true, 2>);
#include "backends/gpu/qk/instantiate.inc"
}

} // namespace COPES_GPU::qk
