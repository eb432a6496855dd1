/* The stages of tpa_wgmma. One thread asks for a stage with a few bulk copies of boxes (tensor maps). The copies
 * permute chunks and fill places outside of a tensor with zeros.
 * A stage has BOX_KEYS keys in two halves, keys and values. A slot of the ring holds a stage, or in float32 a half.
 *   half     features                                     coefficients, after them
 *   keys     bk: pieces of 64 rows of 128 bytes           ak: pieces of 64 rows of 32 heads
 *   values   bv: the same                                 av: the same
 * FLAT halves have any ranks: the pieces of one rank come after those of another, and coefficients lie as in memory. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_BOX_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_BOX_H

#include "backends/cuda/ptx/barrier.h"
#include "backends/cuda/ptx/copies.h"
#include "backends/cuda/ptx/mbarrier.h"
#include "backends/cuda/ptx/memory.h"
#include "backends/cuda/ptx/mma.h"
#include "backends/cuda/ptx/wgmma.h"
#include "backends/cuda/tpa/cut.h"
#include "backends/cuda/tpa/slices.h"

namespace COPES_GPU::tpa::wgmma
{

using namespace ptx;

inline constexpr int BOX_KEYS = 64;                  /* of a stage */
inline constexpr int TILE_HEADS = 32;                /* of a piece */
inline constexpr int FEATURE_PIECE = BOX_KEYS * 128; /* bytes */
inline constexpr int MOST_SLOTS = 8;

template <typename T> inline constexpr int SLOTS_OF_STAGE = is_f32<T> ? 2 : 1;
template <typename T> inline constexpr int HEAD_ROW = TILE_HEADS * (int)sizeof(T);
template <typename T> inline constexpr int HEAD_PIECE = BOX_KEYS * HEAD_ROW<T>;

/* The offsets of a slot's contents, in bytes. Its first half is at 0. */
template <typename T, int WIDTH, bool FLAT> struct stage_layout {
    static constexpr int PIECES = WIDTH * (int)sizeof(T) / 128,
                         RANK = PIECES * FEATURE_PIECE; /* bytes of the features of a rank */
    int tiles;
    int ranks,
        row; /* FLAT: the ranks of the half that has more, and the bytes of a key's coefficients of these ranks */

    /* The offset of the coefficients in a half. */
    __host__ __device__ constexpr int heads() const
    {
        return FLAT ? ranks * RANK : RANK;
    }
    __host__ __device__ constexpr int half() const
    {
        return heads() + (FLAT ? (BOX_KEYS * row + 1023) / 1024 * 1024 : tiles * HEAD_PIECE<T>);
    }
    __host__ __device__ constexpr int slot() const
    {
        return 2 / SLOTS_OF_STAGE<T> * half();
    }
};

/* Tensor maps of the cache, with axes (features or heads, ranks, keys, batch entries). */
struct cache_maps {
    CUtensorMap ak, bk, av, bv;
};

template <bool FLAT> DEVICE void prefetch_maps(const cache_maps &maps)
{
    prefetch_tensormap(&maps.bk);
    if (!FLAT) {
        prefetch_tensormap(&maps.ak);
        prefetch_tensormap(&maps.av);
    }
    prefetch_tensormap(&maps.bv);
}

/* The ring of slots and its mbarriers. Each slot has a `full` and an `empty`. `tail` is for the last slot, if its
 * stage has keys that are not the block's. (Of the two slots of such a stage in float32 only that of the values is a
 * tail.)
 *
 *   mbarrier  arrivals   who arrives                      bytes          who waits               what the wait protects
 *   full      32         the producer's lanes; lane 0     of the slot,   consumers of the        reading the slot
 *                        expects the bytes                not of a tail  slot's stage
 *   empty     4 tiles    lane 0 of each consumer warp,    none           the producer's lanes    filling the slot again
 *                        after its warp has read
 *   tail      1          lane 0 of the producer, which    of the tail    the producer's lanes    clearing keys that are
 *                        expects the bytes                                                       not the block's
 *
 * Filling i of a slot ends phase i of `full`, and its reading i ends phase i of `empty`. Phase i has parity i % 2. A
 * reading waits for its phase of `full`. A filling waits for the phase of `empty` before its own, and the first for
 * nothing: the producer's parity starts at 1. Both sides flip theirs when they pass the end of the ring
 * (ring_place). `tail` has one phase, of parity 0.
 *
 * All lanes of the producer arrive at `full`, because all may have written to the slot (copy_rest, clear_rest). With
 * one tile the consumers of a stage are one group of 4 warps, with two tiles both groups. */
struct box_ring {
    uint32_t full, empty, tail, stages;
    int slots, bytes; /* of a slot */

    __device__ __forceinline__ uint32_t stage(int slot) const
    {
        return stages + slot * bytes;
    }
};

/* A place in the ring: a slot, and the parity of the phase to wait for. */
struct ring_place {
    int slot;
    uint32_t parity;

    __device__ __forceinline__ void advance(int by, int slots)
    {
        slot += by;
        if (slot >= slots)
            slot -= slots, parity ^= 1;
    }
};

/* A consumer warp, which reads slot after slot. */
struct slot_reader {
    const box_ring &ring;
    ring_place at;

    /* Waits until the slot is full. Returns its address. */
    __device__ __forceinline__ uint32_t enter() const
    {
        mbarrier_wait(ring.full + at.slot * 8, at.parity);
        return ring.stage(at.slot);
    }

    /* Leaves the slot to the producer, and goes on by `by` slots. */
    __device__ __forceinline__ void leave(int by)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(ring.empty + at.slot * 8);
        at.advance(by, ring.slots);
    }
};

/* The source of keys or values. FLAT: their ranks, the bytes of a key's coefficients, and the block's first
 * coefficients, which are contiguous. */
struct half_source {
    const CUtensorMap *features, *heads;
    int ranks, row;
    const char *coefficients;
};

/* The producer warp, which copies a block's keys and values to the ring. */
template <typename T, int WIDTH, bool FLAT> struct box_producer {
    typedef stage_layout<T, WIDTH, FLAT> stage_shape;
    const box_ring &ring;
    const block_task &task;
    const stage_shape layout;
    const half_source keys, values;

    /* The bytes that bulk copies bring of a half, of `count` keys. Bulk copies are of whole 16 bytes. */
    __device__ __forceinline__ int bytes(const half_source &from, int count) const
    {
        return FLAT ? from.ranks * layout.RANK + (count * from.row & ~15) : layout.half();
    }

    /* Starts to copy a half of the stage from `key` on. `count` of its keys are the block's. `barrier` counts the
     * bytes that have landed. */
    __device__ __forceinline__ void copy_half(const half_source &from, uint32_t half, int key, int count,
                                              uint32_t barrier) const
    {
        const int row = (int)task.begin + key, b = (int)task.b;
#pragma unroll 1 /* short code is fetched sooner */
        for (int i = 0; i < layout.PIECES; i++)
#pragma unroll 1
            for (int rank = 0; rank < (FLAT ? from.ranks : 1); rank++)
                cp_async_bulk_tensor(half + rank * layout.RANK + i * FEATURE_PIECE, from.features,
                                     {i * (128 / (int)sizeof(T)), rank, row, b}, barrier);
        if (FLAT && count * from.row > 15)
            cp_async_bulk(half + layout.heads(), from.coefficients + (int64_t)key * from.row, count * from.row & ~15,
                          barrier);
#pragma unroll 1
        for (int i = 0; i < (FLAT ? 0 : layout.tiles); i++)
            cp_async_bulk_tensor(half + layout.heads() + i * HEAD_PIECE<T>, from.heads,
                                 {task.head + i * TILE_HEADS, 0, row, b}, barrier);
    }

    /* Starts to fill a slot with the stage from `key` on, or with its half `half`. Arrives at `barrier`. */
    __device__ __forceinline__ void copy_slot(uint32_t slot, int key, int half, int count, uint32_t barrier) const
    {
        if (SLOTS_OF_STAGE<T> == 1)
            mbarrier_arrive_expect_tx(barrier, layout.slot());
        else
            mbarrier_arrive_expect_tx(barrier, bytes(half == 0 ? keys : values, count));
        if (half == 0)
            copy_half(keys, slot, key, count, barrier);
        if (half == 1 || SLOTS_OF_STAGE<T> == 1)
            copy_half(values, slot + layout.slot() - layout.half(), key, count, barrier);
    }

    /* Copies the coefficients that are no whole 16 bytes, less than a key has. Lane 0 may have arrived at `full`
     * already, so the other lanes copy. */
    __device__ __forceinline__ void copy_rest(const half_source &from, uint32_t half, int key, int count) const
    {
        const int at = (count * from.row & ~15) + (int)(threadIdx.x % 32 - 1) * 4;
        const char *first = from.coefficients + (int64_t)key * from.row;
        if (threadIdx.x % 32 > 0 && at < count * from.row)
            st_shared_32(half + layout.heads() + at, *reinterpret_cast<const uint32_t *>(first + at));
    }

    /* Clears values and their coefficients of keys that are not the block's. Their weights are 0, and 0 times an
     * infinity would be NaN. */
    __device__ __forceinline__ void clear_rest(uint32_t half, int count) const
    {
        const int lane = threadIdx.x % 32, ranks = FLAT ? values.ranks : 1;
        const auto clear = [=](uint32_t piece, int row) {
            for (int at = count * row + lane * 16; at < BOX_KEYS * row; at += 512)
                st_shared_128(piece + at, make_uint4(0, 0, 0, 0));
        };
        for (int i = 0; i < ranks * layout.PIECES; i++)
            clear(half + i * FEATURE_PIECE, 128);
        for (int i = 0; i < (FLAT ? 0 : layout.tiles); i++)
            clear(half + layout.heads() + i * HEAD_PIECE<T>, HEAD_ROW<T>);
        if (FLAT)
            for (int at = count * values.row + lane * 4; at < BOX_KEYS * values.row; at += 128)
                st_shared_32(half + layout.heads() + at, 0);
    }

    /* Fills slot after slot. */
    __device__ __forceinline__ void run() const
    {
        constexpr int slots = SLOTS_OF_STAGE<T>;
        const bool first = threadIdx.x % 32 == 0;
        ring_place at = {0, 1}; /* the phase before the first */
        for (int i = 0; i / slots * BOX_KEYS < task.count; i++) {
            const int key = i / slots * BOX_KEYS, half = i % slots, left = task.count - key;
            const int count = left < BOX_KEYS ? left : BOX_KEYS;
            const uint32_t slot = ring.stage(at.slot), full = ring.full + at.slot * 8;
            const bool whole = count == BOX_KEYS || half + 1 < slots;
            if (i >= ring.slots)
                mbarrier_wait(ring.empty + at.slot * 8, at.parity);
            if (first)
                copy_slot(slot, key, half, count, whole ? full : ring.tail);
            if (FLAT && count < BOX_KEYS)
                copy_rest(half == 0 ? keys : values, slot, key, count);
            if (!whole) { /* the tail */
                __syncwarp();
                mbarrier_wait(ring.tail, 0);
                clear_rest(slot + ring.bytes - layout.half(), count);
                fence_proxy_async();
            }
            if (!whole || !first) /* lane 0 has arrived in copy_slot, but for a tail */
                mbarrier_arrive(full);
            at.advance(1, ring.slots);
        }
    }
};

} // namespace COPES_GPU::tpa::wgmma

#endif
