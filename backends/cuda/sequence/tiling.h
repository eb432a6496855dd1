/* How the work is cut at run time, and which slabs a block has in which order. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_TILING_H
#define COPES_BACKENDS_CUDA_SEQUENCE_TILING_H

#include "backends/cuda/ptx/cluster.h"
#include "backends/cuda/sequence/kernels.h"
#include "backends/gpu/divide.h"

namespace COPES_GPU::sequence
{

using namespace ptx;

/* Of a group: slabs, and blocks that agree by totals. */
enum { MOST_SLABS = 8192, MOST_BLOCKS = 255 };

/* Distances of a thread in a tensor, in bytes: from a token to the thread's next one, and from the end of a slab's
 * last step to the slab's first token in the next batch entry. */
struct thread_strides {
    int64_t token, entry;
};

/* The units of all heads follow one another, head after head. A tile is UNITS neighbours of them, and has one slab
 * for each batch entry. A group of blocks takes the whole tiles through all of the batch; the groups share the slabs
 * of the other tiles. A group is here a cluster, too. */
struct slab_tiling {
    int blocks; /* of a group */
    int steps;  /* of a thread through a slab */
    int skew;   /* steps between the last reading of a slab and its first writing, in which the group agrees */
    int stages; /* of the ring: for a slab's steps, the skew, and the steps of copies under way */
    int units;  /* of a head */
    int tiles, batch;
    int sets;          /* of rotations that may be in use at once */
    bool prefetch_128; /* do copies ask for the 128 bytes around a piece at once? */
    int groups;
    thread_strides x, g, result; /* of x; of the gradient or, forward, the argument; of the result */
    int whole_tiles;             /* a multiple of the groups */
    int whole_slabs;             /* of one group, of whole tiles */
    divider of_units, of_shared; /* divide by the units of a head, and by the tiles that groups share */
    uint64_t *totals;            /* of the sums of a cooperative launch's blocks, in global memory */
    int64_t words;               /* of all totals, and of the groups' counters before them */
};

/* The shared memory that a cut takes, in bytes. */
struct memory_needs {
    size_t fixed;
    uint32_t stage;                 /* of the ring */
    uint32_t sums;                  /* that a block of a cluster sends */
    uint32_t advances, angle_steps; /* of a set of rotations: a step's, and all of its angles' */

    size_t bytes(const slab_tiling &t) const
    {
        return fixed + (size_t)t.stages * stage + 2 * (size_t)t.blocks * sums +
               (size_t)t.sets * ((size_t)t.steps * advances + angle_steps);
    }
};

/* Words before the totals of a group's slab, which has so many. The groups' slabs alternate. */
__host__ __device__ inline int64_t words_before(const slab_tiling &t, int words, int64_t slab, int64_t group)
{
    return t.groups + (slab * t.groups + group) * words;
}

/* A block's group, and the block's rank in it. */
struct group_member {
    int group, rank;
};

/* Block i of a cooperative launch goes to group i % groups. Two multiprocessors beside each other get
 * consecutive blocks, and so the same tokens of neighbouring slabs: lines of memory that belong to two slabs are
 * much faster to read and write from one place. */
template <typename K> DEVICE group_member find_block(const slab_tiling &t)
{
    const int block = (int)blockIdx.x;
    if (K::COOPERATIVE)
        return {block % t.groups, block / t.groups};
    return {block / t.blocks, (int)cluster_rank()};
}

/* A group's walk over its slabs:
 *   slab                  tile                                            batch entry
 *   0 .. whole_slabs      group, group + groups, ..: each for its batch   0 .. batch, for each tile
 *   whole_slabs ..        the group's share of the slabs of all other tiles, which are numbered entry by entry
 * A tile stays with its group as long as there is one for each, since its angles are the same for the whole batch.
 * At any time groups work side by side in memory. */
struct slab_walk {
    const slab_tiling &tiling;
    const int group;
    int slab, b, tile;

    __device__ __forceinline__ slab_walk(const slab_tiling &tiling, int group) : tiling(tiling), group(group)
    {
        restart();
    }
    __device__ __forceinline__ void restart()
    {
        slab = b = 0;
        tile = group;
        if (tiling.whole_slabs == 0)
            find_shared();
    }
    __device__ __forceinline__ int count() const
    {
        const int shared = (tiling.tiles - tiling.whole_tiles) * tiling.batch;
        return tiling.whole_slabs + (shared - group + tiling.groups - 1) / tiling.groups;
    }
    __device__ __forceinline__ void find_shared()
    {
        const uint32_t at = (uint32_t)((slab - tiling.whole_slabs) * tiling.groups + group);
        uint32_t shared;
        b = (int)divide(at, tiling.of_shared, &shared);
        tile = tiling.whole_tiles + (int)shared;
    }
    /* How many slabs from here on are known to be of the same tile, one batch entry after another. */
    __device__ __forceinline__ int following() const
    {
        return slab < tiling.whole_slabs ? tiling.batch - b : 1;
    }
    /* True where the next slab is one of them. */
    __device__ __forceinline__ bool next()
    {
        if (__builtin_expect(++slab >= tiling.whole_slabs, 0)) {
            find_shared();
            return false;
        }
        if (__builtin_expect(++b < tiling.batch, 1))
            return true;
        b = 0;
        tile += tiling.groups;
        return false;
    }
    /* Goes to the first slab after them. */
    __device__ __forceinline__ void leave_tile()
    {
        const int others = following() - 1;
        slab += others;
        b += others;
        next();
    }
};

} // namespace COPES_GPU::sequence

#endif
