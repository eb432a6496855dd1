/* The kernels of this level and type. */
#include "backends/openmp/table.h"
#include "backends/openmp/template.h"

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define NAME(family) #family "<" TEXT(COPES_TYPE) ", " TEXT(COPES_LEVEL) ">"

const copes_cpu_kernels TEMPLATE(kernels) = {
    .names = {NAME(act), NAME(lrpe), NAME(lrpe_sequence), NAME(merge), NAME(qk), NAME(tpa)},
    .act = TEMPLATE(act),
    .lrpe = TEMPLATE(lrpe),
    .merge = TEMPLATE(merge),
    .qk = TEMPLATE(qk),
    .tpa = TEMPLATE(tpa),
    .lrpe_workspace = TEMPLATE(lrpe_workspace),
    .merge_workspace = TEMPLATE(merge_workspace),
    .qk_workspace = TEMPLATE(qk_workspace),
    .tpa_workspace = TEMPLATE(tpa_workspace),
};
