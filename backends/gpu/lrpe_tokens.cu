/* lrpe where nothing shares an angle: a batch of one, on a grid of one dimension. Every angle serves one row, so its
 * arithmetic binds, and is kept to the polynomials of its sine and cosine: a thread goes over several tokens, and a
 * token's phase is that of the thread's first token plus that of the distance between them, which all threads of the
 * block share. What is left is hidden behind memory by reading ahead. */
#include "backends/gpu/kernels.h"
#include "backends/gpu/lrpe_rows.h"
#include "backends/gpu/lrpe_turns.h"

#include <algorithm>

namespace COPES_GPU
{

enum { THREADS = 128, ENOUGH_BLOCKS = 2 /* a multiprocessor */, MOST_BYTES = 8 << 10 };
enum { MOST_ROUNDS = 12, LEAST_ROUNDS = 4 }; /* a thread's tokens: a multiple of the latter */

struct token_tiling {
    turn_plan turns; /* its tokens: those of a thread */
    block_order order;
    row_shape shape;
};

/* Tokens that a thread reads at once, while it works on as many: as its registers allow. */
template <activation A> inline constexpr int ahead = A == activation::none ? 4 : 1;

/* What a block's threads share: the steps of its head's angles, and the phases of the distances to a thread's
 * tokens. */
struct shared_angles {
    angle_step *steps;
    uint32_t *distances;

    __device__ __forceinline__ shared_angles(const turn_plan &plan, char *memory)
        : steps(reinterpret_cast<angle_step *>(memory)),
          distances(reinterpret_cast<uint32_t *>(memory + plan.angles.divisor * sizeof(angle_step)))
    {
    }
    static size_t bytes_of(int angles, int tokens)
    {
        return (size_t)angles * (sizeof(angle_step) + (size_t)tokens * sizeof(uint32_t));
    }
};

/* For tokens that are `apart` from one to the next; all threads take part. An angle past the last has a step of 0. */
DEVICE void make_shared(const turn_plan &plan, const shared_angles &angles, int head, int apart)
{
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), threads = (int)(blockDim.x * blockDim.y);
    for (int k = thread; k < (int)plan.angles.divisor; k += threads) {
        const angle_step step = k < plan.end[0] ? plan.step(head, k, 0) : angle_step{0, 0, 0};
        angles.steps[k] = step;
        for (int token = 0; token < plan.tokens; token++)
            angles.distances[token * (int)plan.angles.divisor + k] =
                copes_phase_top(step.high, step.low, token * apart);
    }
    __syncthreads();
}

/* The phases of a thread's first token, which may be before the grid. */
template <int V> struct first_phases {
    uint32_t phase[V];
    bool finite; /* no theta is inf or NaN, of which an angle in the grid must tell */

    __device__ __forceinline__ first_phases(const angle_step *steps, int32_t position) : finite(true)
    {
#pragma unroll
        for (int i = 0; i < V; i++) {
            phase[i] = copes_phase_top(steps[i].high, steps[i].low, position);
            finite = finite && steps[i].poison == 0;
        }
    }
};

template <bool EXACTLY, int V>
DEVICE void make_turns(const first_phases<V> &first, const uint32_t *distances, const angle_step *poisoned, bool inside,
                       turn (&turns)[V])
{
#pragma unroll
    for (int i = 0; i < V; i += 4) {
        const uint4 distance = *reinterpret_cast<const uint4 *>(distances + i);
        const uint32_t after[4] = {distance.x, distance.y, distance.z, distance.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            turns[i + j] = turn_of<EXACTLY>(inside ? first.phase[i + j] + after[j] : 0, 0);
    }
    if (inside && !first.finite)
        for (int i = 0; i < V; i++)
            turns[i] = {turns[i].cosine + poisoned[i].poison, turns[i].sine + poisoned[i].poison};
}

template <typename T, encoding E, activation A, bool BACKWARD>
__global__ void lrpe_tokens(copes_act act, GPU_PARAMETER tensor_rows src, GPU_PARAMETER tensor_rows x,
                            GPU_PARAMETER tensor_rows dst, GPU_PARAMETER token_tiling tiling)
{
    constexpr int V = vector_length<T>;
    const int together = (int)blockDim.y, rounds = tiling.turns.tokens;
    block_place place = find_block(tiling.order);
    place.token *= rounds * together;
    const int left = tiling.shape.n - place.token - 1; /* tokens after the block's first */
    const T *const src_row = first_row<const T>(src, place), *const x_row = first_row<const T>(x, place);
    T *const dst_row = first_row<T>(dst, place);
    const unit_places at = find_unit<E, V>(tiling.shape.d, tiling.shape.k, tiling.shape.units, (int)threadIdx.x);
    int token = (int)threadIdx.y; /* from the block's first */
    constexpr int AHEAD = ahead<A>;
    row_words<T, E, A, BACKWARD> next[AHEAD];
    const auto read_ahead = [&](int first) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int token = min(first + i * together, left);
            next[i].src.read(src_row, token * (int)src.n, BACKWARD ? at.encoded : at.plain);
            next[i].x.read(x_row, token * (int)x.n, at.plain);
        }
    };
    read_ahead(token);
    const shared_angles angles(tiling.turns, dynamic_shared());
    make_shared(tiling.turns, angles, place.head, together);
    const int angle = at.there ? (int)threadIdx.x * V : 0;
    const turn_plan &plan = tiling.turns;
    const first_phases<V> first(angles.steps + angle, plan.offset[0] + (place.token + token - plan.prefix));
    for (int round = 0; round < rounds; round += AHEAD) {
        row_words<T, E, A, BACKWARD> words[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            words[i] = next[i];
        if (round + AHEAD < rounds)
            read_ahead(token + AHEAD * together);
#pragma unroll
        for (int i = 0; i < AHEAD; i++, token += together) {
            turn turns[V];
            const bool inside = (uint32_t)(place.token + token - plan.prefix) < (uint32_t)plan.length;
            make_turns<sizeof(T) == 4>(first, angles.distances + (round + i) * (int)plan.angles.divisor + angle,
                                       angles.steps + angle, inside, turns);
            transform_row(act, words[i], at, at.there && token <= left, turns, tiling.shape.lanes, dst_row,
                          token * (int)dst.n);
        }
    }
}

/* The number of blocks; 0: this kernel does not take the problem, among others where a token before the grid would have
 * a position below any. */
static int64_t find_tiling(const queue &to, const copes_lrpe_problem &problem, int angles_of_token,
                           token_tiling *tiling, int *together)
{
    const row_shape &shape = tiling->shape;
    *together = THREADS / shape.lanes > 0 ? THREADS / shape.lanes : 1;
    const int64_t rows = (int64_t)shape.n * problem.h / *together, wanted = rows / ENOUGH_BLOCKS / to.multiprocessors;
    const int64_t room = MOST_BYTES / (angles_of_token * (int64_t)sizeof(uint32_t));
    const int rounds = (int)std::min({wanted, room, (int64_t)MOST_ROUNDS}) / LEAST_ROUNDS * LEAST_ROUNDS;
    if (problem.b != 1 || problem.grid_rank != 1 || rounds < LEAST_ROUNDS ||
        problem.offset[0] - problem.prefix < INT32_MIN)
        return 0;
    tiling->turns = turn_plan(problem, angles_of_token);
    tiling->turns.tokens = rounds;
    const int tokens = rounds * *together, tiles = (shape.n + tokens - 1) / tokens;
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
                     dim3((unsigned)tiling.shape.lanes, (unsigned)together),
                     shared_angles::bytes_of((int)tiling.turns.angles.divisor, tiling.turns.tokens), problem.act,
                     tensor_rows(problem.src), tensor_rows(problem.x), tensor_rows(problem.dst), tiling);
    return true;
}

#define LRPE_INSTANTIATE(T, E, A)                                                                                      \
    template bool run_lrpe_tokens<T, encoding::E, activation::A>(const queue &, const copes_lrpe_problem &,            \
                                                                 copes_status *);
#include "backends/gpu/lrpe_instantiate.h"

} // namespace COPES_GPU
