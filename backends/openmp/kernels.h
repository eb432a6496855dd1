/* The kernels of one instruction-set level and storage type, as tables that the glue picks from at run time. */
#ifndef COPES_BACKENDS_OPENMP_KERNELS_H
#define COPES_BACKENDS_OPENMP_KERNELS_H

#include "backends/openmp/isa.h"
#include "backends/openmp/team.h"
#include "common/problem.h"

typedef struct copes_cpu_kernels {
    struct {
        const char *act, *lrpe, *lrpe_sequence, *merge, *qk, *tpa;
    } names; /* of variants */
    void (*act)(const copes_act_problem *problem, const copes_cpu_run *run);
    void (*lrpe)(const copes_lrpe_problem *problem, const copes_cpu_run *run);
    void (*merge)(const copes_merge_problem *problem, const copes_cpu_run *run);
    void (*qk)(const copes_qk_problem *problem, const copes_cpu_run *run);
    void (*tpa)(const copes_tpa_problem *problem, const copes_cpu_run *run);
    /* Bytes, or -1 where they do not fit 63 bits. */
    int64_t (*lrpe_workspace)(const copes_lrpe_problem *problem, int threads);
    int64_t (*merge_workspace)(const copes_merge_problem *problem, int threads);
    int64_t (*qk_workspace)(const copes_qk_problem *problem, int threads);
    int64_t (*tpa_workspace)(const copes_tpa_problem *problem, int threads);
} copes_cpu_kernels;

/* The table of a level that this build has, or NULL. */
const copes_cpu_kernels *copes_cpu_kernels_of(copes_isa isa, copes_dtype dtype);

#endif
