/* lrpe where a token can be finished by itself: no activation, an elementwise one, or softmax over the features. Bound by
 * memory. A thread has one pair of vectors (cosine: one, and a pair on the other side); a block has a few tokens of a head
 * in every batch entry, whose sines and cosines it makes once in shared memory while its loads are under way. That is few
 * enough operations an element to hide behind memory at any batch, and one wave of short blocks is what an H200 copies
 * fastest with. What does not come in whole vectors goes to lrpe_any.cu. */
#include "backends/gpu/angles.h"
#include "backends/gpu/kernels.h"
#include "backends/gpu/lrpe_rows.h"

#include <stdlib.h>

namespace COPES_GPU {

enum { THREADS = 256, MOST_LANES = 256, ROW_LANES = 32 };

/* How the work is cut: a block has `tokens` x `entries` rows of `lanes` threads. */
struct lrpe_tiling {
    int lanes, units; /* threads of a row, and those with something to do */
    int tokens, entries;
    unsigned tiles, groups; /* of tokens, of batch entries */
    bool heads_first;       /* heads are nearer in memory than tokens are */
};

/* A block's angles in shared memory: the turns of its tokens, in an order in which a warp's 16-byte reads meet no bank
 * twice, the steps they are made from, and positions. */
struct block_angles {
    int angles, units; /* V angles a unit */
    float *cosine, *sine;
    angle_step *step;
    int8_t *dimension;
    int32_t *position; /* COPES_MAX_GRID a token; the first is NOWHERE in the prefix and suffix */
};

enum { NOWHERE = INT32_MIN };

inline size_t block_angles_bytes(int tokens, int angles)
{
    return (size_t)tokens * angles * 2 * sizeof(float) + (size_t)angles * (sizeof(angle_step) + 1) +
           (size_t)tokens * COPES_MAX_GRID * sizeof(int32_t);
}

DEVICE block_angles lay_out(char *memory, int tokens, int angles, int units)
{
    block_angles a = {.angles = angles, .units = units};
    a.cosine = reinterpret_cast<float *>(memory);
    a.sine = a.cosine + tokens * angles;
    a.position = reinterpret_cast<int32_t *>(a.sine + tokens * angles);
    a.step = reinterpret_cast<angle_step *>(a.position + tokens * COPES_MAX_GRID);
    a.dimension = reinterpret_cast<int8_t *>(a.step + angles);
    return a;
}

/* Where angle k of a token lies: the quarter of a unit comes first, then the unit. */
template <int V> DEVICE int angle_place(const block_angles &a, int token, int k)
{
    constexpr int WIDE = V < 4 ? V : 4;
    const int unit = k / V, i = k % V;
    return token * a.angles + (i / WIDE * a.units + unit) * WIDE + i % WIDE;
}

template <int V>
DEVICE void make_angles(const block_angles &a, const copes_lrpe_problem &problem, int64_t head, int64_t first, int tokens)
{
    const int thread = (int)((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    const int threads = (int)(blockDim.x * blockDim.y * blockDim.z);
    for (int k = thread; k < a.angles; k += threads) {
        const int j = dimension_of(problem, k);
        a.dimension[k] = (int8_t)j;
        a.step[k] = step_of(problem, head, k, j);
    }
    for (int t = thread; t < tokens; t += threads) {
        int32_t position[COPES_MAX_GRID] = {0, 0, 0, 0};
        const bool turned = find_positions(problem, first + t, position);
        for (int j = 0; j < COPES_MAX_GRID; j++)
            a.position[t * COPES_MAX_GRID + j] = turned ? position[j] : NOWHERE;
    }
    __syncthreads();
    for (int i = thread; i < tokens * a.angles; i += threads) {
        const int t = i / a.angles, k = i - t * a.angles, j = a.dimension[k];
        const int32_t position = a.position[t * COPES_MAX_GRID + (j > 0 ? j : 0)];
        const bool turned = j >= 0 && position != NOWHERE;
        const turn at = turned ? turn_at(a.step[k], position) : turn{1, 0};
        const int place = angle_place<V>(a, t, k);
        a.cosine[place] = at.cosine;
        a.sine[place] = at.sine;
    }
    __syncthreads();
}

template <int V> DEVICE void read_turns(const block_angles &a, int token, int unit, turn (&turns)[V])
{
    constexpr int WIDE = V < 4 ? V : 4;
#pragma unroll
    for (int i = 0; i < V; i += WIDE) {
        const int place = angle_place<V>(a, token, unit * V + i);
        const float4 cosine = *reinterpret_cast<const float4 *>(a.cosine + place);
        const float4 sine = *reinterpret_cast<const float4 *>(a.sine + place);
        turns[i] = {cosine.x, sine.x};
        turns[i + 1] = {cosine.y, sine.y};
        turns[i + 2] = {cosine.z, sine.z};
        turns[i + 3] = {cosine.w, sine.w};
    }
}

/* A block's place: its head, first token and first batch entry. */
struct block_place {
    int64_t head, token, entry;
};

DEVICE block_place find_block(const copes_lrpe_problem &problem, const lrpe_tiling &tiling)
{
    const unsigned heads = (unsigned)problem.h, inner = tiling.heads_first ? heads : tiling.tiles;
    const unsigned outer = blockIdx.x / inner, first = blockIdx.x - outer * inner;
    const unsigned next = tiling.heads_first ? tiling.tiles : heads, group = outer / next, second = outer - group * next;
    const unsigned tile = tiling.heads_first ? second : first;
    return {tiling.heads_first ? first : second, (int64_t)tile * tiling.tokens, (int64_t)group * tiling.entries};
}

template <typename T> DEVICE T *row_of(const copes_view &view, int64_t b, int64_t n, int64_t h)
{
    return static_cast<T *>(view.data) + b * view.stride[0] + n * view.stride[1] + h * view.stride[2];
}

template <typename T, encoding E, activation A, bool BACKWARD>
__global__ void lrpe_rows(GPU_PARAMETER copes_lrpe_problem problem, GPU_PARAMETER lrpe_tiling tiling)
{
    constexpr int V = vector_length<T>, PLAIN = plain_vectors<E>;
    constexpr bool KEPT = BACKWARD && A != activation::none;
    const block_place place = find_block(problem, tiling);
    const int unit = (int)threadIdx.x, token = (int)threadIdx.y;
    const int64_t n = place.token + token, b = place.entry + threadIdx.z;
    const bool live = unit < tiling.units && n < problem.n && b < problem.b;
    const unit_places at = find_unit<E, V>((int)problem.d, (int)problem.k, unit, live);

    raw_vectors<T, BACKWARD ? 2 : PLAIN> words;
    raw_vectors<T, PLAIN> kept;
    words.read(row_of<T>(problem.src, b, n, place.head), BACKWARD ? at.encoded : at.plain);
    if (KEPT)
        kept.read(row_of<T>(problem.x, b, n, place.head), at.plain);

    const block_angles angles = lay_out(dynamic_shared(), tiling.tokens, tiling.units * V, tiling.units);
    make_angles<V>(angles, problem, place.head, place.token, tiling.tokens);
    turn turns[V];
    read_turns<V>(angles, token, live ? unit : 0, turns);
    const bool turned = at.turned && angles.position[token * COPES_MAX_GRID] != NOWHERE;

    float x[2][V], y[2][V];
    T *dst = row_of<T>(problem.dst, b, n, place.head);
    words.unpack(BACKWARD ? at.encoded : at.plain, BACKWARD ? 0 : -INFINITY, x);
    if (BACKWARD) {
        decode<E>(x, turns, turned);
        if (KEPT) {
            kept.unpack(at.plain, -INFINITY, y);
            activation_gradient_row<A, PLAIN>(problem.act, y, x, tiling.lanes);
        }
        write_vectors<T, PLAIN>(dst, at.plain, x);
    } else {
        activate_row<A, PLAIN>(problem.act, x, tiling.lanes);
        encode<E>(x, turns, turned);
        write_vectors<T, 2>(dst, at.encoded, x);
    }
}

template <typename T> bool fits_vectors(const copes_lrpe_problem &problem, bool cosine)
{
    const int64_t d = problem.d, encoded = cosine ? 2 * d : d;
    const int64_t plain[] = {problem.b, problem.n, problem.h, d}, wide[] = {problem.b, problem.n, problem.h, encoded};
    return d % vector_length<T> == 0 && problem.k % vector_length<T> == 0 &&
           in_vectors<T>(problem.src, problem.backward ? wide : plain, 4) && in_vectors<T>(problem.x, plain, 4) &&
           in_vectors<T>(problem.dst, problem.backward ? plain : wide, 4);
}

static unsigned parts(int64_t whole, int64_t part)
{
    return (unsigned)((whole + part - 1) / part);
}

/* Every batch entry that fits shares a block's angles; tokens fill it up. False: a row is more than a block's. */
template <typename T, encoding E> bool find_tiling(const copes_lrpe_problem &problem, bool softmax, lrpe_tiling *tiling)
{
    const int64_t most = softmax ? ROW_LANES : MOST_LANES;
    if (!fits_vectors<T>(problem, E == encoding::cosine) || problem.d > 2 * most * vector_length<T> ||
        problem.n > INT32_MAX || problem.h > INT32_MAX || problem.b > INT32_MAX)
        return false;
    *tiling = {.units = units_of<E>((int)problem.d, (int)problem.k, vector_length<T>)};
    if (tiling->units > most)
        return false;
    for (tiling->lanes = 1; tiling->lanes < tiling->units;)
        tiling->lanes *= 2;
    if (!softmax)
        tiling->lanes = tiling->units;
    const int rows = THREADS / tiling->lanes > 0 ? THREADS / tiling->lanes : 1;
    tiling->entries = (int)(problem.b < rows ? problem.b : rows);
    tiling->tokens = (int)(problem.n < rows / tiling->entries ? problem.n : rows / tiling->entries);
    tiling->tiles = parts(problem.n, tiling->tokens);
    tiling->groups = parts(problem.b, tiling->entries);
    tiling->heads_first = problem.h > 1 && llabs(problem.dst.stride[2]) < llabs(problem.dst.stride[1]);
    return (double)tiling->tiles * tiling->groups * (double)problem.h <= INT32_MAX;
}

template <typename T, encoding E, activation A> copes_status run_rows(const queue &to, const copes_lrpe_problem &problem)
{
    lrpe_tiling tiling;
    if (!find_tiling<T, E>(problem, A == activation::softmax, &tiling))
        return run_lrpe_any<T>(to, problem);
    const size_t shared = block_angles_bytes(tiling.tokens, tiling.units * vector_length<T>);
    const dim3 threads((unsigned)tiling.lanes, (unsigned)tiling.tokens, (unsigned)tiling.entries);
    return launch(to, problem.backward ? lrpe_rows<T, E, A, true> : lrpe_rows<T, E, A, false>,
                  tiling.tiles * tiling.groups * (unsigned)problem.h, threads, shared, problem, tiling);
}

template <typename T, encoding E> copes_status run_encoding(const queue &to, const copes_lrpe_problem &problem)
{
    if (problem.act == COPES_NONE)
        return run_rows<T, E, activation::none>(to, problem);
    return problem.softmax == COPES_OVER_FEATURES ? run_rows<T, E, activation::softmax>(to, problem)
                                                  : run_rows<T, E, activation::elementwise>(to, problem);
}

template <typename T> size_t lrpe_workspace(const queue &to, const copes_lrpe_problem &problem)
{
    return problem.softmax == COPES_OVER_SEQUENCE ? sequence_workspace<T>(to, problem, false) : 0;
}

template <typename T> copes_status run_lrpe(const queue &to, const copes_lrpe_problem &problem, void *workspace)
{
    if (problem.softmax == COPES_OVER_SEQUENCE)
        return run_sequence<T>(to, problem, false, workspace);
    if (problem.variant == COPES_COSINE)
        return run_encoding<T, encoding::cosine>(to, problem);
    return problem.pairing == COPES_HALF ? run_encoding<T, encoding::half>(to, problem)
                                         : run_encoding<T, encoding::interleaved>(to, problem);
}

#define INSTANTIATE(T)                                                                                                 \
    template size_t lrpe_workspace<T>(const queue &, const copes_lrpe_problem &);                                      \
    template copes_status run_lrpe<T>(const queue &, const copes_lrpe_problem &, void *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU
