/* The warp of each block that has no tokens: it makes what the others need for a slab, takes their sums, tells them to
 * the other blocks of the cluster, and finishes the slab's columns from what those tell. So no thread waits for all
 * others, and while one slab is agreed on the rest of the block goes on with the next. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_EXCHANGE_H
#define COPES_BACKENDS_CUDA_SEQUENCE_EXCHANGE_H

#include "backends/cuda/sequence_pieces.h"
#include "backends/cuda/sequence_sums.h"
#include "backends/cuda/sequence_turns.h"

namespace COPES_GPU
{

DEVICE float first_of(float found)
{
    return found;
}
DEVICE float first_of(float2 found)
{
    return found.x;
}
DEVICE float last_of(float found)
{
    return found;
}
DEVICE float last_of(float2 found)
{
    return found.y;
}

/* Merges what was found of a column in two places. */
template <typename Merge> DEVICE float merged(Merge merge, float a, float b)
{
    return merge(a, b);
}
template <typename Merge> DEVICE float2 merged(Merge merge, float2 a, float2 b)
{
    return {merge(a.x, b.x), merge(a.y, b.y)};
}

template <typename U> struct exchange {
    typedef typename U::T T;
    typedef typename block_memory<U>::found found;
    static constexpr int EACH = U::COLUMNS > 32 ? U::COLUMNS / 32 : 1; /* columns of a lane */
    const worker<U> w;
    block_memory<U> &memory;
    const int lane = (int)threadIdx.x % 32;
    slab_walk prepared, current;
    turn_set turns;
    uint32_t round = 0;

    __device__ __forceinline__ explicit exchange(const worker<U> &w)
        : w(w), memory(*block_memory<U>::get()), prepared(w.tiling), current(w.tiling)
    {
    }

    __device__ __forceinline__ void run()
    {
        prepare();
        prepare();
        for (; current.slab < w.count; current.next()) {
            if (!agree_on_sums<false>() && U::R != role::given)
                repeat();
            prepare();
        }
    }
    __device__ __forceinline__ void repeat()
    {
        if (!w.kept())
            agree_on_most();
        agree_on_sums<true>();
    }

    /* The next slab's references and turns. */
    __device__ __forceinline__ void prepare()
    {
        if (prepared.slab >= w.count)
            return;
        float *reference = memory.reference[prepared.slab % block_memory<U>::SETS];
        if (w.kept())
            take_lse(reference);
        else if (U::R != role::given)
            sample(reference);
        if (U::TURNED && turns.follow(prepared.pair))
            prepare_turns(w, prepared, turns.set);
        arrive(shared_address(&memory.prepared[prepared.slab % 2]));
        prepared.next();
    }
    __device__ __forceinline__ void take_lse(float *reference) const
    {
        for (int i = lane; i < U::COLUMNS; i += 32)
            reference[i] = read_scalar(w.lse(prepared, i / U::N, i % U::N)) * LOG2_E;
    }
    /* The largest elements of some tokens, the same in every block: of 16 or more, so that hardly ever another element of
     * normal data exceeds them by what a reference allows. */
    __device__ __forceinline__ void sample(float *reference) const
    {
        constexpr int AT_ONCE = 32 / U::LANES, ROUNDS = 16 / AT_ONCE > 1 ? 16 / AT_ONCE : 1;
        const int unit = lane % U::LANES;
        const int64_t apart = w.problem.n / (AT_ONCE * ROUNDS);
        const copes_view &view = U::BACKWARD ? w.problem.x : w.problem.src;
        const T *const head = w.head(view, prepared);
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const T *const from = head + w.feature(prepared.tile(), unit, part * U::N / 2);
            uint2 words[ROUNDS];
#pragma unroll
            for (int round = 0; round < ROUNDS; round++)
                words[round] = *reinterpret_cast<const uint2 *>(from + (lane / U::LANES + round * AT_ONCE) * apart *
                                                                           view.stride[1]);
            uint4 most = {words[0].x, words[0].y, words[0].x, words[0].y};
#pragma unroll
            for (int round = 1; round < ROUNDS; round++)
                most = larger16<T>(most, {words[round].x, words[round].y, words[round].x, words[round].y});
            keep(most, reference + unit * U::N + part * U::N / 2);
        }
    }
    /* The first half of a unit, of all lanes that have its columns. */
    __device__ __forceinline__ void keep(uint4 words, float *reference) const
    {
        float x[U::N];
        unpack16<T>(words, x);
#pragma unroll
        for (int i = 0; i < U::N / 2; i++) {
#pragma unroll
            for (int mask = 16; mask >= U::LANES; mask /= 2)
                x[i] = fmaxf(x[i], shuffle_xor(x[i], mask));
            reference[i] = fmaxf(x[i] * LOG2_E, LEAST);
        }
    }

    /* The lane's columns of this block's warps, merged. */
    template <typename Merge> __device__ __forceinline__ void merge_warps(Merge merge, found (&all)[EACH]) const
    {
        wait_for_block(shared_address(&memory.summed), round % 2);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i >= U::COLUMNS)
                continue;
            all[j] = memory.partial[0][i];
#pragma unroll
            for (int warp = 1; warp < U::WARPS; warp++)
                all[j] = merged(merge, all[j], memory.partial[warp][i]);
        }
    }
    /* Those of all blocks. Mailboxes alternate: a block sends its third message only when every other has read its
     * first, since each has to have sent its second by then. */
    template <typename Merge> __device__ __forceinline__ void merge_ranks(Merge merge, found (&all)[EACH]) const
    {
        const int ranks = w.tiling.ranks;
        const uint32_t mail = shared_address(&memory.mail[round % 2]);
        found *letters = block_memory<U>::ranks(w.tiling, round % 2);
        if (lane == 0)
            expect_mail(mail, ranks * U::COLUMNS * sizeof(found));
#pragma unroll
        for (int j = 0; j < EACH; j++)
            for (int rank = 0, i = lane + 32 * j; rank < ranks && i < U::COLUMNS; rank++)
                send(shared_address(letters + w.rank * U::COLUMNS + i), mail, rank, all[j]);
        wait_for_mail(mail, round / 2 % 2);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i >= U::COLUMNS)
                continue;
            all[j] = letters[i];
#pragma unroll 4
            for (int rank = 1; rank < ranks; rank++)
                all[j] = merged(merge, all[j], letters[rank * U::COLUMNS + i]);
        }
    }
    template <typename Merge> __device__ __forceinline__ void merge_all(Merge merge, found (&all)[EACH])
    {
        merge_warps(merge, all);
        if (w.tiling.ranks > 1)
            merge_ranks(merge, all);
        round++;
    }
    /* Lets the block see what was finished. */
    __device__ __forceinline__ void tell(bool again)
    {
        if (lane == 0)
            memory.repeat = again;
        arrive(shared_address(&memory.agreed));
    }
    __device__ __forceinline__ void agree_on_most()
    {
        found all[EACH];
        merge_all([](float a, float b) { return fmaxf(a, b); }, all);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (lane + 32 * j < U::COLUMNS)
                memory.finished[0][lane + 32 * j] = first_of(all[j]);
        tell(true);
    }
    /* False if they have to be taken again, exactly. */
    template <bool EXACT> __device__ __forceinline__ bool agree_on_sums()
    {
        found all[EACH];
        bool bad = false;
        merge_all([](float a, float b) { return a + b; }, all);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = lane + 32 * j;
            if (i >= U::COLUMNS)
                continue;
            const float reference = memory.reference[current.slab % block_memory<U>::SETS][i];
            bad = bad || fabsf(first_of(all[j])) == INFINITY || !(fabsf(reference) < WILD);
            finish<EXACT>(i, reference, all[j]);
        }
        const bool again = __any_sync(0xffffffffu, bad) && !EXACT && U::R != role::given;
        tell(again);
        return !again;
    }
    template <bool EXACT> __device__ __forceinline__ void finish(int i, float reference, found sums)
    {
        const float most = EXACT ? memory.finished[0][i] : reference;
        float shift = EXACT ? shift_of(most) : most, scale = U::R == role::given ? 1 : 1 / first_of(sums);
        float *lse = w.problem.lse.data == nullptr ? nullptr : w.lse(current, i / U::N, i % U::N);
        if (w.kept()) { /* a sum of 1, but for what rounding took from the logarithm */
            const float given = read_scalar(lse);
            shift = EXACT ? given : most;
            scale = EXACT ? 1 : exp2_term(-fmaf(given, LOG2_E, -most));
        }
        memory.finished[0][i] = shift;
        memory.finished[1][i] = scale;
        memory.finished[2][i] = last_of(sums) * scale * scale;
        if (U::R == role::forward && lse != nullptr && w.rank == 0)
            write_scalar(lse, EXACT ? most + logf(first_of(sums)) : (most + log2f(first_of(sums))) * (1 / LOG2_E));
    }
};

} // namespace COPES_GPU

#endif
