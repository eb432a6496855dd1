/* CUDA's side of the seam between the GPU families: the runtime's names, launching, and the instructions that C++ has
 * no word for. backends/hip/vendor.h has the same for HIP, and backends/gpu is written in these terms alone. */
#ifndef COPES_BACKENDS_CUDA_VENDOR_H
#define COPES_BACKENDS_CUDA_VENDOR_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdint.h>
#include <stdio.h>
#include <type_traits>

#define COPES_GPU copes_cuda /* the namespace, as one library may hold both families */
#define COPES_GPU_BACKEND copes_backend_cuda
#define COPES_GPU_NAME "cuda"
#define COPES_GPU_TITLE "CUDA"
#define COPES_GPU_DEVICE_TYPE kDLCUDA
#define GPU(name) cuda##name                  /* the runtimes have the same functions under two prefixes */
#define GPU_PARAMETER const __grid_constant__ /* a kernel's argument that is read where it lies */
#define LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks) /* that many on a multiprocessor */
#ifdef __maxnreg__
#define MOST_REGISTERS(...) __maxnreg__((__VA_ARGS__)) /* of a thread; the number may have commas */
#else
#define MOST_REGISTERS(...) /* nvcc before 12.4 */
#endif
#define DEVICE static __device__ __forceinline__
#define OUT_OF_LINE static __device__ __noinline__       /* no part of its caller */
#define COPES_FUNCTION static __device__ __forceinline__ /* for common/phase.h */
#define COPES_CONSTANT static __constant__ const
#define COPES_VECTORS_ANYWHERE 1 /* kernels of sequence/anywhere.cu */

namespace COPES_GPU
{

/* Of a multiprocessor, and the registers that each of them has. */
inline constexpr int SCHEDULERS = 4, SCHEDULER_REGISTERS = 16384;

typedef cudaDeviceProp device_properties;

inline constexpr bool UNALIGNED_ACCESS = false;
inline constexpr bool WIDE_UNITS = false;     /* two vectors a thread where one would do */
inline constexpr bool LEARNS_ANYWHERE = true; /* qk's gradients of weights, where positions are on no line */
inline constexpr bool FEW_CONSTANTS = false;  /* constants are no registers */
inline constexpr bool BLOCKS_MEET = true;     /* blocks of a launch that asks for it wait for each other */
inline constexpr uint64_t MOST_GRID_THREADS = UINT64_MAX; /* along x; blocks are counted for themselves */

inline void name_architecture(const device_properties &properties, char *text, size_t size)
{
    snprintf(text, size, "compute capability %d.%d", properties.major, properties.minor);
}

/* Bytes that a block may ask for. */
inline int most_shared_memory(const device_properties &properties)
{
    return (int)properties.sharedMemPerBlockOptin;
}

template <typename... Parameters>
inline cudaError_t enqueue(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared, cudaStream_t stream,
                           std::type_identity_t<Parameters>... arguments)
{
    void *pointers[] = {const_cast<void *>(static_cast<const void *>(&arguments))...};
    return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), blocks, threads, pointers, shared, stream);
}

/* The same for a kernel of which every thread calls await_launch_before before it reads or writes memory: it may begin while the
 * kernel before it in the stream ends. `architecture`: what the kernel's code was made for. */
template <typename... Parameters>
inline cudaError_t enqueue_overlapped(int architecture, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                                      size_t shared, cudaStream_t stream, std::type_identity_t<Parameters>... arguments)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = architecture >= 90;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

#ifndef COPES_PORTABLE /* compiled for 8.0 where it is to run on 9.0 (meson.build) */
/* Waits until what comes before the kernel in its stream has ended, and its results are there. Addresses that are needed then are
 * found before: left alone, the compiler would find them after, so they are written to `memory`, which is 8 bytes in shared
 * memory, of this thread alone until its warp has come here. */
template <typename... T> DEVICE void await_launch_before(void *memory, T *...addresses)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const void *volatile *const place = static_cast<const void *volatile *>(memory);
    ((*place = addresses), ...);
    asm volatile("griddepcontrol.wait;" ::: "memory");
    __syncwarp();
#endif
}

/* Lets the kernel after this one begin once all blocks have come here. It awaits this one's end by itself. */
DEVICE void begin_launch_after()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
#endif

/* A kernel's first argument where it lies, for one that goes through it by indices and references. */
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
    extern __shared__ __align__(128) char copes_dynamic_shared[];
    return copes_dynamic_shared;
}

/* The value of the lane whose number differs in the bits of `mask`; every lane of the warp must call it. */
template <typename Value> DEVICE Value shuffle_xor(Value value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

DEVICE void synchronize_warp()
{
    __syncwarp();
}

/* Is `value` true in any thread of the block? Waits for all of them. */
DEVICE bool any_of_block(bool value)
{
    return __syncthreads_or(value) != 0;
}

/* Has a value computed by here, and not again later: what it was computed from needs no registers any more. */
DEVICE void settle(float &value)
{
    asm volatile("" : "+f"(value));
}

DEVICE void settle(uint32_t &value)
{
    asm volatile("" : "+r"(value));
}

DEVICE void settle(int &value)
{
    asm volatile("" : "+r"(value));
}

/* Keeps a loop up to `end` a loop: nvcc unrolls some whatever it is told, and their instructions then miss their cache. */
DEVICE void keep_loop(uint32_t &end)
{
    settle(end);
}

/* 2^x to 2 ulp for x <= 0; results below the normal range may be 0. */
DEVICE float exp2_term(float x)
{
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/* 1 / x to 1 ulp, for x and a result in the normal range. */
DEVICE float reciprocal(float x)
{
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/* 1 / sqrt(x) to 2 ulp. */
DEVICE float reciprocal_root(float x)
{
    return rsqrtf(x);
}

/* Writes 16 or 8 bytes of global memory by one instruction. Of a plain assignment the compiler sometimes makes four or two. */
DEVICE void write_words(void *to, uint4 words)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y), "r"(words.z),
                 "r"(words.w)
                 : "memory");
}

DEVICE void write_words(void *to, uint2 words)
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words.x), "r"(words.y) : "memory");
}

/* Brings the line of a place to the L2 cache. */
DEVICE void prefetch(const void *place)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(place));
}

/* a b + c as one instruction: of shifts and additions the compiler makes two. */
DEVICE uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t result;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}

/* Two values rounded to nearest even and packed, the first in the low half. */
DEVICE uint32_t pack_bf16(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

DEVICE uint32_t pack_f16(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

/* The larger of either half of two words; where one is NaN, it is the other. */
DEVICE uint32_t larger_bf16(uint32_t a, uint32_t b)
{
    const __nv_bfloat162 larger =
        __hmax2(*reinterpret_cast<const __nv_bfloat162 *>(&a), *reinterpret_cast<const __nv_bfloat162 *>(&b));
    return *reinterpret_cast<const uint32_t *>(&larger);
}

DEVICE uint32_t larger_f16(uint32_t a, uint32_t b)
{
    const __half2 larger = __hmax2(*reinterpret_cast<const __half2 *>(&a), *reinterpret_cast<const __half2 *>(&b));
    return *reinterpret_cast<const uint32_t *>(&larger);
}

DEVICE uint32_t magnitudes_bf16(uint32_t word)
{
    const __nv_bfloat162 magnitudes = __habs2(*reinterpret_cast<const __nv_bfloat162 *>(&word));
    return *reinterpret_cast<const uint32_t *>(&magnitudes);
}

DEVICE uint32_t magnitudes_f16(uint32_t word)
{
    const __half2 magnitudes = __habs2(*reinterpret_cast<const __half2 *>(&word));
    return *reinterpret_cast<const uint32_t *>(&magnitudes);
}

DEVICE float2 unpack_f16(uint32_t word)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&word));
}

} // namespace COPES_GPU

#endif
