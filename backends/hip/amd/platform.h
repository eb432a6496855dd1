/* HIP on AMD's GPUs. */
#ifndef COPES_BACKENDS_HIP_AMD_PLATFORM_H
#define COPES_BACKENDS_HIP_AMD_PLATFORM_H

#define COPES_CONSTANT static __constant__ const
#define COPES_VECTORS_ANYWHERE 0 /* kernels of sequence/anywhere.cu would spill gfx90a's scalar registers */

/* No call: its function would save registers in scratch memory, and could not read the kernel's argument by scalar loads. */
#define OUT_OF_LINE DEVICE

#if !__has_builtin(__builtin_amdgcn_exp2f) /* the same instruction, in older compilers' library */
extern "C" __device__ float __ocml_native_exp2_f32(float);
#define __builtin_amdgcn_exp2f __ocml_native_exp2_f32
#endif

namespace COPES_GPU
{

inline void name_architecture(const hipDeviceProp_t &properties, char *text, size_t size)
{
    snprintf(text, size, "%.40s, wave size %d", properties.gcnArchName, properties.warpSize);
}

template <typename... Parameters>
inline hipError_t enqueue(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared, hipStream_t stream,
                          std::type_identity_t<Parameters>... arguments)
{
    void *pointers[] = {const_cast<void *>(static_cast<const void *>(&arguments))...};
    return hipLaunchKernel(reinterpret_cast<const void *>(kernel), blocks, threads, pointers, shared, stream);
}

/* A kernel's first argument where it lies: Clang copies a struct to scratch memory, sometimes without need. Each call
 * reads the argument anew, since values kept for a loop would overflow the scalar registers. */
template <typename Argument> DEVICE const Argument &first_argument(const Argument &)
{
    auto place = (const __attribute__((address_space(4))) Argument *)__builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(place));
    return *(const Argument *)place;
}

/* A part of a kernel's argument, to be read anew, likewise. */
template <typename Part> DEVICE const Part &read_again(const Part &part)
{
    auto place = (const __attribute__((address_space(4))) Part *)&part;
    asm volatile("" : "+s"(place));
    return *(const Part *)place;
}

/* The block's dynamic shared memory. */
DEVICE char *dynamic_shared()
{
    extern __shared__ __attribute__((aligned(128))) char copes_dynamic_shared[];
    return copes_dynamic_shared;
}

/* Orders the accesses of a warp's threads to shared memory. */
DEVICE void synchronize_warp()
{
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}

/* Is `value` true in any thread of the block? Waits for all of them. */
DEVICE bool any_of_block(bool value)
{
    return __syncthreads_or(value) != 0;
}

/* Has a value computed by here, and not again later: what it was computed from needs no registers any more. */
template <typename Value> DEVICE void settle(Value &value)
{
    asm volatile("" : "+v"(value));
}

/* Keeps a loop up to `end` a loop, as clang does of itself. */
DEVICE void keep_loop(uint32_t &)
{
}

/* 2^x to 2 ulp for x <= 0; results below the normal range may be 0. */
DEVICE float exp2_term(float x)
{
    return __builtin_amdgcn_exp2f(x);
}

/* 1 / x to 1 ulp, for x and a result in the normal range. */
DEVICE float reciprocal(float x)
{
    return __builtin_amdgcn_rcpf(x);
}

/* 1 / sqrt(x) to 2 ulp. */
DEVICE float reciprocal_root(float x)
{
    return rsqrtf(x);
}

} // namespace COPES_GPU

#endif
