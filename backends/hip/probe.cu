/* Compiles where the installed ROCm has device libraries for an architecture. */
#include <hip/hip_runtime.h>

__global__ void probe(float *x)
{
    *x = expf(*x);
}
