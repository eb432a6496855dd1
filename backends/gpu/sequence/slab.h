/* A block's slab in the portable kernels of softmax over the sequence: how it is cut into units and tokens, its shared memory, and the
 * rotations of its tokens. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_SLAB_H
#define COPES_BACKENDS_GPU_SEQUENCE_SLAB_H

#include "backends/gpu/sequence/column.h"
#include "launch.h"

namespace COPES_GPU::sequence
{

enum { THREADS = 256 };

/* Angles of a thread's unit. NVIDIA's multiprocessors lack the registers for units of two vectors: fewer threads
 * would run at once, too few to hide memory's latency. AMD's have the registers, and are better at whole vectors. */
template <typename T> inline constexpr int unit_angles = WIDE_UNITS ? vector_length<T> : vector_length<T> / 2;
template <> inline constexpr int unit_angles<any_type> = 1;

/* Units of a tile: their columns make up a line of the caches, or two halves of lines with pairing half. Units of
 * single elements are 32: a warp's. A block's thread i has unit i % tile_units_of, and row i / tile_units_of of the
 * block's tokens. */
constexpr int tile_units(int v, int vector)
{
    return v == 1 ? 32 : v == vector ? 8 : 16;
}
template <typename T, int V> inline constexpr int tile_units_of = tile_units(V, 16 / (int)sizeof(T));
template <typename T, int V> inline constexpr int rows_of = THREADS / tile_units_of<T, V>;

/* Has a kernel vectors of tokens whose angles may be anywhere? */
template <int V, bool ANYWHERE> inline constexpr bool vectors_anywhere = ANYWHERE && V > 1;

/* Tokens of a chunk. A thread finds the rotation of a chunk's first token exactly and advances it to the others; and it
 * adds a chunk's terms before they join the sum of all. */
enum { CHUNK = 16 };

/* An angle of a block's sequence. `begin`: ZERO_PHASE and its phase at the sequence's own offset. */
struct slab_angle : angle_step {
    uint32_t begin;

    __device__ __forceinline__ rotation at(int32_t position) const
    {
        return rotation_of<true>(begin + copes_phase_top(high, low, position), poison);
    }
};

/* A block's shared memory:
 *   what         written by                    read by
 *   angle_steps  find_angle_steps              find_angle_steps, find_rotations
 *   dimension    find_angle_steps              find_rotations
 *   advances     find_angle_steps              token_walk: from a chunk's first token to each of its tokens
 *   half         half of the rows, merging     the other half of the rows; then the blocks of the cluster */
template <typename T, int V> struct slab_angles {
    static constexpr int UNITS = tile_units_of<T, V>, angles = UNITS * V;
    slab_angle angle_steps[V][UNITS]; /* units' side by side, so that a warp's reads have few bank conflicts */
    int dimension[V][UNITS];
    alignas(16) rotation advances[CHUNK][angles];
};

template <typename T, int V> struct slab_memory : slab_angles<T, V> {
    static constexpr int columns = 2 * slab_angles<T, V>::angles;
    column half[rows_of<T, V> / 2][columns];
};

/* A thread's tokens and columns: `tokens` tokens of one unit of a head, first, first + token_stride, .. A block has neighbouring
 * tokens, and its rows one after the other of them. */
struct slab_place {
    int tile_unit, row, tokens;
    uint32_t blocks, rank; /* blocks of the slab, and this one's number among them */
    int64_t unit, h, b, first, token_stride;
    const grid_lengths &grid;
};

/* How slabs are cut into blocks: their units, the tiles of a head, the blocks of a tile's slab, and the most tokens of a thread. Kernels
 * divide by the heads and by the grid's lengths, too. */
struct slab_cut {
    int64_t units;
    divider tiles, blocks;
    int tokens;
    divider heads;
    grid_lengths grid;
};

/* BY_HEADS: blocks of all heads of some tokens are neighbours, as in memory; else those of a slab, which may be a cluster. */
template <typename T, int V, bool BY_HEADS>
DEVICE slab_place find_place(const copes_lrpe_problem &problem, const slab_cut &cut)
{
    constexpr int ROWS = rows_of<T, V>;
    uint32_t rank, slab, tile, h;
    if (BY_HEADS) {
        const uint32_t of_entry = cut.heads.divisor * cut.tiles.divisor, part = blockIdx.x / cut.heads / cut.tiles;
        slab = divide(part, cut.blocks, &rank) * of_entry + (blockIdx.x - part * of_entry);
    } else
        slab = divide(blockIdx.x, cut.blocks, &rank);
    const uint32_t b = divide(divide(slab, cut.tiles, &tile), cut.heads, &h);
    const int tile_unit = (int)threadIdx.x % tile_units_of<T, V>, row = (int)threadIdx.x / tile_units_of<T, V>;
    const int64_t first = (int64_t)rank * cut.tokens * ROWS + row, left = problem.n - first + ROWS - 1;
    const int tokens = (int)(left < 0 ? 0 : left / ROWS < cut.tokens ? left / ROWS : cut.tokens);
    return {tile_unit, row,  tokens,  cut.blocks.divisor, rank, (int64_t)tile * tile_units_of<T, V> + tile_unit, h, b,
            first,     ROWS, cut.grid};
}

/* The same place once more: what was found of it before takes no registers up to here. */
DEVICE slab_place find_again(slab_place place)
{
    uint32_t tile_unit = (uint32_t)place.tile_unit;
    settle(tile_unit);
    place.unit += (int32_t)tile_unit - place.tile_unit;
    return place;
}

/* Is each token's position its own number plus a constant, as nearly always? Then a token takes far fewer
 * instructions. */
__host__ __device__ inline bool in_line(const copes_lrpe_problem &problem)
{
    return problem.grid_rank == 1 && problem.prefix == 0 && problem.length >= problem.n;
}

/* May positions, whatever gives them, turn a token's angles as a number does? Then a chunk whose positions are as far apart as its
 * tokens takes as few instructions. */
__host__ __device__ inline bool may_be_in_line(const copes_lrpe_problem &problem)
{
    return problem.grid_rank == 1 && problem.prefix == 0 && problem.length >= problem.n && !problem.mixed &&
           (problem.positions.data == nullptr || problem.positions_dtype != COPES_F32);
}

/* A token's position there. It wraps, as lrpe's positions do. */
DEVICE uint64_t position_of(const copes_lrpe_problem &problem, int64_t b, int64_t token)
{
    const int64_t from = problem.positions.data == nullptr
                             ? 0
                             : read_position(problem.positions, problem.positions_dtype, b, token, 0).whole;
    return (uint64_t)from + (uint64_t)problem.offset[0] + (uint64_t)(problem.counted ? token : 0);
}

/* The place of a unit's angle i among the advances of a token. */
template <typename T, int V> DEVICE int advance_place(int tile_unit, int i)
{
    constexpr int N = V > 1 ? 2 : 1;
    return unit_place<V, N, int>(tile_units_of<T, V>, 0, tile_unit, i);
}

/* An angle that begins at the sequence's own offset. It is no part of its caller, whose registers are few. */
[[maybe_unused]] OUT_OF_LINE slab_angle begin_at_offset(const copes_lrpe_problem &problem, int64_t b, float theta,
                                                        angle_step step)
{
    const token_position offset = read_position(problem.positions, problem.positions_dtype, b, 0, 0);
    step.poison += copes_phase_poison(offset.real);
    return {step, ZERO_PHASE + (uint32_t)(phase_of(offset, theta) >> 32)};
}

/* Angle k. OFFSETS: sequences may have offsets of their own. */
template <bool OFFSETS>
DEVICE slab_angle find_slab_angle(const copes_lrpe_problem &problem, const slab_place &place, int64_t k, int dimension)
{
    const float theta = dimension < 0 ? 0 : theta_of(problem, place.h, k, dimension);
    const angle_step step = step_of(theta);
    if (OFFSETS && problem.positions.data != nullptr)
        return begin_at_offset(problem, place.b, theta, step);
    return {step, ZERO_PHASE};
}

template <bool OFFSETS, typename T, int V>
DEVICE void find_angle_steps(slab_angles<T, V> &memory, const copes_lrpe_problem &problem, const slab_place &place)
{
    if (problem.k == 0) /* softmax alone */
        return;
    for (int i = (int)threadIdx.x; i < memory.angles; i += THREADS) {
        const int64_t k = (place.unit - place.tile_unit) * V + i;
        const int dimension = k < problem.k ? dimension_of(problem, k) : -1;
        memory.dimension[i % V][i / V] = dimension;
        memory.angle_steps[i % V][i / V] =
            k < problem.k ? find_slab_angle<OFFSETS>(problem, place, k, dimension) : slab_angle{{0, 0, 0}, ZERO_PHASE};
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < CHUNK * memory.angles; i += THREADS) {
        const int token = i / memory.angles, angle = i % memory.angles;
        memory.advances[token][advance_place<T, V>(angle / V, angle % V)] =
            token == 0
                ? rotation{1, 0} /* also of a theta that is not finite, by which tokens outside the grid do not turn */
                : rotation_at<true>(memory.angle_steps[angle % V][angle / V], (int32_t)(token * place.token_stride));
    }
    __syncthreads();
}

/* The rotations of a thread's unit at a token. ANYWHERE: is_anywhere holds for the problem. */
template <typename T, int V, bool ANYWHERE>
DEVICE void find_rotations(const slab_angles<T, V> &memory, const copes_lrpe_problem &problem, const slab_place &place,
                           int64_t token, rotation (&rotations)[V])
{
    if constexpr (ANYWHERE) {
        for (int i = 0; i < V; i++)
            rotations[i] = find_any_rotation(problem, place.b, token, place.h, place.unit * V + i);
        return;
    }
    /* An angle that belongs to no dimension has step 0. */
    const slab_angle *const steps = memory.angle_steps[0] + place.tile_unit;
    if (in_line(problem)) {
#pragma unroll
        for (int i = 0; i < V; i++)
            rotations[i] = steps[i * memory.UNITS].at((int32_t)(problem.offset[0] + token));
        return;
    }
    int32_t position[COPES_MAX_GRID] = {0, 0, 0, 0};
    const bool in_grid = find_positions(problem, place.grid, token, position);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const rotation here = steps[i * memory.UNITS].at(position_in(position, memory.dimension[i][place.tile_unit]));
        rotations[i] = in_grid ? here : rotation{1, 0};
    }
}

/* Those of `count` tokens, one in ROWS, whatever their positions. It is no part of its caller, whose registers are few. */
template <int V, int ROWS>
OUT_OF_LINE void find_scattered(const copes_lrpe_problem &problem, int64_t b, int64_t head, int64_t unit, int64_t start,
                                int count, rotation *to)
{
#pragma unroll 1
    for (int i = 0; i < count * V; i++)
        to[i] = find_any_rotation(problem, b, start + i / V * ROWS, head, unit * V + i % V);
}

/* A column's number in a tensor (B, H, D). */
DEVICE float *number_at(const copes_view &view, const slab_place &place, int64_t column)
{
    return static_cast<float *>(view.data) + place.b * view.stride[0] + place.h * view.stride[1] +
           column * view.stride[2];
}

} // namespace COPES_GPU::sequence

#endif
