/* Recomputes the slabs that their references or their fixed point did not suit, after all other slabs are written.
 * Each takes up to three passes through memory:
 *
 *   pass        finds                                    roles      agreements after it
 *   find_most   each column's largest element            forward    1
 *   find_sums   the sums relative to it, or to the lse   all        1
 *   write       the result                               all        0
 *
 * An agreement has two barriers over all blocks of the group. The first follows the writing of each block's values;
 * the second keeps a block from overwriting them before all have read them. Exchange warps pass the barriers too,
 * and have no tokens. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_RECOMPUTE_H
#define COPES_BACKENDS_CUDA_SEQUENCE_RECOMPUTE_H

#include "backends/cuda/sequence/totals.h"
#include "backends/cuda/sequence/work.h"

namespace COPES_GPU::sequence
{

template <typename K> struct recomputation {
    typedef typename K::T T;
    const worker<K> w;
    block_memory<K> &memory;
    const bool has_tokens; /* is it a token thread? */
    slab_walk walk;
    uint64_t arrivals = 0; /* that group_sync has waited for */
    open_columns<K> open;
    finished_columns<K> finished;

    __device__ __forceinline__ explicit recomputation(const worker<K> &w)
        : w(w), memory(*block_memory<K>::get()), has_tokens(threadIdx.x < K::THREADS), walk(w.walk())
    {
    }
    __device__ __forceinline__ void run()
    {
        for (; walk.slab < w.count; walk.next())
            if (!memory.fits(walk.slab))
                recompute();
    }
    __device__ __forceinline__ void recompute()
    {
        float all[K::N];
        if (!K::BACKWARD) {
            find_most();
            agree(all, [](float a, float b) { return fmaxf(a, b); });
        }
        float most[K::N];
#pragma unroll
        for (int i = 0; i < K::N; i++) {
            most[i] = !K::BACKWARD                       ? all[i]
                      : K::R == role::kept && has_tokens ? read_scalar(w.lse(walk, w.tile_unit, i))
                                                         : 0;
            open.reference[i] = K::R == role::kept ? most[i] : shift_of(most[i]);
        }
        find_sums();
        agree(all, [](float a, float b) { return a + b; });
        finish(most, all);
        for_tokens([&](int token, const uint4 &words) { write(token, words); });
    }
    __device__ __forceinline__ void find_most()
    {
        fill(-INFINITY);
        for_tokens([&](int, const uint4 &words) {
            float x[K::N];
            unpack16<T>(words, x);
#pragma unroll
            for (int i = 0; i < K::N; i++)
                open.sum[i] = fmaxf(open.sum[i], x[i]);
        });
    }
    __device__ __forceinline__ void find_sums()
    {
        fill(0);
        for_tokens([&](int token, const uint4 &words) {
            float g[2][K::V];
            read_gradient(token, g);
            open.template add<true>(words, g);
        });
    }
    __device__ __forceinline__ void fill(float value)
    {
#pragma unroll
        for (int i = 0; i < K::N; i++) {
            open.sum[i] = value;
            open.dot[i] = 0;
        }
        open.beyond = 0;
    }
    /* Waits for all threads of the group. */
    __device__ __forceinline__ void synchronize()
    {
        if constexpr (K::COOPERATIVE)
            group_totals<K>(w).group_sync(&arrivals);
        else
            cluster_sync();
    }
    /* Merges each thread's open.sum or open.dot over the whole group: its own columns of the result. */
    template <typename Merge> __device__ __forceinline__ void agree(float (&all)[K::N], Merge merge)
    {
        if (has_tokens)
            open.put(w, merge);
        __syncthreads();
        for_columns([&](int i) {
            float sum = memory.partial[0][i];
            for (int warp = 1; warp < K::WARPS; warp++)
                sum = merge(sum, memory.partial[warp][i]);
            *block_found(w.block.rank, i) = sum;
        });
        synchronize();
        for_columns([&](int i) {
            float sum = *block_found(0, i);
            for (int rank = 1; rank < w.tiling.blocks; rank++)
                sum = merge(sum, *block_found(rank, i));
            memory.partial[1][i] = sum;
        });
        __syncthreads();
#pragma unroll
        for (int i = 0; i < K::N; i++)
            all[i] = memory.partial[1][w.tile_unit * K::N + i];
        synchronize();
    }
    template <typename Take> __device__ __forceinline__ void for_columns(Take take) const
    {
        for (int i = (int)threadIdx.x; i < K::COLUMNS; i += K::BLOCK)
            take(i);
    }
    /* Where a block's value of a column is. */
    __device__ __forceinline__ float *block_found(int rank, int i) const
    {
        if constexpr (K::COOPERATIVE)
            return group_totals<K>(w).block_found(rank, i);
        else
            return map_to_rank(&memory.partial[0][i], (uint32_t)rank);
    }
    __device__ __forceinline__ void finish(const float (&most)[K::N], const float (&all)[K::N])
    {
#pragma unroll
        for (int i = 0; i < K::N; i++) {
            finished.shift[i] = open.reference[i];
            finished.scale[i] = !K::BACKWARD ? 1 / all[i] : 1;
            finished.offset[i] = -all[i] * finished.scale[i] * finished.scale[i];
            if (K::R == role::forward && w.problem.lse.data != nullptr && w.first_token() == 0 && has_tokens)
                write_scalar(w.lse(walk, w.tile_unit, i), most[i] + logf(all[i]));
        }
    }
    /* The thread's unit in one of its tokens. */
    __device__ __forceinline__ T *of_token(const copes_view &view, int token) const
    {
        return w.first_unit(view, walk) + (int64_t)token * w.token_stride() * view.stride[1];
    }
    __device__ __forceinline__ uint4 read_memory(const T *from) const
    {
        const uint2 a = *reinterpret_cast<const uint2 *>(from);
        const uint2 b = *reinterpret_cast<const uint2 *>(from + (K::C == coding::half ? w.problem.k : K::N / 2));
        return make_uint4(a.x, a.y, b.x, b.y);
    }
    template <typename Take> __device__ __forceinline__ void for_tokens(Take take) const
    {
        if (!has_tokens)
            return;
        const copes_view &view = K::BACKWARD ? w.problem.x : w.problem.src;
#pragma unroll 1
        for (int token = 0; token < w.tokens; token++)
            take(token, read_memory(of_token(view, token)));
    }
    /* From positions: the sets of rotations belong to other slabs by now. */
    __device__ __forceinline__ void find_rotations(int token, rotation (&rotations)[K::V]) const
    {
        const head_unit u = w.find(walk.tile, w.tile_unit);
        const int32_t position = (int32_t)(w.problem.offset[0] + w.first_token() + token * w.token_stride());
#pragma unroll 1
        for (int i = 0; i < K::V; i++) {
            const int64_t k = (int64_t)u.unit * K::V + i;
            const rotation here =
                rotation_at<true>(step_of(w.problem, u.head, k, dimension_of(w.problem, k)), position);
#pragma unroll
            for (int j = 0; j < K::V; j++) /* an index known only at run time would put the array into memory */
                rotations[j] = j == i ? here : rotations[j];
        }
    }
    __device__ __forceinline__ void read_gradient(int token, float (&g)[2][K::V]) const
    {
        if constexpr (K::BACKWARD) {
            const T *from = of_token(w.problem.src, token);
            unpack16<T>(read_memory(from), g[0]);
            if (K::GRADIENT_PIECES == 2)
                unpack16<T>(read_memory(from + w.problem.d), g[1]);
            if constexpr (K::ROTATED) {
                rotation rotations[K::V];
                find_rotations(token, rotations);
                decode<K::E>(g, rotations, true);
            }
        }
    }
    __device__ __forceinline__ void write(int token, const uint4 &words)
    {
        float x[2][K::V], g[2][K::V];
        unpack16<T>(words, x[0]);
        read_gradient(token, g);
        finished.template find<true>(x);
        if constexpr (K::BACKWARD)
            finished.template pass<false>(x, g);
        if constexpr (!K::BACKWARD && K::ROTATED) {
            rotation rotations[K::V];
            find_rotations(token, rotations);
            encode<K::E>(x, rotations, true);
        }
        write_token(w, of_token(w.problem.dst, token), x, true);
    }
};

} // namespace COPES_GPU::sequence

#endif
