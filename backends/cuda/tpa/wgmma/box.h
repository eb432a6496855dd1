/* The cache on its way through shared memory as boxes: one thread asks for a stage's keys and values with a few copies,
 * which permute and fill up with zeros on their way.
 *
 * A stage has BOX_KEYS keys, in two halves: rows of bk, in pieces of 128 bytes of features, and of ak, in pieces of 32 heads;
 * then the same of bv and av. A slot of the ring has a stage, or, in float32, a half. FLAT stages have keys and values of any
 * rank, the rows of one after those of another, and coefficients as they lie in memory. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_BOX_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_BOX_H

#include "backends/cuda/ptx/barrier.h"
#include "backends/cuda/ptx/copies.h"
#include "backends/cuda/ptx/mbarrier.h"
#include "backends/cuda/ptx/memory.h"
#include "backends/cuda/ptx/mma.h"
#include "backends/cuda/ptx/wgmma.h"
#include "backends/cuda/tpa/cut.h"
#include "backends/cuda/tpa/parts.h"

namespace COPES_GPU::tpa::wgmma
{

using namespace ptx;

inline constexpr int BOX_KEYS = 64;                  /* of a stage */
inline constexpr int TILE_HEADS = 32;                /* of a piece */
inline constexpr int FEATURE_PIECE = BOX_KEYS * 128; /* bytes */
inline constexpr int MOST_SLOTS = 8;

template <typename T> inline constexpr int SLOTS_OF_STAGE = is_single<T> ? 2 : 1;
template <typename T> inline constexpr int HEAD_ROW = TILE_HEADS * (int)sizeof(T);
template <typename T> inline constexpr int HEAD_PIECE = BOX_KEYS * HEAD_ROW<T>;

/* Where a slot's parts begin, in bytes; its first half is at 0. */
template <typename T, int WIDTH, bool FLAT> struct stage_layout {
    static constexpr int PIECES = WIDTH * (int)sizeof(T) / 128,
                         RANK = PIECES * FEATURE_PIECE; /* of the rows of a rank */
    int tiles;
    int ranks, row; /* FLAT: the most ranks of a half, and bytes of a key's coefficients of as many */

    /* Where a half's coefficients begin. */
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

/* The cache as the copies see it: (features or heads, ranks, keys, batch entries). */
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

/* The ring of slots, and its barriers: a slot is full, and empty again; and one of fewer keys has come. */
struct box_ring {
    uint32_t full, empty, partial, stages;
    int slots, bytes; /* of a slot */

    __device__ __forceinline__ uint32_t stage(int slot) const
    {
        return stages + slot * bytes;
    }
};

/* A turn through the ring. */
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

/* A warp that reads slot after slot. */
struct slot_reader {
    const box_ring &ring;
    ring_place at;

    /* Waits until the slot is full. */
    __device__ __forceinline__ uint32_t enter() const
    {
        mbarrier_wait(ring.full + at.slot * 8, at.parity);
        return ring.stage(at.slot);
    }

    /* Leaves it to be filled again, and goes on by so many. */
    __device__ __forceinline__ void leave(int by)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(ring.empty + at.slot * 8);
        at.advance(by, ring.slots);
    }
};

/* Where keys or values come from. FLAT: their ranks, and the block's coefficients, which lie there in one piece, so many
 * bytes a key. */
struct half_source {
    const CUtensorMap *features, *heads;
    int ranks, row;
    const char *coefficients;
};

/* The cache of a block, on its way through a ring: the work of a warp. */
template <typename T, int WIDTH, bool FLAT> struct box_producer {
    typedef stage_layout<T, WIDTH, FLAT> stage_shape;
    const box_ring &ring;
    const block_task &task;
    const stage_shape layout;
    const half_source keys, values;

    /* Bytes of a half that copies bring, of `count` keys. */
    __device__ __forceinline__ int bytes(const half_source &from, int count) const
    {
        return FLAT ? from.ranks * layout.RANK + (count * from.row & ~15) : layout.half();
    }

    /* Starts to copy the half of a stage from `key` on, of which `count` keys are the block's; `barrier` is told when it is
     * there. */
    __device__ __forceinline__ void copy_half(const half_source &from, uint32_t half, int key, int count,
                                              uint32_t barrier) const
    {
        const int row = (int)task.begin + key, b = (int)task.b;
#pragma unroll 1 /* short code comes sooner */
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

    /* Starts to fill a slot with a stage from `key` on, or with its half `half`. */
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

    /* Copies of a half's coefficients what is no whole 16 bytes, which is less than a key has. The first lane has arrived. */
    __device__ __forceinline__ void copy_rest(const half_source &from, uint32_t half, int key, int count) const
    {
        const int at = (count * from.row & ~15) + (int)(threadIdx.x % 32 - 1) * 4;
        const char *first = from.coefficients + (int64_t)key * from.row;
        if (threadIdx.x % 32 > 0 && at < count * from.row)
            st_shared_32(half + layout.heads() + at, *reinterpret_cast<const uint32_t *>(first + at));
    }

    /* Puts zeros where values and their coefficients, a half of a stage, are of no key of the block's: a weight of 0 would
     * make no 0 of an infinity. */
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

    /* Fills slot after slot of the ring. */
    __device__ __forceinline__ void run() const
    {
        constexpr int slots = SLOTS_OF_STAGE<T>;
        const bool first = threadIdx.x % 32 == 0;
        ring_place at = {0, 1}; /* of the phase before the first: every slot is empty */
        for (int i = 0; i / slots * BOX_KEYS < task.count; i++) {
            const int key = i / slots * BOX_KEYS, half = i % slots, left = task.count - key;
            const int count = left < BOX_KEYS ? left : BOX_KEYS;
            const uint32_t slot = ring.stage(at.slot), full = ring.full + at.slot * 8;
            const bool whole = count == BOX_KEYS || half + 1 < slots;
            if (i >= ring.slots)
                mbarrier_wait(ring.empty + at.slot * 8, at.parity);
            if (first)
                copy_slot(slot, key, half, count, whole ? full : ring.partial);
            if (FLAT && count < BOX_KEYS)
                copy_rest(half == 0 ? keys : values, slot, key, count);
            if (!whole) { /* the last one */
                __syncwarp();
                mbarrier_wait(ring.partial, 0);
                clear_rest(slot + ring.bytes - layout.half(), count);
                fence_proxy_async();
            }
            if (!whole || !first) /* every lane arrives, as every lane may have cleared places */
                mbarrier_arrive(full);
            at.advance(1, ring.slots);
        }
    }
};

} // namespace COPES_GPU::tpa::wgmma

#endif
