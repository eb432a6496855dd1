/* The fastest copies and the most multiply-adds that one thread of this processor does. */
#ifndef COPES_BENCH_CPU_PROBE_H
#define COPES_BENCH_CPU_PROBE_H

#include <stddef.h>

/* Instruction sets, as copes_device_summary names them; both avx512 levels are one here. */
typedef enum cpu_level { CPU_BASELINE, CPU_AVX2, CPU_AVX512 } cpu_level;

/* Copies with stores that pass by the caches, as wide as the processor has them; else as memcpy. */
void cpu_copy_streaming(void *to, const void *from, size_t bytes);

/* Does about 100 million multiply-adds on vectors of the level; cpu_multiply_adds says how many. */
void cpu_multiply_add(cpu_level level);
double cpu_multiply_adds(cpu_level level);

#endif
