/* Slabs whose elements the references did not suit, recomputed when all others are: each by three passes through memory,
 * for its largest elements, for its sums relative to those, and to write it. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_RECOMPUTE_H
#define COPES_BACKENDS_CUDA_SEQUENCE_RECOMPUTE_H

#include "backends/cuda/sequence/totals.h"
#include "backends/cuda/sequence/work.h"

namespace COPES_GPU::sequence
{

template <typename U> struct recomputation {
    typedef typename U::T T;
    const worker<U> w;
    block_memory<U> &memory;
    const bool has_tokens; /* the thread */
    slab_walk walk;
    uint64_t rounds = 0;
    open_columns<U> open;
    finished_columns<U> finished;

    __device__ __forceinline__ explicit recomputation(const worker<U> &w)
        : w(w), memory(*block_memory<U>::get()), has_tokens(threadIdx.x < U::THREADS), walk(w.walk())
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
        float all[U::N];
        if (U::SUMMED) {
            find_most();
            agree(all, [](float a, float b) { return fmaxf(a, b); });
        }
        float most[U::N];
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            most[i] = U::SUMMED ? all[i] : U::R == role::kept && has_tokens ? read_scalar(w.lse(walk, w.lane, i)) : 0;
            open.reference[i] = U::R == role::kept ? most[i] : shift_of(most[i]);
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
            float x[U::N];
            unpack16<T>(words, x);
#pragma unroll
            for (int i = 0; i < U::N; i++)
                open.sum[i] = fmaxf(open.sum[i], x[i]);
        });
    }
    __device__ __forceinline__ void find_sums()
    {
        fill(0);
        for_tokens([&](int token, const uint4 &words) {
            float g[2][U::V];
            read_gradient(token, g);
            open.template add<true>(words, g);
        });
    }
    __device__ __forceinline__ void fill(float value)
    {
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            open.sum[i] = value;
            open.dot[i] = 0;
        }
        open.beyond = 0;
    }
    /* Waits for all threads of all blocks that have the slab. */
    __device__ __forceinline__ void synchronize()
    {
        if constexpr (U::GROUPED)
            group_totals<U>(w).group_sync(&rounds);
        else
            cluster_sync();
    }
    /* What all blocks found of the thread's columns. */
    template <typename Merge> __device__ __forceinline__ void agree(float (&all)[U::N], Merge merge)
    {
        if (has_tokens)
            open.put(w, merge);
        __syncthreads();
        for_columns([&](int i) {
            float sum = memory.partial[0][i];
            for (int warp = 1; warp < U::WARPS; warp++)
                sum = merge(sum, memory.partial[warp][i]);
            *block_found(w.block.rank, i) = sum;
        });
        synchronize();
        for_columns([&](int i) {
            float sum = *block_found(0, i);
            for (int rank = 1; rank < w.tiling.ranks; rank++)
                sum = merge(sum, *block_found(rank, i));
            memory.partial[1][i] = sum;
        });
        __syncthreads();
#pragma unroll
        for (int i = 0; i < U::N; i++)
            all[i] = memory.partial[1][w.lane * U::N + i];
        synchronize();
    }
    template <typename Take> __device__ __forceinline__ void for_columns(Take take) const
    {
        for (int i = (int)threadIdx.x; i < U::COLUMNS; i += U::BLOCK)
            take(i);
    }
    /* What a block found of a column. */
    __device__ __forceinline__ float *block_found(int rank, int i) const
    {
        if constexpr (U::GROUPED)
            return group_totals<U>(w).block_found(rank, i);
        else
            return map_to_rank(&memory.partial[0][i], (uint32_t)rank);
    }
    __device__ __forceinline__ void finish(const float (&most)[U::N], const float (&all)[U::N])
    {
#pragma unroll
        for (int i = 0; i < U::N; i++) {
            finished.shift[i] = open.reference[i];
            finished.scale[i] = U::SUMMED ? 1 / all[i] : 1;
            finished.offset[i] = -all[i] * finished.scale[i] * finished.scale[i];
            if (U::R == role::forward && w.problem.lse.data != nullptr && w.first_token() == 0 && has_tokens)
                write_scalar(w.lse(walk, w.lane, i), most[i] + logf(all[i]));
        }
    }
    __device__ __forceinline__ T *of_token(const copes_view &view, int token) const
    {
        return w.unit(view, walk) + (int64_t)token * w.token_step() * view.stride[1];
    }
    __device__ __forceinline__ uint4 read_memory(const T *from) const
    {
        const uint2 a = *reinterpret_cast<const uint2 *>(from);
        const uint2 b = *reinterpret_cast<const uint2 *>(from + (U::C == coding::half ? w.problem.k : U::N / 2));
        return make_uint4(a.x, a.y, b.x, b.y);
    }
    template <typename Take> __device__ __forceinline__ void for_tokens(Take take) const
    {
        if (!has_tokens)
            return;
        const copes_view &view = U::BACKWARD ? w.problem.x : w.problem.src;
#pragma unroll 1
        for (int token = 0; token < w.tokens; token++)
            take(token, read_memory(of_token(view, token)));
    }
    /* With no table of rotations at hand. */
    __device__ __forceinline__ void find_rotations(int token, rotation (&rotations)[U::V]) const
    {
        const head_unit u = w.find(walk.pair, w.lane);
        const int32_t position = (int32_t)(w.problem.offset[0] + w.first_token() + token * w.token_step());
#pragma unroll 1
        for (int i = 0; i < U::V; i++) {
            const int64_t k = (int64_t)u.unit * U::V + i;
            const rotation here =
                rotation_at<true>(step_of(w.problem, u.head, k, dimension_of(w.problem, k)), position);
#pragma unroll
            for (int j = 0; j < U::V; j++) /* an index known only at run time would put them into memory */
                rotations[j] = j == i ? here : rotations[j];
        }
    }
    __device__ __forceinline__ void read_gradient(int token, float (&g)[2][U::V]) const
    {
        if constexpr (U::BACKWARD) {
            const T *from = of_token(w.problem.src, token);
            unpack16<T>(read_memory(from), g[0]);
            if (U::WIDE == 2)
                unpack16<T>(read_memory(from + w.problem.d), g[1]);
            if constexpr (U::ROTATED) {
                rotation rotations[U::V];
                find_rotations(token, rotations);
                decode<U::E>(g, rotations, true);
            }
        }
    }
    __device__ __forceinline__ void write(int token, const uint4 &words)
    {
        float x[2][U::V], g[2][U::V];
        unpack16<T>(words, x[0]);
        read_gradient(token, g);
        finished.template find<true>(x);
        if constexpr (U::BACKWARD)
            finished.template pass<false>(x, g);
        if constexpr (!U::BACKWARD && U::ROTATED) {
            rotation rotations[U::V];
            find_rotations(token, rotations);
            encode<U::E>(x, rotations, true);
        }
        write_token(w, of_token(w.problem.dst, token), x, true);
    }
};

} // namespace COPES_GPU::sequence

#endif
