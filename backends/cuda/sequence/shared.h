/* A block's shared memory: its map, and the mbarriers that protect it. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_SHARED_H
#define COPES_BACKENDS_CUDA_SEQUENCE_SHARED_H

#include "backends/cuda/ptx/mbarrier.h"
#include "backends/cuda/ptx/memory.h"
#include "backends/cuda/sequence/tiling.h"

namespace COPES_GPU::sequence
{

/* Threads have four roles. Token threads (thread 0 to THREADS - 1) read and write tokens. Exchange warps have the
 * other three; in a cluster one warp has them all, in a cooperative launch each has a warp (group.h):
 *   summing     adds the sums of the block's warps, and sends them to the other blocks
 *   finishing   merges the sums of all blocks, and finishes the slab's columns
 *   preparing   finds the references and rotations of slabs to come
 *
 * The dynamic shared memory, in order. Slab s uses copy s % SETS, s % OPEN or s % 2; its tile has a set of rotations
 * and angle steps (rotation_set).
 *
 *   what            copies        written by                    read by
 *   partial         1             token threads: a row a warp   summing
 *   reference       SETS          preparing                     finishing; token threads as they begin to read a slab,
 *                                                               and as they begin to write it
 *   limit           SETS          preparing (forward)           token threads as they begin to read a slab
 *   finished        OPEN          finishing                     token threads as they begin to write a slab
 *   skipped         OPEN          finishing, lane 0             token threads as they begin to write a slab
 *   unfit           1             finishing, lane 0             all threads after the last slab
 *   mbarriers       see below
 *   ring            stages        token threads: cp.async,      token threads of the same warp, so that __syncwarp is
 *                                 and decoded gradients         enough
 *   received_sums   2 (cluster)   summing of every block        finishing
 *   rotations       tiling.sets   preparing                     token threads
 *   angle_steps     tiling.sets   preparing                     token threads, preparing
 *
 * The mbarriers. Of an array of n, slab s uses mbarrier s % n, and waits for parity s / n % 2. A slab has one phase:
 *
 *   mbarrier        n      arrivals                       waits                          protects
 *   summed          1      THREADS: token threads, when   summing                        reading partial
 *                          their sums are in partial
 *   taken           1      32: lanes of summing, when     token threads, before they     partial, from the sums of
 *    (cooperative)         they have read partial         put the sums of slab s + 1     slab s + 1
 *   agreed          OPEN   32: lanes of finishing, when   token threads, before they     reading finished and skipped
 *                          the columns are finished       write slab s
 *   prepared        SETS   32: lanes of preparing, when   token threads, before they     reading reference, limit,
 *                          the slab is prepared           read slab s; finishing, if     rotations, angle_steps
 *                                                         there are terms
 *   done            OPEN   32: lanes of finishing,        preparing, before it           reference, limit, rotations
 *    (cooperative)         after agreed                   prepares slab s + OPEN         of slab s + OPEN - SETS
 *   received        2      1: lane 0 of the exchange      finishing                      reading received_sums
 *    (cluster of           warp, which expects the
 *    several blocks)       bytes of all blocks' sums
 *
 * Where there is no wait, the skew protects. A thread reads slab s in its steps from s steps to (s + 1) steps. It
 * begins to write slab s at step (s + 1) steps + skew, and takes as many steps for it. With D = 1 in a cluster and D
 * = 3 in a cooperative launch, the skew is less than D steps (take_skew in plan.h). So a thread that arrives at
 * summed for slab s
 *   has begun to write slab s - D:       slab s may overwrite finished of slab s - OPEN. In a cluster D is 1:
 *                                        summing has read partial of slab s - 1
 *   has written all of slab s - D - 1:   preparing may overwrite what this slab had. Next it prepares slab s + 2
 *                                        in a cluster, slab s + OPEN in a cooperative launch
 *
 * Barriers across blocks. All threads of all blocks of the group pass each of them equally often:
 *   cluster_sync   once after the mbarriers are initialized; twice an agreement of recompute.h
 *   grid_sync      once after the totals are empty and the mbarriers initialized, by all blocks of the launch
 *   group_sync     twice an agreement of recompute.h
 * All blocks of a group recompute the same slabs, as they decide by the same sums. A cluster has no barrier at its
 * end: a block ends after it has received all sums that are sent to it. */
template <typename K> struct block_memory {
    static constexpr int OPEN = K::COOPERATIVE ? 4 : 1; /* slabs that are agreed on at once, at most */
    static constexpr int SETS = K::COOPERATIVE ? 8 : 4; /* slabs whose references may be in use at once */
    /* Rows of `finished`: the factor of a column's terms, and the number to add to a gradient times this factor. */
    static constexpr int SCALE = 0, OFFSET = K::TERMS, FINISHED = OFFSET + K::BACKWARD;

    float partial[K::WARPS][K::COLUMNS]; /* each warp's sums: of terms, backward of terms times gradients */
    float reference[SETS][K::COLUMNS];
    alignas(16) typename K::T limit[SETS][K::COLUMNS]; /* the largest elements that suit the reference */
    float finished[OPEN][FINISHED][K::COLUMNS];
    bool skipped[OPEN];              /* is a slab to be recomputed? */
    uint32_t unfit[MOST_SLABS / 32]; /* the same, a bit for each slab of the group */
    uint64_t summed[1], taken[1], agreed[OPEN], prepared[SETS], done[OPEN], received[2];
    alignas(16) char rest[];

    static constexpr memory_needs needs()
    {
        return {sizeof(block_memory) + RING_ALIGNMENT, K::STAGE_BYTES,
                K::COOPERATIVE ? 0 : K::COLUMNS * (uint32_t)sizeof(float), ADVANCES * (uint32_t)sizeof(rotation),
                (uint32_t)angle_step_bytes()};
    }
    static constexpr uint32_t RING_ALIGNMENT = 512;
    static constexpr int ADVANCES = K::ROTATED ? K::BATCH / K::SPAN * K::ANGLES : 0; /* of a step */
    __host__ __device__ static int sending_blocks(const slab_tiling &t)
    {
        return K::COOPERATIVE ? 0 : t.blocks;
    }
    __host__ __device__ static constexpr int angle_step_bytes()
    {
        return K::ROTATED ? (K::ANGLES * (int)sizeof(angle_step) + 15) / 16 * 16 : 0;
    }
    __host__ __device__ static int ring_bytes(const slab_tiling &t)
    {
        return t.stages * K::STAGE_BYTES;
    }
    /* Rotations of a set: the advance to each span of a thread's tokens, for each angle. */
    __host__ __device__ static int rotations_of(const slab_tiling &t)
    {
        return t.steps * ADVANCES;
    }
    DEVICE block_memory *get()
    {
        return reinterpret_cast<block_memory *>(dynamic_shared());
    }
    DEVICE uint32_t ring()
    {
        return (shared_address(get()->rest) + RING_ALIGNMENT - 1) / RING_ALIGNMENT * RING_ALIGNMENT;
    }
    DEVICE float *received_sums(const slab_tiling &t, uint32_t set)
    {
        return reinterpret_cast<float *>(get()->rest + RING_ALIGNMENT + ring_bytes(t)) +
               set * sending_blocks(t) * K::COLUMNS;
    }
    DEVICE rotation *rotations(const slab_tiling &t, int set)
    {
        return reinterpret_cast<rotation *>(received_sums(t, 2)) + set * rotations_of(t);
    }
    DEVICE angle_step *angle_steps(const slab_tiling &t, int set)
    {
        return reinterpret_cast<angle_step *>(reinterpret_cast<char *>(rotations(t, t.sets)) +
                                              set * angle_step_bytes());
    }
    __device__ __forceinline__ bool fits(int slab) const
    {
        return (unfit[slab / 32] >> slab % 32 & 1) == 0;
    }
};

/* Waits at a slab's mbarrier, of an array of COUNT. */
template <int COUNT> DEVICE void wait_for_slab(const uint64_t (&mbarriers)[COUNT], int slab)
{
    mbarrier_wait(shared_address(&mbarriers[(uint32_t)slab % COUNT]), (uint32_t)slab / COUNT % 2);
}
template <int COUNT> DEVICE void arrive_for_slab(const uint64_t (&mbarriers)[COUNT], int slab)
{
    mbarrier_arrive(shared_address(&mbarriers[(uint32_t)slab % COUNT]));
}

} // namespace COPES_GPU::sequence

#endif
