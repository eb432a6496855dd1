/* The runtime of the family of GPUs that a file is compiled for: GPU(Malloc) is cudaMalloc or hipMalloc. */
#ifndef COPES_MEMORY_RUNTIME_H
#define COPES_MEMORY_RUNTIME_H

#ifdef COPES_FAMILY_HIP
#include <hip/hip_runtime_api.h>
#define GPU(name) hip##name
#define GPU_DEVICE_TYPE kDLROCM
#define GPU_MEMORY device_memory_hip
#define GPU_BENCH bench_device_hip
#define GPU_FLUSH bench_flush_hip
#define GPU_L2_CACHE hipDeviceAttributeL2CacheSize
#else
#include <cuda_runtime_api.h>
#define GPU(name) cuda##name
#define GPU_DEVICE_TYPE kDLCUDA
#define GPU_MEMORY device_memory_cuda
#define GPU_BENCH bench_device_cuda
#define GPU_FLUSH bench_flush_cuda
#define GPU_L2_CACHE cudaDevAttrL2CacheSize
#endif

#endif
