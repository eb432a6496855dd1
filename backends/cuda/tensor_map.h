/* Descriptions of tensors for copies of boxes, which the driver encodes. It is found at run time, as the library works
 * without one, too. */
#ifndef COPES_BACKENDS_CUDA_TENSOR_MAP_H
#define COPES_BACKENDS_CUDA_TENSOR_MAP_H

#include "backends/gpu/queue.h"

#include <atomic>
#include <cuda.h>

namespace COPES_GPU
{

typedef decltype(&cuTensorMapEncodeTiled) map_encoder;

/* The driver's function, which is looked for once. */
inline copes_status find_encoder(map_encoder *encoder)
{
    static std::atomic<void *> known;
    void *function = known.load(std::memory_order_relaxed);
    if (function == nullptr) {
        static const char name[] = "cuTensorMapEncodeTiled";
        cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;
#if CUDART_VERSION >= 12050
        COPES_TRY(status_of(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found), name));
#else
        COPES_TRY(status_of(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found), name));
#endif
        if (found != cudaDriverEntryPointSuccess)
            return copes_fail(COPES_ERROR_BACKEND, "the CUDA driver has no %s; it must be of 12.0 or later", name);
        known.store(function, std::memory_order_relaxed);
    }
    *encoder = reinterpret_cast<map_encoder>(function);
    return COPES_OK;
}

/* Gives the thread the current device's context, which the runtime's functions would at their first work for it. */
inline copes_status take_context()
{
    int device = 0;
    COPES_TRY(status_of(cudaGetDevice(&device), "context"));
    return status_of(cudaSetDevice(device), "context");
}

/* Describes a tensor of four axes, the innermost first, whose elements are neighbours there: lengths in elements, strides
 * of the other three in bytes, multiples of 16. */
inline copes_status encode_map(CUtensorMap *map, CUtensorMapDataType type, void *data, const uint64_t (&lengths)[4],
                               const uint64_t (&strides)[3], const uint32_t (&box)[4], CUtensorMapSwizzle swizzle)
{
    static const uint32_t steps[4] = {1, 1, 1, 1};
    map_encoder encode = nullptr;
    COPES_TRY(find_encoder(&encode));
    const auto encode_here = [&] {
        return encode(map, type, 4, data, lengths, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    CUresult error = encode_here();
    if (error == CUDA_ERROR_INVALID_CONTEXT) { /* nothing has been done on this thread */
        COPES_TRY(take_context());
        error = encode_here();
    }
    if (error != CUDA_SUCCESS)
        return copes_fail(COPES_ERROR_BACKEND, "cuTensorMapEncodeTiled: the CUDA driver says: error %d", (int)error);
    return COPES_OK;
}

} // namespace COPES_GPU

#endif
