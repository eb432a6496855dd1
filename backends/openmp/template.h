/* What every template source starts from: the names of its level and type, and the memory of a thread. */
#ifndef COPES_BACKENDS_OPENMP_TEMPLATE_H
#define COPES_BACKENDS_OPENMP_TEMPLATE_H

#include "backends/openmp/kernels.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* COPES_LEVEL and COPES_TYPE come from the build: TEMPLATE(lrpe) is copes_lrpe_avx2_bf16. */
#define TEMPLATE_JOIN(name, level, type) copes_##name##_##level##_##type
#define TEMPLATE_EXPAND(name, level, type) TEMPLATE_JOIN(name, level, type)
#define TEMPLATE(name) TEMPLATE_EXPAND(name, COPES_LEVEL, COPES_TYPE)

void TEMPLATE(act)(const copes_act_problem *problem, const copes_cpu_run *run);
void TEMPLATE(lrpe)(const copes_lrpe_problem *problem, const copes_cpu_run *run);
size_t TEMPLATE(lrpe_workspace)(const copes_lrpe_problem *problem, int threads);
void TEMPLATE(lrpe_sequence)(const copes_lrpe_problem *problem, const copes_cpu_run *run);
int64_t TEMPLATE(lrpe_sequence_memory)(const copes_lrpe_problem *problem);
void TEMPLATE(tpa)(const copes_tpa_problem *problem, const copes_cpu_run *run);
size_t TEMPLATE(tpa_workspace)(const copes_tpa_problem *problem, int threads);

/* A thread works in memory on its stack, or, where heads are longer than anyone's yet, in its part of the workspace. */
enum { STACK_BYTES = 192 * 1024, THREAD_ALIGNMENT = 64 };

static inline int64_t thread_part(int64_t bytes)
{
    return (bytes + THREAD_ALIGNMENT - 1) / THREAD_ALIGNMENT * THREAD_ALIGNMENT;
}

static inline size_t thread_workspace(int64_t bytes, int threads)
{
    return bytes <= STACK_BYTES ? 0 : (size_t)thread_part(bytes) * (size_t)threads;
}

static inline void *thread_memory(const copes_cpu_run *run, int64_t bytes, void *stack)
{
#ifdef _OPENMP
    const int thread = omp_get_thread_num();
#else
    const int thread = 0;
#endif
    return bytes <= STACK_BYTES ? stack : (char *)run->workspace + thread * thread_part(bytes);
}

#endif
