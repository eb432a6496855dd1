/* Vectors of 16-bit elements. */
#ifndef COPES_BACKENDS_OPENMP_SIMD_HALF_H
#define COPES_BACKENDS_OPENMP_SIMD_HALF_H

#include "backends/openmp/simd.h"

typedef uint16_t vhalf __attribute__((vector_size(VECTOR_BYTES / 2)));  /* the halves of one vreal */
typedef uint16_t vhalf_pair __attribute__((vector_size(VECTOR_BYTES))); /* of two */
typedef uint32_t vword __attribute__((vector_size(VECTOR_BYTES)));

#endif
