/* A thread of the resident kernel: its unit, its tokens, and its places in the tensors and in the ring. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_WORKER_H
#define COPES_BACKENDS_CUDA_SEQUENCE_WORKER_H

#include "backends/cuda/sequence/shared.h"

namespace COPES_GPU::sequence
{

/* A unit's head, and its number there. */
struct head_unit {
    int head, unit;
};

/* Which tokens and columns thread i of a block has, if it has any (i < THREADS):
 *   unit of the tile     tile_unit = i % UNITS
 *   columns of the slab  tile_unit N .. tile_unit N + N, in registers 0 .. N of its arrays
 *   tokens of the slab   first_token + j token_stride, for j = 0 .. tokens, where first_token = rank ROWS + i / UNITS
 *
 * A warp's 512 bytes of a piece in the ring. With pairing half the two halves of a unit lie k features apart in
 * memory, but are 8 bytes each, while cp.async copies 16: so lanes 2 p and 2 p + 1, whose units are neighbours, copy
 * for each other.
 *   coding               bytes                        what                               copied by    read by
 *   half                 16 p + 8 j                   first half of lane 2 p + j's unit  lane 2 p     lane 2 p + j
 *                        256 + (16 p ^ 64) + 8 j      second half of it                  lane 2 p + 1 lane 2 p + j
 *   others               16 lane                      the lane's unit                    the lane     the lane
 * The ^ 64 keeps a warp's copies and reads from meeting a bank twice.
 *
 * It is held by value: the compiler loses sight of values behind references, and would read the kernel's arguments
 * from memory in every step. */
template <typename K> struct worker {
    typedef typename K::T T;
    static constexpr uint32_t HALVES = 256 + 64; /* the bits in which the places of a unit's halves differ */
    const copes_lrpe_problem &problem;
    const slab_tiling &tiling;
    group_member block;
    int tile_unit, row;
    int count;       /* slabs */
    int tokens;      /* of the thread, in a slab */
    uint32_t mine;   /* where the thread reads its first piece in the ring */
    uint32_t apart;  /* from there to the second half, with pairing half */
    uint32_t copied; /* where the thread copies its first piece to */

    __device__ __forceinline__ worker(const copes_lrpe_problem &problem, const slab_tiling &tiling)
        : problem(problem), tiling(tiling), block(find_block<K>(tiling)), tile_unit((int)threadIdx.x % K::UNITS),
          row((int)threadIdx.x / K::UNITS), count(walk().count())
    {
        const uint32_t warp = block_memory<K>::ring() + threadIdx.x / 32 * 512, neighbours = threadIdx.x % 32 / 2;
        const bool odd = threadIdx.x % 2 != 0;
        mine = K::C == coding::half ? warp + neighbours * 16 + odd * 8 : warp + threadIdx.x % 32 * 16;
        apart = (mine ^ HALVES) - mine;
        copied = K::C == coding::half ? (warp + neighbours * 16) ^ (odd ? HALVES : 0) : mine;
        tokens = ((int)problem.n - first_token() + token_stride() - 1) / token_stride();
    }
    /* From the group's first slab on. */
    __device__ __forceinline__ slab_walk walk() const
    {
        return slab_walk(tiling, block.group);
    }
    __device__ __forceinline__ int first_token() const
    {
        return block.rank * K::ROWS + row;
    }
    __device__ __forceinline__ int token_stride() const
    {
        return tiling.blocks * K::ROWS;
    }
    __device__ __forceinline__ head_unit find(int tile, int tile_unit) const
    {
        uint32_t unit;
        const uint32_t head = divide((uint32_t)(tile * K::UNITS + tile_unit), tiling.of_units, &unit);
        return {(int)head, (int)unit};
    }
    /* The feature of column i of a unit. */
    __device__ __forceinline__ int64_t feature(int unit, int i) const
    {
        if (K::C != coding::half)
            return (int64_t)unit * K::N + i;
        return (int64_t)unit * K::V + (i < K::V ? i : problem.k + i - K::V);
    }
    /* Column i of a unit in a slab's first token. */
    __device__ __forceinline__ T *column(const copes_view &view, const slab_walk &at, int tile_unit, int i) const
    {
        const head_unit u = find(at.tile, tile_unit);
        return static_cast<T *>(view.data) + at.b * view.stride[0] + u.head * view.stride[2] + feature(u.unit, i);
    }
    /* The thread's unit in its first token of a slab. */
    __device__ __forceinline__ T *first_unit(const copes_view &view, const slab_walk &at) const
    {
        return column(view, at, tile_unit, 0) + first_token() * view.stride[1];
    }
    /* The piece that the thread copies there. */
    __device__ __forceinline__ const T *first_piece(const copes_view &view, const slab_walk &at) const
    {
        const bool odd = K::C == coding::half && tile_unit % 2 != 0;
        return column(view, at, tile_unit - odd, odd ? K::V : 0) + first_token() * view.stride[1];
    }
    __device__ __forceinline__ float *lse(const slab_walk &at, int tile_unit, int i) const
    {
        const head_unit u = find(at.tile, tile_unit);
        return static_cast<float *>(problem.lse.data) + at.b * problem.lse.stride[0] + u.head * problem.lse.stride[1] +
               feature(u.unit, i) * problem.lse.stride[2];
    }
};

/* Waits for the warp, where neighbours copy for each other. */
template <typename K> DEVICE void neighbour_sync()
{
    if (K::C == coding::half)
        __syncwarp();
}

/* The thread's unit in the ring, `pieces` bytes after its first place. */
template <typename K> DEVICE uint4 read_unit(const worker<K> &w, uint32_t pieces)
{
    const uint32_t place = w.mine + pieces;
    return K::C == coding::half ? ld_shared_128(place, place + w.apart) : ld_shared_128(place);
}

} // namespace COPES_GPU::sequence

#endif
