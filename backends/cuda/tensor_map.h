/* Descriptions of tensors for copies of boxes, which the driver encodes. It is found at run time, as the library works
 * without one, too. */
#ifndef COPES_BACKENDS_CUDA_TENSOR_MAP_H
#define COPES_BACKENDS_CUDA_TENSOR_MAP_H

#include "backends/gpu/queue.h"

#include <atomic>
#include <cuda.h>

namespace COPES_GPU
{

/* Describes a tensor of three axes, the innermost first, whose elements are neighbours there: lengths in elements, strides
 * of the other two in bytes, multiples of 16. */
inline copes_status encode_map(CUtensorMap *map, CUtensorMapDataType type, void *data, const uint64_t (&lengths)[3],
                               const uint64_t (&strides)[2], const uint32_t (&box)[3], CUtensorMapSwizzle swizzle)
{
    static std::atomic<void *> known;
    static const uint32_t steps[3] = {1, 1, 1};
    void *encode = known.load(std::memory_order_relaxed);
    if (encode == nullptr) {
        cudaDriverEntryPointQueryResult found;
        COPES_TRY(status_of(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                                             cudaEnableDefault, &found),
                            "cuTensorMapEncodeTiled"));
        known.store(encode, std::memory_order_relaxed);
    }
    const CUresult error = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
        encode)(map, type, 3, data, lengths, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return error == CUDA_SUCCESS ? COPES_OK
                                 : copes_fail(COPES_ERROR_BACKEND, "cuTensorMapEncodeTiled: error %d", (int)error);
}

} // namespace COPES_GPU

#endif
