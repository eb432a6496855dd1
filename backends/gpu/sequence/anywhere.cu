/* Two kinds of columns.cu's and passes.cu's kernels, in a file of their own, as either takes long enough to compile: those of vectors
 * whose tokens have positions, offsets or an amplitude, and those of single elements. */
#include "backends/gpu/sequence/columns_plan.h"

namespace COPES_GPU::sequence
{

template <typename T, copes_passes P, encoding E, role R> static columns_kernel *kernel_of()
{
    if constexpr (has_instance<T, E, R, true, P>)
        return kernel_of_pass<T, E, R, true, P>();
    return nullptr;
}

template <typename T, copes_passes P, encoding E> static columns_kernel *kernel_of_role(role r)
{
    switch (r) {
    case role::forward: return kernel_of<T, P, E, role::forward>();
    case role::backward: return kernel_of<T, P, E, role::backward>();
    default: return kernel_of<T, P, E, role::given>();
    }
}

template <typename T, copes_passes P> columns_kernel *kernels_anywhere(encoding e, role r)
{
    switch (e) {
    case encoding::half: return kernel_of_role<T, P, encoding::half>(r);
    case encoding::interleaved: return kernel_of_role<T, P, encoding::interleaved>(r);
    default: return kernel_of_role<T, P, encoding::cosine>(r);
    }
}

#define INSTANTIATE(T)                                                                                                 \
    template columns_kernel *kernels_anywhere<T, COPES_BOTH_PASSES>(encoding, role);                                   \
    template columns_kernel *kernels_anywhere<T, COPES_FIRST_PASS>(encoding, role);                                    \
    template columns_kernel *kernels_anywhere<T, COPES_SECOND_PASS>(encoding, role);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(any_type)
template columns_kernel *kernels_anywhere<narrow<f16>, COPES_SECOND_PASS>(encoding, role);
template columns_kernel *kernels_anywhere<narrow<bf16>, COPES_SECOND_PASS>(encoding, role);

} // namespace COPES_GPU::sequence
