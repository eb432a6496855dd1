/* The cache on its way through shared memory as boxes: one thread asks for a stage's keys and values with a few copies,
 * which permute and fill up with zeros on their way. For rank 1.
 *
 * A stage has BOX_KEYS keys, in two halves: rows of bk, in pieces of 128 bytes of features, and of ak, in pieces of 32 heads;
 * then the same of bv and av. A slot of the ring has a stage, or, in float32, a half. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_BOX_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_BOX_H

#include "backends/cuda/tpa_cut.h"
#include "backends/cuda/tpa_parts.h"
#include "backends/cuda/wgmma.h"

namespace COPES_GPU
{

inline constexpr int BOX_KEYS = 64;                  /* of a stage */
inline constexpr int TILE_HEADS = 32;                /* of a piece */
inline constexpr int FEATURE_PIECE = BOX_KEYS * 128; /* bytes */
inline constexpr int MOST_SLOTS = 8;

template <typename T> inline constexpr int SLOTS_OF_STAGE = is_single<T> ? 2 : 1;
template <typename T> inline constexpr int HEAD_ROW = TILE_HEADS * (int)sizeof(T);
template <typename T> inline constexpr int HEAD_PIECE = BOX_KEYS * HEAD_ROW<T>;

/* Where a slot's parts begin, in bytes; its first half is at 0. */
template <typename T, int WIDTH> struct stage_layout {
    static constexpr int PIECES = WIDTH * (int)sizeof(T) / 128, HEADS = PIECES * FEATURE_PIECE; /* of a half */

    static __host__ __device__ constexpr int half(int tiles)
    {
        return HEADS + tiles * HEAD_PIECE<T>;
    }
    static __host__ __device__ constexpr int slot(int tiles)
    {
        return 2 / SLOTS_OF_STAGE<T> * half(tiles);
    }
};

/* The cache as the copies see it: (features or heads, keys, batch entries). */
struct cache_maps {
    CUtensorMap ak, bk, av, bv;
};

DEVICE void prefetch_maps(const cache_maps &maps)
{
    prefetch_map(&maps.bk);
    prefetch_map(&maps.ak);
    prefetch_map(&maps.av);
    prefetch_map(&maps.bv);
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
        await(ring.full + at.slot * 8, at.parity);
        return ring.stage(at.slot);
    }

    /* Leaves it to be filled again, and goes on by so many. */
    __device__ __forceinline__ void leave(int by)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            arrive(ring.empty + at.slot * 8);
        at.advance(by, ring.slots);
    }
};

/* Where a half of a stage comes from: keys from `row` on, of a batch entry, and heads from `head` on. */
struct half_source {
    const CUtensorMap *features, *heads;
    int head, row, b;
};

/* Starts to copy one; `barrier` is told when it is there. */
template <typename T, int WIDTH>
DEVICE void copy_half(const half_source &from, uint32_t half, int tiles, uint32_t barrier)
{
    typedef stage_layout<T, WIDTH> layout;
#pragma unroll 1 /* short code comes sooner */
    for (int i = 0; i < layout::PIECES; i++)
        copy_box(half + i * FEATURE_PIECE, from.features, i * (128 / (int)sizeof(T)), from.row, from.b, barrier);
#pragma unroll 1
    for (int i = 0; i < tiles; i++)
        copy_box(half + layout::HEADS + i * HEAD_PIECE<T>, from.heads, from.head + i * TILE_HEADS, from.row, from.b,
                 barrier);
}

/* Starts to fill a slot with a stage from `key` on, or with its half `half`; `barrier` learns when it is there. */
template <typename T, int WIDTH>
DEVICE void copy_slot(const cache_maps &maps, uint32_t slot, const block_task &task, int key, int half, int tiles,
                      uint32_t barrier)
{
    typedef stage_layout<T, WIDTH> layout;
    const int b = (int)task.b, row = (int)task.begin + key;
    expect_mail(barrier, layout::slot(tiles));
    if (half == 0)
        copy_half<T, WIDTH>({&maps.bk, &maps.ak, task.head, row, b}, slot, tiles, barrier);
    if (half == 1 || SLOTS_OF_STAGE<T> == 1)
        copy_half<T, WIDTH>({&maps.bv, &maps.av, task.head, row, b}, slot + layout::slot(tiles) - layout::half(tiles),
                            tiles, barrier);
}

/* Puts zeros where values and their coefficients, a half of a stage, are of no key of the block's: a weight of 0 would make
 * no 0 of an infinity. A warp's work. */
template <typename T, int WIDTH> DEVICE void clear_rest(uint32_t values, int keys, int tiles)
{
    typedef stage_layout<T, WIDTH> layout;
    const uint4 zeros = make_uint4(0, 0, 0, 0);
    const auto clear = [=](uint32_t piece, int row) {
        for (int at = keys * row + threadIdx.x % 32 * 16; at < BOX_KEYS * row; at += 512)
            write_shared(piece + at, zeros);
    };
    for (int i = 0; i < layout::PIECES; i++)
        clear(values + i * FEATURE_PIECE, 128);
    for (int i = 0; i < tiles; i++)
        clear(values + layout::HEADS + i * HEAD_PIECE<T>, HEAD_ROW<T>);
}

/* Fills slot after slot of the ring: the work of a warp. */
template <typename T, int WIDTH>
DEVICE void copy_boxes(const cache_maps &maps, const box_ring &ring, const block_task &task, int tiles)
{
    constexpr int slots = SLOTS_OF_STAGE<T>;
    const int half_bytes = stage_layout<T, WIDTH>::half(tiles);
    const bool first = threadIdx.x % 32 == 0;
    ring_place at = {0, 1}; /* of the phase before the first: every slot is empty */
    for (int i = 0; i / slots * BOX_KEYS < task.count; i++) {
        const int key = i / slots * BOX_KEYS, half = i % slots;
        const uint32_t slot = ring.stage(at.slot), full = ring.full + at.slot * 8;
        const bool whole = task.count - key >= BOX_KEYS || half + 1 < slots;
        if (i >= ring.slots)
            await(ring.empty + at.slot * 8, at.parity);
        if (first)
            copy_slot<T, WIDTH>(maps, slot, task, key, half, tiles, whole ? full : ring.partial);
        if (!whole) { /* the last one */
            __syncwarp();
            await(ring.partial, 0);
            clear_rest<T, WIDTH>(slot + ring.bytes - half_bytes, task.count - key, tiles);
            fence_shared();
        }
        if (!whole || !first) /* every lane arrives, as every lane may have cleared places */
            arrive(full);
        at.advance(1, ring.slots);
    }
}

} // namespace COPES_GPU

#endif
