/* The kernels of vectors whose tokens have positions, offsets or an amplitude: columns.cu's and passes.cu's, in a file of their own,
 * as either takes long enough to compile. */
#include "backends/gpu/sequence/columns_plan.h"

namespace COPES_GPU::sequence
{

template <typename T, copes_passes P, encoding E> static columns_kernel *kernel_of_role(role r)
{
    constexpr int V = unit_angles<T>;
    if (r == role::backward)
        return sequence_columns<T, V, E, role::backward, true, P>;
    if constexpr (P != COPES_FIRST_PASS)
        return sequence_columns<T, V, E, role::forward, true, P>;
    return nullptr;
}

template <typename T, copes_passes P> columns_kernel *vectors_anywhere(encoding e, role r)
{
    if constexpr (COPES_VECTORS_ANYWHERE)
        switch (e) {
        case encoding::half: return kernel_of_role<T, P, encoding::half>(r);
        case encoding::interleaved: return kernel_of_role<T, P, encoding::interleaved>(r);
        default: return kernel_of_role<T, P, encoding::cosine>(r);
        }
    return nullptr;
}

#define INSTANTIATE(T)                                                                                                 \
    template columns_kernel *vectors_anywhere<T, COPES_BOTH_PASSES>(encoding, role);                                   \
    template columns_kernel *vectors_anywhere<T, COPES_FIRST_PASS>(encoding, role);                                    \
    template columns_kernel *vectors_anywhere<T, COPES_SECOND_PASS>(encoding, role);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::sequence
