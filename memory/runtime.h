/* The runtime of the family of GPUs that a file is compiled for, as C: GPU(Malloc) is cudaMalloc. */
#ifndef COPES_MEMORY_RUNTIME_H
#define COPES_MEMORY_RUNTIME_H

#include <cuda_runtime_api.h>

#define GPU(name) cuda##name
#define GPU_DEVICE_TYPE kDLCUDA
#define GPU_MEMORY device_memory_cuda
#define GPU_BENCH bench_device_cuda

#endif
