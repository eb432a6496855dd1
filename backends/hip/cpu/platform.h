/* HIP on the processor by HIP-CPU: launches, and the parts of HIP that it lacks. A block's threads are fibers, which
 * take turns only at barriers and shuffles. Every thread of a block must reach each of these equally often. */
#ifndef COPES_BACKENDS_HIP_CPU_PLATFORM_H
#define COPES_BACKENDS_HIP_CPU_PLATFORM_H

#include <algorithm>
#include <string.h>

/* HIP-CPU's own definitions ask for SIMD clones of every function, which structs as arguments rule out. */
#undef __device__
#undef __global__
#undef __forceinline__
#define __device__
#define __global__
#define __forceinline__ inline

#define OUT_OF_LINE static __attribute__((noinline))
#define COPES_CONSTANT static const
#define COPES_VECTORS_ANYWHERE 1 /* AMD's GPUs have none of these kernels, CUDA's have */

namespace COPES_GPU
{

using std::max;
using std::min;

/* A thread's place in its block, x the fastest as everywhere else: HIP-CPU's own has z the fastest. */
inline constexpr struct {
    struct axis {
        uint32_t (*place)(uint32_t thread);
        operator uint32_t() const
        {
            return place(hip::detail::Fiber::this_fiber().id());
        }
    };
    axis x = {[](uint32_t thread) { return thread % blockDim.x; }};
    axis y = {[](uint32_t thread) { return thread / blockDim.x % blockDim.y; }};
    axis z = {[](uint32_t thread) { return thread / blockDim.x / blockDim.y; }};
} threadIdx;

inline void name_architecture(const hipDeviceProp_t &, char *text, size_t size)
{
    snprintf(text, size, "HIP-CPU, wave size %d", warpSize);
}

template <typename... Parameters>
inline hipError_t enqueue(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared, hipStream_t stream,
                          std::type_identity_t<Parameters>... arguments)
{
    hipLaunchKernelGGL(kernel, blocks, threads, (uint32_t)shared, stream, arguments...);
    return hipGetLastError();
}

/* A kernel's first argument where it lies, as in amd/platform.h. */
template <typename Argument> DEVICE const Argument &first_argument(const Argument &argument)
{
    return argument;
}

/* A part of it, which need not be kept in registers up to here. */
template <typename Part> DEVICE const Part &read_again(const Part &part)
{
    return part;
}

/* The block's dynamic shared memory. */
DEVICE char *dynamic_shared()
{
    HIP_DYNAMIC_SHARED(char, copes_dynamic_shared)
    return copes_dynamic_shared;
}

template <typename To, typename From> DEVICE To copy_bits(From from)
{
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

DEVICE float __uint_as_float(uint32_t bits)
{
    return copy_bits<float>(bits);
}

DEVICE float __int_as_float(int32_t bits)
{
    return copy_bits<float>(bits);
}

DEVICE uint32_t __float_as_uint(float value)
{
    return copy_bits<uint32_t>(value);
}

DEVICE uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

DEVICE void synchronize_warp()
{
    __syncthreads();
}

DEVICE bool any_of_block(bool value)
{
    __shared__ bool any;
    __syncthreads(); /* all threads have the answer of the last call */
    any = false;
    __syncthreads();
    if (value)
        any = true;
    __syncthreads();
    return any;
}

/* Where registers are few, has a value computed by here, and not again later. */
template <typename Value> DEVICE void settle(Value &)
{
}

/* Keeps a loop up to `end` a loop, as a processor's compiler does of itself. */
DEVICE void keep_loop(uint32_t &)
{
}

/* 2^x for x <= 0. */
DEVICE float exp2_term(float x)
{
    return exp2f(x);
}

DEVICE float reciprocal(float x)
{
    return 1 / x;
}

/* 1 / sqrt(x) to 2 ulp. */
DEVICE float reciprocal_root(float x)
{
    return 1 / sqrtf(x);
}

} // namespace COPES_GPU

#endif
