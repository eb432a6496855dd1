/* Sums and maxima over threads, in an order that is the same every time. */
#ifndef COPES_BACKENDS_GPU_REDUCE_H
#define COPES_BACKENDS_GPU_REDUCE_H

#include "vendor.h"

namespace COPES_GPU
{

/* Over `lanes` neighbours, a power of two up to 32; all get the result. */
DEVICE float sum_of_lanes(float value, int lanes)
{
    for (int mask = lanes / 2; mask > 0; mask /= 2)
        value += shuffle_xor(value, mask);
    return value;
}

DEVICE float max_of_lanes(float value, int lanes)
{
    for (int mask = lanes / 2; mask > 0; mask /= 2)
        value = fmaxf(value, shuffle_xor(value, mask));
    return value;
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

/* Over a block of a power of two of threads, through `memory` of one float a thread; all get the result. */
template <typename Combine> DEVICE float reduce_block(float value, float *memory, Combine combine)
{
    const int thread = (int)threadIdx.x;
    __syncthreads();
    memory[thread] = value;
    for (int half = (int)blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half)
            memory[thread] = combine(memory[thread], memory[thread + half]);
    }
    __syncthreads();
    return memory[0];
}

DEVICE float sum_of_block(float value, float *memory)
{
    return reduce_block(value, memory, [](float a, float b) { return a + b; });
}

DEVICE float max_of_block(float value, float *memory)
{
    return reduce_block(value, memory, [](float a, float b) { return fmaxf(a, b); });
}

} // namespace COPES_GPU

#endif
