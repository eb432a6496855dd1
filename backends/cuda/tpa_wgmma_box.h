/* The cache on its way through shared memory as boxes: one thread asks for a stage's keys and values with a few copies,
 * which permute and fill up with zeros on their way. For 16-bit storage and rank 1.
 *
 * A stage has BOX_KEYS rows of bk and of bv in pieces of 64 features, and of ak and av in pieces of 32 heads. */
#ifndef COPES_BACKENDS_CUDA_TPA_WGMMA_BOX_H
#define COPES_BACKENDS_CUDA_TPA_WGMMA_BOX_H

#include "backends/cuda/tpa_cut.h"
#include "backends/cuda/wgmma.h"

namespace COPES_GPU
{

inline constexpr int BOX_KEYS = 64;                                                          /* of a stage */
inline constexpr int TILE_HEADS = 32;                                                        /* of a piece */
inline constexpr int FEATURE_PIECE = BOX_KEYS * 128, HEAD_PIECE = BOX_KEYS * TILE_HEADS * 2; /* bytes */
inline constexpr int MOST_SLOTS = 8;

inline constexpr int QUERY_PIECE = 64 * 128;                            /* of 64 rows */
template <int WIDTH> inline constexpr int FEATURE_ROW = WIDTH * 2 + 16; /* of a rank of bq */

/* The query's factors, aq (B, N, H, R) and bq (B, N, R, D): strides are in bytes. All that a block reads of its arguments
 * before it asks memory for them. */
struct query_source {
    const char *aq, *bq;
    int32_t aq_batch, aq_token, aq_head, aq_rank, bq_batch, bq_token, bq_rank;
    int32_t ranks, features, heads;
    score_scale scale;
    bool vectors; /* bq may be read in whole vectors */
};

/* Where a stage's parts begin, in bytes; keys are at 0. */
template <int WIDTH> struct stage_layout {
    static constexpr int FEATURES = WIDTH / 64 * FEATURE_PIECE, VALUES = FEATURES, KEY_HEADS = 2 * FEATURES;

    static __host__ __device__ constexpr int value_heads(int tiles)
    {
        return KEY_HEADS + tiles * HEAD_PIECE;
    }
    static __host__ __device__ constexpr int bytes(int tiles)
    {
        return KEY_HEADS + 2 * tiles * HEAD_PIECE;
    }
};

/* The cache as the copies see it: (features or heads, keys, batch entries). */
struct cache_maps {
    CUtensorMap ak, bk, av, bv;
};

/* The ring of stages, and its barriers: a stage is full, and empty again; and one of fewer keys has come. */
struct box_ring {
    uint32_t full, empty, partial, stages;
    int slots;
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

/* Starts to copy a stage, from `key` on; `barrier` learns when it is there. */
template <int WIDTH>
DEVICE void copy_stage(const cache_maps &maps, uint32_t stage, const block_task &task, int key, int tiles,
                       uint32_t barrier)
{
    typedef stage_layout<WIDTH> layout;
    const int b = (int)task.b, row = (int)task.begin + key;
    expect_mail(barrier, layout::bytes(tiles));
    for (int i = 0; i < WIDTH / 64; i++)
        copy_box(stage + i * FEATURE_PIECE, &maps.bk, i * 64, row, b, barrier);
    for (int i = 0; i < tiles; i++)
        copy_box(stage + layout::KEY_HEADS + i * HEAD_PIECE, &maps.ak, task.head + i * TILE_HEADS, row, b, barrier);
    for (int i = 0; i < tiles; i++)
        copy_box(stage + layout::value_heads(tiles) + i * HEAD_PIECE, &maps.av, task.head + i * TILE_HEADS, row, b,
                 barrier);
    for (int i = 0; i < WIDTH / 64; i++)
        copy_box(stage + layout::VALUES + i * FEATURE_PIECE, &maps.bv, i * 64, row, b, barrier);
}

/* Puts zeros where a stage's values and their coefficients are of no key of the block's: a weight of 0 would make no 0 of
 * an infinity. A warp's work. */
template <int WIDTH> DEVICE void clear_rest(uint32_t stage, int keys, int tiles)
{
    typedef stage_layout<WIDTH> layout;
    const uint4 zeros = make_uint4(0, 0, 0, 0);
    const auto clear = [=](uint32_t piece, int row) {
        for (int at = keys * row + threadIdx.x % 32 * 16; at < BOX_KEYS * row; at += 512)
            write_shared(piece + at, zeros);
    };
    for (int i = 0; i < WIDTH / 64; i++)
        clear(stage + layout::VALUES + i * FEATURE_PIECE, 128);
    for (int i = 0; i < tiles; i++)
        clear(stage + layout::value_heads(tiles) + i * HEAD_PIECE, TILE_HEADS * 2);
}

/* Fills stage after stage of the ring: the work of a warp. */
template <int WIDTH>
DEVICE void copy_boxes(const cache_maps &maps, const box_ring &ring, const block_task &task, int tiles)
{
    const bool first = threadIdx.x % 32 == 0;
    ring_place at = {0, 1}; /* of the phase before the first: every slot is empty */
    for (int key = 0; key < task.count; key += BOX_KEYS) {
        const uint32_t stage = ring.stages + at.slot * stage_layout<WIDTH>::bytes(tiles),
                       full = ring.full + at.slot * 8;
        const bool whole = task.count - key >= BOX_KEYS;
        if (key >= ring.slots * BOX_KEYS)
            await(ring.empty + at.slot * 8, at.parity);
        if (first)
            copy_stage<WIDTH>(maps, stage, task, key, tiles, whole ? full : ring.partial);
        if (!whole) { /* the last one */
            __syncwarp();
            await(ring.partial, 0);
            clear_rest<WIDTH>(stage, task.count - key, tiles);
            fence_shared();
        }
        if (!whole || !first) /* every lane arrives, as every lane may have cleared places */
            arrive(full);
        at.advance(1, ring.slots);
    }
}

} // namespace COPES_GPU

#endif
