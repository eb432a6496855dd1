/* The CPU as a backend: a context is a number of threads and the kernels of one instruction-set level. */
#include "backends/backend.h"

#include "backends/openmp/kernels.h"
#include "backends/openmp/team.h"
#include "common/size.h"
#include "common/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct cpu_state {
    copes_isa isa;
    int threads;
    bool fewer;    /* where the work is too small for all of them: the caller named no number */
    int64_t cache; /* bytes */
    char *scratch; /* SCRATCH_BYTES for each thread; pages that no call uses are none of the machine's memory */
} cpu_state;

static int32_t device_count(void)
{
    return 1;
}

static void summary(int32_t device, char *text, size_t size)
{
    (void)device;
    copes_isa isa;
    if (copes_isa_choose(&isa) != COPES_OK)
        snprintf(text, size, "%s", copes_last_error());
    else
        snprintf(text, size, "CPU, %s, %d threads%s", copes_isa_name(isa), copes_team_most(0),
#ifdef _OPENMP
                 ""
#else
                 " (built without OpenMP)"
#endif
        );
}

/* Calls that move more than this write past the caches. From the kernel, which under a hypervisor knows better than the
 * processor's own description; of a large cache, which others share, no more than a part is ours. */
static int64_t last_level_cache(void)
{
    int64_t kilobytes = 0;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (file != NULL) {
        if (fscanf(file, "%10" SCNd64, &kilobytes) != 1)
            kilobytes = 0;
        fclose(file);
    }
    const int64_t most = INT64_C(32) << 20;
    return kilobytes > 0 && kilobytes << 10 < most ? kilobytes << 10 : most;
}

static copes_status open_state(int32_t device, const copes_context_options *options, void **state)
{
    (void)device;
    copes_isa isa;
    COPES_TRY(copes_isa_choose(&isa));
    const int threads = copes_team_most(options->threads);
    const size_t scratch = (size_t)threads * SCRATCH_BYTES;
    cpu_state *made = malloc(sizeof *made);
    if (made == NULL)
        return copes_fail(COPES_ERROR_MEMORY, "context: %zu bytes could not be allocated", sizeof *made);
    *made = (cpu_state){.isa = isa,
                        .threads = threads,
                        .fewer = options->threads == 0,
                        .cache = last_level_cache(),
                        .scratch = aligned_alloc(SCRATCH_ALIGNMENT, scratch)};
    if (made->scratch == NULL) {
        free(made);
        return copes_fail(COPES_ERROR_MEMORY, "context: %zu bytes could not be allocated", scratch);
    }
    *state = made;
    return COPES_OK;
}

static void close_state(void *state)
{
    cpu_state *cpu = state;
    free(cpu->scratch);
    free(cpu);
}

static copes_status set_stream(void *state, void *stream)
{
    (void)state;
    (void)stream;
    return COPES_OK;
}

/* Elements that a problem makes, or as many as take the time of its multiply-adds. */
static double work_of(const copes_problem *problem)
{
    double work = 1;
    const copes_lrpe_problem *lrpe = &problem->lrpe;
    const copes_tpa_problem *tpa = &problem->tpa;
    const copes_qk_problem *qk = &problem->qk;
    const copes_merge_problem *merge = &problem->merge;
    switch (problem->kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD:
        for (int i = 0; i < problem->act.rank; i++)
            work *= (double)problem->act.shape[i];
        break;
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: work = (double)lrpe->b * (double)lrpe->n * (double)lrpe->h * (double)lrpe->d; break;
    case COPES_TPA_DECODE:
        work = (double)tpa->b * (double)tpa->n * (double)tpa->m * (double)tpa->h *
               ((double)tpa->rk * (double)tpa->d + (double)tpa->rv * (double)tpa->e) / 8;
        break;
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD:
        work = (double)qk->v_heads * (double)qk->e;
        for (int side = 0; side < qk->sides; side++)
            work += (double)qk->side[side].rotate.h * (double)qk->side[side].rotate.d;
        work *= (double)qk->side[0].rotate.b * (double)qk->side[0].rotate.n;
        break;
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD:
        work = (double)merge->shares * (double)merge->b * (double)merge->n * (double)merge->h * (double)merge->e;
        break;
    }
    return work;
}

/* Waking a thread takes microseconds, in which another makes some thousand elements. */
static int team_of(const cpu_state *cpu, const copes_problem *problem)
{
    const double grain = 16384, useful = 1 + work_of(problem) / grain;
    const int most = copes_team_most(cpu->threads); /* a fork may have come since */
    return cpu->fewer && useful < most ? (int)useful : most;
}

/* Fills in the rest of a plan. The threads are counted once: a fork between plan and run would change them. */
static copes_status plan(const void *state, const copes_problem *problem, copes_plan *plan)
{
    const cpu_state *cpu = state;
    const copes_cpu_kernels *kernels = copes_cpu_kernels_of(cpu->isa, copes_problem_dtype(problem));
    const int threads = team_of(cpu, problem);
    *plan = (copes_plan){.grid = {threads, 1, 1}, .block = {1, 1, 1}};
    switch (problem->kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: plan->variant = kernels->names.act; break;
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD:
        plan->variant =
            problem->lrpe.softmax == COPES_OVER_SEQUENCE ? kernels->names.lrpe_sequence : kernels->names.lrpe;
        plan->workspace = kernels->lrpe_workspace(&problem->lrpe, threads);
        break;
    case COPES_TPA_DECODE:
        plan->variant = kernels->names.tpa;
        plan->workspace = kernels->tpa_workspace(&problem->tpa, threads);
        break;
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD:
        plan->variant = kernels->names.qk;
        plan->workspace = kernels->qk_workspace(&problem->qk, threads);
        break;
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD:
        plan->variant = kernels->names.merge;
        plan->workspace = kernels->merge_workspace(&problem->merge, threads);
        break;
    }
    return COPES_OK;
}

static copes_status run(void *state, const copes_problem *problem, const copes_plan *plan, void *workspace)
{
    const cpu_state *cpu = state;
    const copes_cpu_kernels *kernels = copes_cpu_kernels_of(cpu->isa, copes_problem_dtype(problem));
    const copes_cpu_run how = {(int)plan->grid[0], cpu->cache, workspace, cpu->scratch};
    switch (problem->kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: kernels->act(&problem->act, &how); break;
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: kernels->lrpe(&problem->lrpe, &how); break;
    case COPES_TPA_DECODE: kernels->tpa(&problem->tpa, &how); break;
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD: kernels->qk(&problem->qk, &how); break;
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD: kernels->merge(&problem->merge, &how); break;
    }
    return COPES_OK;
}

/* Of all levels that the build has; a level that adds nothing to a type has the tables, and so the names, of the one below. */
static size_t variants(const char **names, size_t capacity)
{
    size_t count = 0;
    for (int isa = 0; isa < COPES_ISAS; isa++)
        for (int dtype = 0; dtype < COPES_DTYPES; dtype++) {
            const copes_cpu_kernels *kernels = copes_cpu_kernels_of((copes_isa)isa, (copes_dtype)dtype);
            if (kernels == NULL ||
                (isa > 0 && kernels == copes_cpu_kernels_of((copes_isa)(isa - 1), (copes_dtype)dtype)))
                continue;
            const char *const own[] = {kernels->names.act,   kernels->names.lrpe, kernels->names.lrpe_sequence,
                                       kernels->names.merge, kernels->names.qk,   kernels->names.tpa};
            for (size_t i = 0; i < sizeof own / sizeof own[0]; i++, count++)
                if (count < capacity)
                    names[count] = own[i];
        }
    return count;
}

const copes_backend copes_backend_cpu = {
    .info = {"cpu", kDLCPU},
    .dtypes = 1u << COPES_F32 | 1u << COPES_F16 | 1u << COPES_BF16 | 1u << COPES_F64,
    .device_count = device_count,
    .summary = summary,
    .open = open_state,
    .close = close_state,
    .set_stream = set_stream,
    .plan = plan,
    .run = run,
    .variants = variants,
};
