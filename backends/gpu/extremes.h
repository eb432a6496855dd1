/* The lesser and the greater of two numbers, on the host. The standard library's are in <algorithm>, which every kernel's file would
 * read for a third of a second, once for the host and once for each architecture of the compiler's front end. */
#ifndef COPES_BACKENDS_GPU_EXTREMES_H
#define COPES_BACKENDS_GPU_EXTREMES_H

namespace COPES_GPU
{

template <typename Number> constexpr Number lesser(Number a, Number b)
{
    return b < a ? b : a;
}

template <typename Number> constexpr Number greater(Number a, Number b)
{
    return a < b ? b : a;
}

} // namespace COPES_GPU

#endif
