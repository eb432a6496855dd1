/* lrpe where nothing shares an angle: a batch of one, on a grid of one dimension. Every angle serves one row, so its
 * arithmetic would bind: a thread keeps the steps of its angles in registers and goes over several tokens, reading ahead,
 * with some twenty operations an angle and no barrier. */
#include "backends/gpu/kernels.h"
#include "backends/gpu/lrpe_rows.h"
#include "backends/gpu/lrpe_turns.h"

namespace COPES_GPU
{

enum {
    THREADS = 128,
    MOST_TURNS = 16,
    LEAST_TURNS = 4,
    ENOUGH_BLOCKS = 8
}; /* a thread's tokens; blocks a multiprocessor */

struct token_tiling {
    turn_plan turns;
    block_order order;
    row_shape shape;
    int rounds; /* tokens of a thread */
};

/* False: a theta is not finite, of which an angle in the grid must tell. */
template <int V> DEVICE bool find_steps(const turn_plan &plan, int head, int first, angle_step (&steps)[V])
{
    bool clean = true;
#pragma unroll
    for (int i = 0; i < V; i++) {
        steps[i] = first + i < plan.end[0] ? plan.step(head, first + i, 0) : angle_step{0, 0, 0};
        clean = clean && steps[i].poison == 0;
    }
    return clean;
}

template <bool EXACTLY, bool POISONED, int V>
DEVICE void make_turns(const angle_step (&steps)[V], int32_t position, turn (&turns)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++)
        turns[i] =
            turn_of<EXACTLY>(copes_phase_top(steps[i].high, steps[i].low, position), POISONED ? steps[i].poison : 0);
}

template <typename T, encoding E, activation A, bool BACKWARD>
__global__ void lrpe_tokens(copes_act act, GPU_PARAMETER tensor_rows src, GPU_PARAMETER tensor_rows x,
                            GPU_PARAMETER tensor_rows dst, GPU_PARAMETER token_tiling tiling)
{
    constexpr int V = vector_length<T>;
    const int together = (int)blockDim.y;
    block_place place = find_block(tiling.order);
    place.token *= tiling.rounds * together;
    const int left = tiling.shape.n - place.token - 1; /* tokens after the block's first */
    const T *const src_row = first_row<const T>(src, place), *const x_row = first_row<const T>(x, place);
    T *const dst_row = first_row<T>(dst, place);
    const unit_places at = find_unit<E, V>(tiling.shape.d, tiling.shape.k, tiling.shape.units, (int)threadIdx.x);
    int token = (int)threadIdx.y; /* from the block's first */
    row_words<T, E, A, BACKWARD> next;
    next.src.read(src_row, min(token, left) * (int)src.n, BACKWARD ? at.encoded : at.plain);
    next.x.read(x_row, min(token, left) * (int)x.n, at.plain);
    angle_step steps[V];
    const bool finite = find_steps(tiling.turns, place.head, at.there ? (int)threadIdx.x * V : 0, steps);
    for (int i = 0; i < tiling.rounds; i++, token += together) {
        const row_words<T, E, A, BACKWARD> words = next;
        const int ahead = min(i + 1 < tiling.rounds ? token + together : token, left);
        next.src.read(src_row, ahead * (int)src.n, BACKWARD ? at.encoded : at.plain);
        next.x.read(x_row, ahead * (int)x.n, at.plain);
        const uint32_t rest = (uint32_t)(place.token + token - tiling.turns.prefix);
        const bool inside = rest < (uint32_t)tiling.turns.length;
        const int32_t position = inside ? tiling.turns.offset[0] + (int32_t)rest : 0;
        turn turns[V];
        if (finite || !inside)
            make_turns<sizeof(T) == 4, false>(steps, position, turns);
        else
            make_turns<sizeof(T) == 4, true>(steps, position, turns);
        transform_row(act, words, at, at.there && token <= left, turns, tiling.shape.lanes, dst_row,
                      token * (int)dst.n);
    }
}

/* The number of blocks; 0: this kernel does not take the problem. */
static int64_t find_tiling(const queue &to, const copes_lrpe_problem &problem, int angles_of_token,
                           token_tiling *tiling, int *together)
{
    const row_shape &shape = tiling->shape;
    *together = THREADS / shape.lanes > 0 ? THREADS / shape.lanes : 1;
    const int64_t rows = (int64_t)shape.n * problem.h / *together, wanted = rows / ENOUGH_BLOCKS / to.multiprocessors;
    tiling->rounds = wanted < MOST_TURNS ? (int)wanted : (int)MOST_TURNS;
    if (problem.b != 1 || problem.grid_rank != 1 || tiling->rounds < LEAST_TURNS)
        return 0;
    tiling->turns = turn_plan(problem, angles_of_token);
    const int tokens = tiling->rounds * *together, tiles = (shape.n + tokens - 1) / tokens;
    tiling->order = block_order(problem, tiles);
    const bool near = tensor_rows(problem.src).is_near(0, tokens) && tensor_rows(problem.x).is_near(0, tokens) &&
                      tensor_rows(problem.dst).is_near(0, tokens);
    const double blocks = (double)tiles * (double)problem.h;
    return near && blocks <= INT32_MAX ? (int64_t)blocks : 0;
}

template <typename T, encoding E, activation A>
bool run_lrpe_tokens(const queue &to, const copes_lrpe_problem &problem, copes_status *status)
{
    token_tiling tiling;
    int together;
    if (!find_shape<T, E>(problem, A == activation::softmax, &tiling.shape) || !turn_plan::fits(problem))
        return false;
    const int64_t blocks = find_tiling(to, problem, tiling.shape.units * vector_length<T>, &tiling, &together);
    if (blocks == 0)
        return false;
    *status = launch(to, problem.backward ? lrpe_tokens<T, E, A, true> : lrpe_tokens<T, E, A, false>, (unsigned)blocks,
                     dim3((unsigned)tiling.shape.lanes, (unsigned)together), 0, problem.act, tensor_rows(problem.src),
                     tensor_rows(problem.x), tensor_rows(problem.dst), tiling);
    return true;
}

#define LRPE_INSTANTIATE(T, E, A)                                                                                      \
    template bool run_lrpe_tokens<T, encoding::E, activation::A>(const queue &, const copes_lrpe_problem &,            \
                                                                 copes_status *);
#include "backends/gpu/lrpe_instantiate.h"

} // namespace COPES_GPU
