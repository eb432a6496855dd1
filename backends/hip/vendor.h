/* HIP's side of the seam between the GPU families: the runtime's names, and what both of its platforms share. The
 * platform's own part is in amd/platform.h for AMD's GPUs and in cpu/platform.h for HIP-CPU, which runs HIP on the
 * processor. backends/cuda/vendor.h has the same for CUDA. */
#ifndef COPES_BACKENDS_HIP_VENDOR_H
#define COPES_BACKENDS_HIP_VENDOR_H

#include <hip/hip_runtime.h>

#include <stdint.h>
#include <stdio.h>
#include <type_traits>

#define COPES_GPU copes_hip /* the namespace, as one library may hold both families */
#define COPES_GPU_BACKEND copes_backend_hip
#define COPES_GPU_NAME "hip"
#define COPES_GPU_TITLE "HIP"
#define COPES_GPU_DEVICE_TYPE kDLROCM
#define GPU(name) hip##name /* the runtimes have the same functions under two prefixes */
#define GPU_PARAMETER const /* a kernel's argument that is read where it lies */
#define LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads) /* HIP's second number has another meaning */
#define MOST_REGISTERS(...)                                       /* as its compiler chooses */
#define DEVICE static __device__ __forceinline__
#define COPES_FUNCTION static __device__ __forceinline__ /* for common/phase.h */

#include "platform.h"

namespace COPES_GPU
{

/* Registers are not what limits blocks first. */
inline constexpr int SCHEDULERS = 4, SCHEDULER_REGISTERS = 0;

typedef hipDeviceProp_t device_properties;

inline constexpr bool UNALIGNED_ACCESS = true;            /* the driver sets up AMD's GPUs so for HIP */
inline constexpr bool WIDE_UNITS = true;                  /* units of two whole vectors a thread */
inline constexpr bool LEARNS_ANYWHERE = false;            /* such kernels of qk would spill gfx90a's scalar registers */
inline constexpr bool FEW_CONSTANTS = true;               /* another constant of a softmax would spill them, too */
inline constexpr bool BLOCKS_MEET = false;                /* cooperative launches are untested on these GPUs */
inline constexpr uint64_t MOST_GRID_THREADS = UINT32_MAX; /* along x: a dispatch has 32 bits for them */

/* Bytes that a block may ask for. */
inline int most_shared_memory(const device_properties &properties)
{
    return (int)properties.sharedMemPerBlock;
}

/* The value of the lane whose number differs in the bits of `mask`; every thread of the block must call it. */
template <typename Value> DEVICE Value shuffle_xor(Value value, int mask)
{
    return __shfl_xor(value, mask);
}

/* As in backends/cuda/vendor.h; here launches do not overlap. */
template <typename... Parameters>
inline hipError_t enqueue_overlapped(int, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared,
                                     hipStream_t stream, std::type_identity_t<Parameters>... arguments)
{
    return enqueue(kernel, blocks, threads, shared, stream, arguments...);
}

template <typename... T> DEVICE void await_launch_before(void *, T *...)
{
}

DEVICE void begin_launch_after()
{
}

template <typename Words> DEVICE void write_words(void *to, Words words)
{
    *static_cast<Words *>(to) = words;
}

DEVICE void prefetch(const void *)
{
}

DEVICE uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c)
{
    return a * b + c;
}

/* The nearest bfloat16's bits, ties to even; a NaN stays one. */
DEVICE uint32_t round_bf16(float value)
{
    const uint32_t bits = __float_as_uint(value);
    return value != value ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

/* Two values rounded to nearest even and packed, the first in the low half. */
DEVICE uint32_t pack_bf16(float low, float high)
{
    return round_bf16(low) | round_bf16(high) << 16;
}

/* Clang and GCC have _Float16. The half types of AMD's runtime and of HIP-CPU differ. */
DEVICE uint32_t bits_of(_Float16 value)
{
    return __builtin_bit_cast(uint16_t, value);
}

DEVICE uint32_t pack_f16(float low, float high)
{
    return bits_of((_Float16)low) | bits_of((_Float16)high) << 16;
}

DEVICE float2 unpack_f16(uint32_t word)
{
    return make_float2((float)__builtin_bit_cast(_Float16, (uint16_t)word),
                       (float)__builtin_bit_cast(_Float16, (uint16_t)(word >> 16)));
}

/* The larger of either half of two words; where one is NaN, it is the other. */
DEVICE uint32_t larger_bf16(uint32_t a, uint32_t b)
{
    const float low = fmaxf(__uint_as_float(a << 16), __uint_as_float(b << 16));
    const float high = fmaxf(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u));
    return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xffff0000u);
}

DEVICE uint32_t larger_f16(uint32_t a, uint32_t b)
{
    const float2 first = unpack_f16(a), second = unpack_f16(b);
    return pack_f16(fmaxf(first.x, second.x), fmaxf(first.y, second.y));
}

DEVICE uint32_t magnitudes_bf16(uint32_t word)
{
    return word & 0x7fff7fffu;
}

DEVICE uint32_t magnitudes_f16(uint32_t word)
{
    return word & 0x7fff7fffu;
}

} // namespace COPES_GPU

#endif
