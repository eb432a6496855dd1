/* What every template source starts from: the names of its level and type, and the memory of a thread. */
#ifndef COPES_BACKENDS_OPENMP_TEMPLATE_H
#define COPES_BACKENDS_OPENMP_TEMPLATE_H

#include "backends/openmp/kernels.h"
#include "common/size.h"

/* COPES_LEVEL and COPES_TYPE come from the build: TEMPLATE(lrpe) is copes_lrpe_avx2_bf16. */
#define TEMPLATE_JOIN(name, level, type) copes_##name##_##level##_##type
#define TEMPLATE_EXPAND(name, level, type) TEMPLATE_JOIN(name, level, type)
#define TEMPLATE(name) TEMPLATE_EXPAND(name, COPES_LEVEL, COPES_TYPE)

void TEMPLATE(act)(const copes_act_problem *problem, const copes_cpu_run *run);
void TEMPLATE(lrpe)(const copes_lrpe_problem *problem, const copes_cpu_run *run);
int64_t TEMPLATE(lrpe_workspace)(const copes_lrpe_problem *problem, int threads);
void TEMPLATE(lrpe_sequence)(const copes_lrpe_problem *problem, const copes_cpu_run *run);
int64_t TEMPLATE(lrpe_sequence_memory)(const copes_lrpe_problem *problem);
void TEMPLATE(merge)(const copes_merge_problem *problem, const copes_cpu_run *run);
int64_t TEMPLATE(merge_workspace)(const copes_merge_problem *problem, int threads);
void TEMPLATE(qk)(const copes_qk_problem *problem, const copes_cpu_run *run);
int64_t TEMPLATE(qk_workspace)(const copes_qk_problem *problem, int threads);
void TEMPLATE(tpa)(const copes_tpa_problem *problem, const copes_cpu_run *run);
int64_t TEMPLATE(tpa_workspace)(const copes_tpa_problem *problem, int threads);

/* A thread works in the context's scratch memory, or, where heads are longer than anyone's yet, in its part of the
 * workspace. Sizes here may be -1, which is none that fits; see common/size.h. */
static inline int64_t thread_part(int64_t bytes)
{
    const int64_t padded = copes_add(bytes, SCRATCH_ALIGNMENT - 1);
    return padded < 0 ? -1 : padded / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
}

static inline int64_t thread_workspace(int64_t bytes, int threads)
{
    return bytes >= 0 && bytes <= SCRATCH_BYTES ? 0 : copes_multiply(thread_part(bytes), threads);
}

static inline void *memory_of_thread(const copes_cpu_run *run, int64_t index, int64_t bytes)
{
    return bytes <= SCRATCH_BYTES ? run->scratch + index * SCRATCH_BYTES
                                  : (char *)run->workspace + index * thread_part(bytes);
}

static inline void *thread_memory(const copes_cpu_run *run, const copes_worker *worker, int64_t bytes)
{
    return memory_of_thread(run, worker->index, bytes);
}

#endif
