/* Tensor maps: descriptions of tensors for bulk copies of boxes. The driver encodes them on the host. */
#ifndef COPES_BACKENDS_CUDA_PTX_TENSOR_MAP_H
#define COPES_BACKENDS_CUDA_PTX_TENSOR_MAP_H

#include "backends/cuda/driver.h"

namespace COPES_GPU::ptx
{

/* Describes a tensor of four axes, the innermost first. Elements are neighbours along the innermost axis. Lengths
 * are in elements; strides are those of the other three axes, in bytes, and multiples of 16. */
inline copes_status encode_tensormap(CUtensorMap *map, CUtensorMapDataType type, void *data,
                                     const uint64_t (&lengths)[4], const uint64_t (&strides)[3],
                                     const uint32_t (&box)[4], CUtensorMapSwizzle swizzle)
{
    static const uint32_t steps[4] = {1, 1, 1, 1};
    static constinit driver_function<decltype(cuTensorMapEncodeTiled)> encode("cuTensorMapEncodeTiled", 12000);
    COPES_TRY(require_in_driver(encode));
    return encode.call("tensor map", map, type, 4u, data, lengths, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                       swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

} // namespace COPES_GPU::ptx

#endif
