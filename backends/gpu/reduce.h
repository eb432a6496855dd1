/* Sums and maxima over threads, always in the same order. */
#ifndef COPES_BACKENDS_GPU_REDUCE_H
#define COPES_BACKENDS_GPU_REDUCE_H

#include "vendor.h"

namespace COPES_GPU
{

template <int LANES, typename Combine> DEVICE float reduce_lanes(float value, Combine combine)
{
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2)
        value = combine(value, shuffle_xor(value, mask));
    return value;
}

/* Reduces over `lanes` neighbouring lanes, a power of two up to 32, the same for all threads. All lanes get the result.
 * The usual numbers have no branch between shuffles, which would cost as much as a shuffle. */
template <typename Combine> DEVICE float reduce_lanes(float value, int lanes, Combine combine)
{
    if (lanes == 8)
        return reduce_lanes<8>(value, combine);
    if (lanes == 16)
        return reduce_lanes<16>(value, combine);
    if (lanes == 32)
        return reduce_lanes<32>(value, combine);
    for (int mask = lanes / 2; mask > 0; mask /= 2)
        value = combine(value, shuffle_xor(value, mask));
    return value;
}

/* Sums of COUNT numbers each, whose shuffles do not wait for each other. */
template <int LANES, int COUNT> DEVICE void sums_of_lanes(float (&value)[COUNT])
{
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) {
        float other[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            other[i] = shuffle_xor(value[i], mask);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            value[i] += other[i];
    }
}

/* The same by a loop, which takes a kernel that waits for memory fewer instructions. */
template <int COUNT> DEVICE void sums_by_loop(float (&value)[COUNT], int lanes)
{
#pragma unroll 1
    for (int mask = lanes / 2; mask > 0; mask /= 2)
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            value[i] += shuffle_xor(value[i], mask);
}

template <int COUNT> DEVICE void sums_of_lanes(float (&value)[COUNT], int lanes)
{
    if (lanes == 8)
        return sums_of_lanes<8>(value);
    if (lanes == 16)
        return sums_of_lanes<16>(value);
    if (lanes == 32)
        return sums_of_lanes<32>(value);
    if (lanes == 4)
        return sums_of_lanes<4>(value);
    sums_by_loop(value, lanes);
}

DEVICE float sum_of_lanes(float value, int lanes)
{
    return reduce_lanes(value, lanes, [](float a, float b) { return a + b; });
}

DEVICE float max_of_lanes(float value, int lanes)
{
    return reduce_lanes(value, lanes, [](float a, float b) { return fmaxf(a, b); });
}

/* A sum that keeps what its additions round away (Kahan). */
struct long_sum {
    float sum = 0, lost = 0;

    __device__ __forceinline__ void add(float term)
    {
        const float corrected = term - lost, next = sum + corrected;
        lost = (next - sum) - corrected;
        sum = next;
    }
    __device__ __forceinline__ void scale(float factor)
    {
        sum *= factor;
        lost *= factor;
    }
};

/* Sums of a thread in memory, where it has no registers for them. */
struct kept_sums {
    long_sum *own;
    int step; /* from one to the next */

    /* In its block's shared memory. Threads' sums are an odd number apart, so that there are no bank conflicts. */
    __device__ __forceinline__ kept_sums(char *memory, int thread, int count)
        : own(reinterpret_cast<long_sum *>(memory) + thread * (count | 1)), step(1)
    {
    }
    /* In its block's part of a workspace, where neighbouring threads' lie side by side. */
    __device__ __forceinline__ kept_sums(long_sum *memory, int thread, int count, int threads)
        : own(memory + (int64_t)blockIdx.x * count * threads + thread), step(threads)
    {
    }
    static int64_t bytes(int threads, int count)
    {
        return (int64_t)threads * (count | 1) * (int64_t)sizeof(long_sum);
    }
    /* Sums first .. first + COUNT - 1. */
    template <int COUNT> __device__ __forceinline__ void clear(int first) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            own[(first + i) * step] = long_sum();
    }
    __device__ __forceinline__ void add(int i, float term) const
    {
        long_sum sum = own[i * step];
        sum.add(term);
        own[i * step] = sum;
    }
    __device__ __forceinline__ float sum_of(int i) const
    {
        return own[i * step].sum;
    }
    /* The sum with one more term, which is not kept. */
    __device__ __forceinline__ float sum_with(int i, float term) const
    {
        long_sum sum = own[i * step];
        sum.add(term);
        return sum.sum;
    }
};

/* The same for COUNT sums in a thread's registers. */
template <int COUNT> struct held_sums {
    long_sum sum[COUNT];

    __device__ __forceinline__ held_sums(char *, int, int) : sum()
    {
    }
    template <int> __device__ __forceinline__ void clear(int) const
    {
    }
    __device__ __forceinline__ void add(int i, float term)
    {
        sum[i].add(term);
    }
    __device__ __forceinline__ float sum_of(int i) const
    {
        return sum[i].sum;
    }
};

/* The sum of the numbers at `from`, `apart` from each other, that are first, first + step, .. of `count`. Some are read before
 * the first is added: reading one by one would wait for each. */
DEVICE long_sum sum_of_slots(const float *from, int64_t apart, uint32_t first, uint32_t step, uint32_t count)
{
    constexpr uint32_t TOGETHER = 12;
    long_sum sum;
    for (; first < count; first += TOGETHER * step) {
        float term[TOGETHER];
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; i++)
            term[i] = first + i * step < count ? from[(first + i * step) * apart] : 0;
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; i++)
            sum.add(term[i]);
    }
    return sum;
}

/* The sums of LANES columns over a block's THREADS threads, of which thread i has a part of column i % LANES. Every thread must call
 * it, and gets its column's. */
template <int LANES, int THREADS> DEVICE float sum_of_columns(float sum)
{
    constexpr int TEAM = 32; /* threads that add up by shuffles */
    __shared__ float sums[THREADS / TEAM][LANES];
    const int lane = (int)threadIdx.x % LANES;
#pragma unroll
    for (int mask = LANES; mask < TEAM; mask *= 2)
        sum += shuffle_xor(sum, mask);
    if (threadIdx.x % TEAM < LANES)
        sums[threadIdx.x / TEAM][lane] = sum;
    __syncthreads();
    float total = 0;
#pragma unroll
    for (int i = 0; i < THREADS / TEAM; i++)
        total += sums[i][lane];
    return total;
}

/* Reduces over a block of 32, 64 .. 1024 threads. `memory` is shared and has a float for every 32 of them; `none` changes nothing that
 * it is combined with. All threads get the result. */
template <typename Combine> DEVICE float reduce_block(float value, float none, float *memory, Combine combine)
{
    constexpr int TEAM = 32; /* threads that reduce by shuffles */
    const int thread = (int)threadIdx.x, place = thread % TEAM;
    value = reduce_lanes<TEAM>(value, combine);
    __syncthreads();
    if (place == 0)
        memory[thread / TEAM] = value;
    __syncthreads();
    return reduce_lanes<TEAM>(place < (int)blockDim.x / TEAM ? memory[place] : none, combine);
}

DEVICE float sum_of_block(float value, float *memory)
{
    return reduce_block(value, 0, memory, [](float a, float b) { return a + b; });
}

DEVICE float max_of_block(float value, float *memory)
{
    return reduce_block(value, -INFINITY, memory, [](float a, float b) { return fmaxf(a, b); });
}

} // namespace COPES_GPU

#endif
